"""``flashdepot link candle``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flashdepot.api.acquire import Context
from flashdepot.api.candle import CandleWish, candle_line, cargo_toolkit, check_candle, link_candle
from flashdepot.cli.common import command, flag, option, path_option
from flashdepot.cli.link_commands import Which, link_options
from flashdepot.cli.options import completed, named_machine
from flashdepot.cli.output import View
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.host.probe import runtime_facts
from flashdepot.link.candle_check import CandleNeed
from flashdepot.link.candle_project import CONFIG, NO_NVCC, read_candle_project, write_config
from flashdepot.link.candle_versions import CRATE, CRATE_V3, known_lines
from flashdepot.model.diagnosis import Command
from flashdepot.model.environment import Environment
from flashdepot.resolve.facts import facts_of
from flashdepot.toolchain.targets import parse_target

_DEFAULT = Path("prebuilt")
_AT_RUN_TIME = (
    "The program loads NVIDIA's driver, cuBLAS, cuRAND and NVRTC when it starts, on Windows CUDA's runtime too. Without a "
    "toolkit: pip install nvidia-cublas nvidia-curand nvidia-cuda-nvrtc nvidia-cuda-runtime, with their folders in "
    "LD_LIBRARY_PATH, on Windows in PATH."
)


def _versions() -> Iterable[str]:
    served = (line for line in known_lines() if line.crate == CRATE and line.is_served)
    return (version for line in served for version in line.versions)


@command(
    "flashdepot link candle --write --get",
    "flashdepot link candle --check",
    'eval "$(flashdepot link candle --write --get --toolkit)" && cargo build --release',
    "flashdepot link candle --candle-version 0.11.1 --build-dir vendor/candle-flash-attn >> Cargo.toml",
)
@option(
    "--candle-version X  Version of candle-flash-attn.  [default: the one in Cargo.lock of the project "
    "around this folder]",
    to="version",
    shell_complete=completed(_versions),
)
@path_option(
    f"--build-dir DIR  Folder for the crate that links the library.  [default: {_DEFAULT}/CRATE in the project]",
    to="folder",
)
@path_option("--crate DIR  Sources of candle-flash-attn.  [default: where Cargo unpacked that version]")
@option(
    "--candle-kernels NAMES  Compile kernels of candle's own too, for calls that flash-attention's cannot do "
    "(candle 0.11 and newer: head dim 512, prefix ranges): 'all', or names such as splitkv_hdim256_bf16*.",
    to="kernels",
)
@option(
    f"--v3  For {CRATE_V3} 0.11.1.  [default: where the project uses only that one]",
    to="crate_name",
    flag_value=CRATE_V3,
    default="",
)
@flag(f"--write  Add the lines to the project's {CONFIG}.")
@flag(
    "--toolkit  Fetch NVIDIA's compiler into the depot and print the shell lines with which cargo finds it, "
    "for Linux machines without a CUDA toolkit that build for themselves or, by MinGW, for Windows. Needs "
    "--write."
)
@flag("--check  Only say whether the project's set-up still holds. Exit code 6 if not.")
@link_options
def candle(
    version: str | None,
    folder: Path | None,
    crate: Path | None,
    kernels: str | None,
    crate_name: str,
    which: Which,
    *,
    write: bool,
    toolkit: bool,
    check: bool,
) -> View:
    """Give candle-flash-attn prebuilt kernels: a crate for [patch.crates-io] whose build script only links.

    In a project's folder, the version comes from Cargo.lock, and what is printed goes into .cargo/config.toml, or is
    added to it with --write. With --candle-version and --build-dir no project is needed.

    The crate has candle's own Rust code, copied from Cargo's folder, and an archive with run_mha as that version calls it.
    """
    project = None if version and not (write or check) else read_candle_project(Path.cwd(), crate_name)
    name = project.crate if project else crate_name or CRATE
    asked = version or (project.version if project else "")
    if toolkit and not write:
        raise UsageError("--toolkit prints lines for a shell, so the lines for Cargo must be written.", hint="--write")
    line, sources = candle_line(name, asked, project, crate)
    if check and project is not None:
        need = CandleNeed(asked, line, _environment(which), _again(which, name))
        setup, found = check_candle(project, need)
        findings = [{"what": finding.observed, "fix": str(finding.fix)} for finding in found]
        lines = [f"{finding.observed}\n  {finding.fix}" for finding in found]
        holds = f"{name} {asked} takes the library in {setup.folder}, as {setup.said_in} says."
        document = {"candle": asked, "folder": str(setup.folder), "holds": not found, "findings": findings}
        return View(document, lines or [holds], status=IntegrityError.exit_code if found else 0)
    if folder is None and project is None:
        raise UsageError("--candle-version needs a folder to write into.", hint="--build-dir prebuilt")
    place = folder or (project.root if project else Path()) / _DEFAULT / name
    if which.asked.dry_run:
        which.linkable(line.calls)  # ends the command, whether or not candle's sources are here
    wish = CandleWish(asked, line, sources, place, project, kernels)
    context = Context(**which.asked.how)
    made = link_candle(wish, lambda: which.linkable(line.calls), context)
    written, lines = None, []
    if write and project is not None:
        write_config(project.root, made.setup)
        written = str(project.root / CONFIG)
        if toolkit:
            lines = cargo_toolkit(project, made.manifest, context)
    document = {
        "candle": asked,
        "arguments": line.arguments,
        "crate": str(sources),
        **made.document,
        "config": written,
        "shell": lines,
        "notes": made.notes,
    }
    notes = [note for note in made.notes if not lines or note != NO_NVCC]
    return View(document, lines or [written or made.text], [*notes, *[_AT_RUN_TIME] * bool(lines)])


def _environment(which: Which) -> Environment:
    facts = facts_of(which.asked.host or runtime_facts())
    target = which.asked.wanted.words["target"]
    asked = parse_target(target).platform if target else facts.platform
    return facts if asked == facts.platform else Environment(platform=asked)


def _again(which: Which, crate: str) -> Command:
    return Command(
        "link candle", {"write": True, "v3": crate == CRATE_V3, **which.asked.wanted.words, **named_machine()}
    )
