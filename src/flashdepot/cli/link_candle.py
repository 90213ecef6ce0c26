"""``flashdepot link candle``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click
import msgspec

from flashdepot.api.candle import added_kernels
from flashdepot.cli.common import answer, examples, json_option, named_depot, open_depot, options, print_json, say
from flashdepot.cli.link_commands import library_options, linkable, zig_source
from flashdepot.cli.options import candle_versions, one_of
from flashdepot.cli.terminal import Terminal
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.host.probe import runtime_facts, this_platform
from flashdepot.link import candle_project as advice
from flashdepot.link.candle_archive import AddedKernels
from flashdepot.link.candle_check import CandleNeed, check_last_build, check_setup
from flashdepot.link.candle_delivery import prepare_folder, write_candle_crate
from flashdepot.link.candle_kernels import CandleKernel, choose_kernels
from flashdepot.link.candle_project import (
    CONFIG,
    CandleProject,
    CandleSetup,
    config_text,
    read_candle_project,
    read_setup,
    require_sources,
    write_config,
)
from flashdepot.link.candle_versions import (
    CRATE,
    CandleLine,
    Delivery,
    default_cargo_home,
    find_crate,
    line_of,
    line_of_folder,
    require_crate,
)
from flashdepot.link.library import LinkableLibrary
from flashdepot.model.diagnosis import Command
from flashdepot.model.environment import Environment
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.facts import facts_of
from flashdepot.toolchain.targets import parse_target
from flashdepot.toolchain.wheels import provided_nvcc

_DEFAULT = Path("prebuilt", CRATE)


@click.command(
    epilog=examples(
        "flashdepot link candle --write --get",
        "flashdepot link candle --check",
        'eval "$(flashdepot link candle --candle-version 0.9.1 --build-dir prebuilt)" && cargo build --release',
        "flashdepot link candle --candle-version 0.9.1 --build-dir prebuilt --profile inference --arch 80,90 --get",
        "flashdepot link candle --candle-version 0.11.1 --build-dir vendor/candle-flash-attn >> Cargo.toml",
    )
)
@click.option(
    "--candle-version",
    "version",
    shell_complete=one_of(candle_versions),
    metavar="X",
    help="Version of candle-flash-attn.  [default: the one in Cargo.lock of the project around this folder]",
)
@click.option(
    "--build-dir",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help=f"Folder for the archive, or for the crate that links it.  [default: {_DEFAULT.as_posix()} in the project]",
)
@click.option(
    "--crate",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Sources of candle-flash-attn.  [default: where Cargo unpacked that version]",
)
@click.option(
    "--as",
    "wanted",
    type=click.Choice([str(way) for way in Delivery]),
    help="Write an archive for candle's build script, or a crate for [patch.crates-io].  [default: by version]",
)
@click.option(
    "--candle-kernels",
    "kernels",
    metavar="NAMES",
    help="Compile kernels of candle's own too, for calls that flash-attention's cannot do (candle 0.11 and newer: head dim "
    "512, pages of 32 rows, prefix ranges): 'all', or names such as splitkv_hdim256_bf16*.",
)
@click.option("--write", is_flag=True, help=f"Add the lines to the project's {CONFIG}.")
@click.option("--check", is_flag=True, help="Only say whether the project's set-up still holds. Exit code 6 if not.")
@options(library_options, json_option)
def candle(
    version: str | None,
    folder: Path | None,
    crate: Path | None,
    wanted: str | None,
    kernels: str | None,
    *,
    write: bool,
    check: bool,
    as_json: bool,
    **which: Any,
) -> None:
    """Give candle-flash-attn prebuilt kernels: an archive with run_mha as that version calls it.

    In a project's folder, the version comes from Cargo.lock, and what is printed goes into .cargo/config.toml, or is
    added to it with --write. With --candle-version and --build-dir no project is needed.

    Up to candle 0.9.1, the archive goes where candle's build script looks, newer than every source, and the variables
    to set are printed. From 0.9.2 on, a crate for [patch.crates-io] is written: candle's own Rust code, copied from Cargo's
    folder, with a build script that only links.
    """
    project = None if version and not (write or check) else read_candle_project(Path.cwd())
    asked = version or (project.version if project else "")
    sources = _sources(project, asked, crate)
    line = line_of(asked) if sources is None else line_of_folder(sources, asked)
    if check and project is not None:
        _check(project, CandleNeed(asked, line, _environment(**which), _again(which)), sources, as_json=as_json)
        return
    delivery = line.delivery(wanted)
    if folder is None and project is None:
        raise UsageError("--candle-version needs a folder to write into.", hint="--build-dir prebuilt")
    place = folder or (project.root if project else Path()) / _DEFAULT
    which["otherwise"] = line.calls
    if which["dry_run"]:
        linkable(**which)  # ends the command, whether or not candle's sources are here
    given = _give(which, _Wish(asked, line, delivery, place, kernels), sources, project)
    if write and project is not None:
        write_config(project.root, given.setup)
    if as_json:
        known = {"candle": asked, "arguments": line.arguments, "delivery": delivery.value}
        written = str(project.root / CONFIG) if write and project else None
        document = {**known, "crate": str(sources) if sources else None, **given.document, "config": written}
        print_json({**document, "notes": given.notes})
        return
    if not which["quiet"]:
        for note in given.notes:
            say(note)
    answer(f"{project.root / CONFIG}" if write and project else given.text)


class _Wish(msgspec.Struct, frozen=True):
    """What is to be made, and where."""

    version: str
    line: CandleLine
    delivery: Delivery
    folder: Path
    kernels: str | None = None


class _Given(msgspec.Struct, frozen=True):
    """What was made: fields of the JSON document, lines to paste, and what must be known besides."""

    setup: CandleSetup
    document: dict[str, Any]
    text: str
    notes: list[str]


def _sources(project: CandleProject | None, version: str, crate: Path | None) -> Path | None:
    if crate is not None:
        return require_crate(crate, version)
    home = default_cargo_home()
    return project.sources(home) if project and project.version == version else find_crate(version, home)


def _give(which: dict[str, Any], wish: _Wish, sources: Path | None, project: CandleProject | None) -> _Given:
    zig = zig_source(which["depot"], quiet=which["quiet"])
    if wish.delivery is Delivery.CRATE:
        if project is not None:
            project.require_published()
        unpacked = require_sources(sources, wish.version, default_cargo_home() / "registry")
        kernels: tuple[CandleKernel, ...] = ()
        if wish.kernels is not None:
            kernels = choose_kernels(unpacked, wish.kernels, wish.line.arguments, wish.version)
        library = linkable(**which)
        with _added(kernels, unpacked, library, which) as added:
            root = write_candle_crate(library, wish.line.arguments, unpacked, wish.folder, zig, added)
        return _given(library, wish, CandleSetup(Delivery.CRATE, root), project, advice.patch_lines(root), [], kernels)
    if wish.kernels is not None:
        choose_kernels(sources or wish.folder, wish.kernels, wish.line.arguments, wish.version)
    library = linkable(**which)
    made = prepare_folder(library, wish.line.arguments, wish.folder, sources, zig)
    variables = advice.environment(library.manifest, made.root)
    given = _given(
        library,
        wish,
        CandleSetup(Delivery.FOLDER, made.root, variables["CUDA_COMPUTE_CAP"]),
        project,
        advice.shell_lines(variables, library.manifest.platform.system),
        advice.folder_notes(sources, shutil.which("nvcc"), _stored_nvcc(which["depot"]), wish.version),
    )
    files = [str(path) for path in made.archives]
    given.document.update(files=files, environment=variables)
    return given


def _added(
    kernels: Sequence[CandleKernel], crate: Path, library: LinkableLibrary, which: dict[str, Any]
) -> AbstractContextManager[AddedKernels | None]:
    if not kernels:
        return nullcontext()
    events = Terminal(quiet=which["quiet"], may_ask=True)
    return added_kernels(
        kernels, crate, library, depot=open_depot(which["depot"]), limits=which["limits"], events=events
    )


def _stored_nvcc(depot: Path | None) -> Path | None:
    return provided_nvcc(this_platform(), open_depot(depot).layout.toolchains)


def _given(
    library: LinkableLibrary,
    wish: _Wish,
    setup: CandleSetup,
    project: CandleProject | None,
    text: str,
    notes: list[str],
    added: Sequence[CandleKernel] = (),
) -> _Given:
    arguments = wish.line.arguments
    document = {**library.to_json(), "built": str(setup.folder), "candle_kernels": [kernel.name for kernel in added]}
    if setup.delivery is Delivery.CRATE:
        document["patch"] = text
    lines = text if project is None else config_text("", setup, project.root).rstrip("\n")
    said = [advice.missing_kernels(library.manifest, arguments, added), *advice.streams(arguments), *notes]
    if project is not None and project.features:
        said.append(f"candle-flash-attn is behind a feature here: cargo build --features {project.features[0]}")
    return _Given(setup, document, lines, said)


def _environment(host: HostRecord | None, target: str | None, **_: Any) -> Environment:
    """Where the program is to run; of another system than the machine's nothing more is known."""
    facts = facts_of(host or runtime_facts())
    asked = parse_target(target).platform if target else facts.platform
    return facts if asked == facts.platform else Environment(platform=asked)


