"""``flashdepot link wheel``."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from flashdepot.api.answers import place_of
from flashdepot.cli.check_commands import describe
from flashdepot.cli.common import command, flag, options, path_option
from flashdepot.cli.options import environment_options
from flashdepot.cli.output import View, say
from flashdepot.diagnose.check.judge import Outcome
from flashdepot.diagnose.check.judge_wheel import TORCH_VERSION
from flashdepot.diagnose.check.place import InstalledTorch, Place
from flashdepot.diagnose.check.run import Report, check_file
from flashdepot.errors import FlashdepotError, IncompatibleError, IntegrityError, MissingToolError, UsageError
from flashdepot.link.published_wheel import HEADER, PACKAGE, BuildsWith, WheelPackage, write_package
from flashdepot.resolve.facts import Given

_ERRORS: dict[Outcome, type[FlashdepotError]] = {
    Outcome.UNKNOWN: MissingToolError,
    Outcome.MISFIT: IncompatibleError,
    Outcome.DAMAGED: IntegrityError,
}


@command(
    "flashdepot link wheel flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl --python .venv --out third_party/flash",
    "cmake -S . -B build -DCMAKE_PREFIX_PATH=third_party/flash",
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@options(
    environment_options,
    path_option("--out DIR  Folder to write.  [default: NAME-cpp]"),
    flag("--force  Write it even if the wheel does not fit."),
)
def wheel(file: Path, given: Given, out: Path | None, *, force: bool) -> View:
    """Turn a published flash-attn wheel into a C++ library for programs with torch tensors.

    Writes the wheel's extension module, a header with the functions that it exports, and the CMake package
    FlashAttentionWheel for the torch of a Python environment. A wheel that does not fit torch, its C++ ABI, Python or
    the machine is refused, with the evidence.
    """
    place, _ = place_of(given.python, given.named, given.saved)
    report = _strictly(check_file(file, place))
    _require_fit(report, force=force)
    made = write_package(
        file,
        str(report.facts["name"]),
        str(report.facts["version"]),
        _builds_with(place),
        out or Path(f"{report.facts['name']}-cpp"),
    )
    return View(_document(made, report), [str(made.root)], _notes(made, place))


def _strictly(report: Report) -> Report:
    """The report, in which a torch that the wheel does not admit is a misfit: programs are built with it."""
    refused = (replace(line, outcome=Outcome.MISFIT) for line in report.evidence if line.topic == TORCH_VERSION)
    return replace(report, evidence=(*refused, *(line for line in report.evidence if line.topic != TORCH_VERSION)))


def _require_fit(report: Report, *, force: bool) -> None:
    if report.kind != "wheel" and report.verdict is not Outcome.DAMAGED:
        raise UsageError(f"{report.path} is not a wheel.", hint="Name a file that ends in .whl, as PyPI has it.")
    error = _ERRORS.get(report.verdict)
    if error is None:
        return
    if force and report.verdict is not Outcome.DAMAGED:
        say(f"Forced, although this will fail:\n{describe(report, verbose=False)}")
        return
    hint = (
        "" if report.verdict is Outcome.DAMAGED else "Use a wheel or a --python that fits, or link it anyway: --force"
    )
    raise error(f"{describe(report, verbose=False)}", hint=hint)


def _builds_with(place: Place) -> BuildsWith:
    python, torch = place.python, place.torch
    if python is None or python.torch is None or not isinstance(torch, InstalledTorch):
        raise MissingToolError(
            "No torch was found to build with.", hint="Name an environment that has it: --python .venv/bin/python"
        )
    near = (Path(python.torch.folder, "lib"),)
    return BuildsWith(python, python.torch, torch.new_abi is not False, lambda name: place.find_library(name, near))


def _notes(made: WheelPackage, place: Place) -> list[str]:
    names = ", ".join(function.name for function in made.extension.entry_points)
    lines = [f"{HEADER} declares {names}."]
    lines += [f"Left out: {reason}" for reason in made.extension.left_out]
    lines += [f"Not found, so not linked: {name}" for name in made.missing]
    python = place.python
    if python is not None and python.library is None:
        lines.append(
            f"{python.label} has no shared library, so there is no target for a program of its own: "
            f"{PACKAGE}::extension is for modules that Python loads."
        )
    lines.append(f"cmake -DCMAKE_PREFIX_PATH={made.root}; find_package({PACKAGE} REQUIRED)")
    return lines


def _document(made: WheelPackage, report: Report) -> dict[str, object]:
    return {
        "path": str(made.root),
        "package": PACKAGE,
        "header": str(made.root / "include" / HEADER),
        "extension": made.extension.name,
        "entry_points": {function.name: function.mangled for function in made.extension.entry_points},
        "left_out": list(made.extension.left_out),
        "missing": list(made.missing),
        "check": report.to_json(),
    }