def _again(words: dict[str, Any]) -> Command:
    """The command that writes the set-up, with the words that were given here."""
    params = click.get_current_context().params
    named = {name: params[name] for name in ("glibc", "gpu", "driver")}
    request = {name: words.get(name) for name in LibraryRequest.__struct_fields__}
    return Command(
        "link candle", {"write": True, **request, **named, "host": params["host_file"], "depot": named_depot()}
    )


def _check(project: CandleProject, need: CandleNeed, sources: Path | None, *, as_json: bool) -> None:
    setup = read_setup(project.root, os.environ)
    if setup is None:
        raise UsageError(
            f"Nothing in {project.root} says where a library for {CRATE} {need.version} is: cargo build would compile its "
            "kernels.",
            hint="flashdepot link candle --write",
        )
    target = Path(os.environ.get("CARGO_TARGET_DIR") or project.root / "target")
    found = [*check_setup(setup, need, sources), *check_last_build(setup, target)]
    if as_json:
        findings = [{"what": finding.what, "fix": finding.fix} for finding in found]
        print_json({"candle": need.version, "folder": str(setup.folder), "holds": not found, "findings": findings})
    else:
        for finding in found:
            answer(f"{finding.what}\n  {finding.fix}")
        if not found:
            answer(f"{CRATE} {need.version} takes the library in {setup.folder}, as {setup.said_in} says.")
    if found:
        click.get_current_context().exit(IntegrityError.exit_code)
