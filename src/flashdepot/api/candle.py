"""candle-flash-attn with prebuilt kernels: the archive that its build takes, and kernels of its own in it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flashdepot.api.acquire import Context
from flashdepot.api.libraries import zig
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.events import Forecast
from flashdepot.host.probe import this_platform
from flashdepot.link import candle_project as advice
from flashdepot.link.candle_archive import AddedKernels, prepare_folder, write_candle_crate
from flashdepot.link.candle_check import CandleNeed, check_last_build, check_setup
from flashdepot.link.candle_kernels import CandleKernel, choose_kernels
from flashdepot.link.candle_project import CandleProject, CandleSetup, config_text, read_setup, require_sources
from flashdepot.link.candle_versions import (
    CandleLine,
    Delivery,
    default_cargo_home,
    find_crate,
    line_of,
    line_of_folder,
    require_crate,
)
from flashdepot.link.library import LinkableLibrary, Shell
from flashdepot.model.diagnosis import Diagnosis
from flashdepot.model.manifest import Manifest
from flashdepot.model.target import Platform
from flashdepot.resolve.consent import require_consent

if TYPE_CHECKING:
    from flashdepot.build.schedule import Outlook

_KEPT = 2_000_000
"""Bytes of an object in the depot, about."""


class CandleWish(msgspec.Struct, frozen=True):
    """What candle-flash-attn is to be given.

    :param version: of the crate; ``line`` is what such versions have in common, ``sources`` where Cargo unpacked it.
    :param folder: of the archive, or of the crate that links it.
    :param kernels: words for candle's own kernels that are compiled too.
    """

    version: str
    line: CandleLine
    sources: Path | None
    delivery: Delivery
    folder: Path
    project: CandleProject | None = None
    kernels: str | None = None


class CandleResult(msgspec.Struct, frozen=True):
    """What was made, of which library: fields of the JSON document, lines to paste, and notes."""

    setup: CandleSetup
    manifest: Manifest
    document: dict[str, Any]
    text: str
    notes: list[str]


def candle_line(
    crate: str, version: str, project: CandleProject | None, folder: Path | None
) -> tuple[CandleLine, Path | None]:
    """What is known of a version, and its sources: a folder that was named, else where Cargo unpacked them, if it did."""
    home = default_cargo_home()
    if folder is not None:
        sources: Path | None = require_crate(folder, version, crate)
    else:
        sources = project.sources(home) if project and project.version == version else find_crate(version, home, crate)
    return (line_of(version, crate) if sources is None else line_of_folder(sources, version, crate)), sources


def link_candle(wish: CandleWish, library: Callable[[], LinkableLibrary], context: Context) -> CandleResult:
    """Give candle-flash-attn prebuilt kernels, as its version takes them.

    :param library: asked for when all else is there: getting it may take long.
    """
    provide_zig = partial(zig, context)
    line, sources, project = wish.line, wish.sources, wish.project
    arguments, name = line.archive, line.crate
    nvcc = shutil.which("nvcc")
    if wish.delivery is Delivery.CRATE:
        git = project.git if project else {}
        unpacked = require_sources(sources, name, wish.version, default_cargo_home() / "registry")
        kernels = choose_kernels(unpacked, wish.kernels, line, wish.version) if wish.kernels is not None else ()
        got = library()
        added = added_kernels(kernels, unpacked, got, context)
        with added if kernels else contextlib.nullcontext() as objects:
            root = write_candle_crate(got, arguments, unpacked, wish.folder, provide_zig, objects, git)
        text = advice.patch_lines(name, root)
        notes = advice.crate_notes(got.manifest, nvcc)
        setup = CandleSetup(Delivery.CRATE, root, replaces=git.get("git", advice.CRATES_IO), crate=name)
        return _result(got, wish, setup, text, notes, {"patch": text}, kernels)
    if wish.kernels is not None:
        choose_kernels(sources or wish.folder, wish.kernels, line, wish.version)
    got = library()
    made = prepare_folder(got, arguments, wish.folder, sources, provide_zig)
    setup = CandleSetup(Delivery.FOLDER, made.root, advice.compute_cap(got.manifest))
    variables = {advice.BUILD_DIR: str(made.root), advice.COMPUTE_CAP: setup.compute_cap}
    shell = Shell.of(got.manifest.platform.system)
    text = "\n".join(shell.assignment(name, value) for name, value in variables.items())
    notes = advice.folder_notes(sources, nvcc, wish.version)
    document = {"files": [str(path) for path in made.archives], "environment": variables}
    return _result(got, wish, setup, text, notes, document)


def _result(
    library: LinkableLibrary,
    wish: CandleWish,
    setup: CandleSetup,
    text: str,
    notes: Sequence[str],
    more: dict[str, Any],
    added: Sequence[CandleKernel] = (),
) -> CandleResult:
    line, project = wish.line, wish.project
    built = {"built": str(setup.folder), "candle_kernels": [kernel.name for kernel in added]}
    lines = text if project is None else config_text("", setup, project.root).rstrip("\n")
    said = [advice.missing_kernels(library.manifest, line.arguments, added), *advice.streams(line.archive), *notes]
    if project is not None and project.features:
        said.append(f"{line.crate} is behind a feature here: cargo build --features {project.features[0]}")
    return CandleResult(setup, library.manifest, {**library.to_json(), **built, **more}, lines, said)


def cargo_toolkit(project: CandleProject, manifest: Manifest, context: Context) -> list[str]:
    """The lines of a shell with which ``cargo build`` finds a CUDA toolkit, which is put into the depot first."""
    from flashdepot.link.candle_toolkit import bindings_of, provide_stubs, toolkit_lines  # noqa: PLC0415
    from flashdepot.toolchain.wheels import pinned_toolkit, provided_version  # noqa: PLC0415

    here, folder, target = this_platform(), context.depot.layout.toolchains, manifest.platform
    if here.system != "linux" or target not in {here, Platform("windows", "x86_64")}:
        raise IncompatibleError(
            f"--toolkit is for builds on Linux, for the same machine or for Windows by MinGW; this is {here}, and the library "
            f"for {target}.",
            hint="Leave out --toolkit, and install a CUDA toolkit for the other system.",
        )
    bindings = bindings_of(project.root, default_cargo_home())
    with context.depot.workspace(), context.events.building() as progress:
        toolkit = pinned_toolkit(here).provide(folder, progress.download)
        provide_zig = None if target == here else partial(zig, context)
        stubs = provide_stubs(toolkit, provided_version().major, bindings, folder, provide_zig)
    capability = os.environ.get(advice.COMPUTE_CAP) or advice.compute_cap(manifest)
    return toolkit_lines(toolkit, stubs, capability, Shell.here())


def check_candle(project: CandleProject, need: CandleNeed, sources: Path | None) -> tuple[CandleSetup, list[Diagnosis]]:
    """What a project's set-up says, and what is wrong with it; :raises UsageError: where there is none."""
    setup = read_setup(project.root, os.environ, project.crate)
    if setup is None:
        raise UsageError(
            f"Nothing in {project.root} says where a library for {project.crate} {need.version} is: cargo build would compile its "
            "kernels.",
            hint=str(need.again),
        )
    target = Path(os.environ.get("CARGO_TARGET_DIR") or project.root / "target")
    return setup, [*check_setup(setup, need, sources), *check_last_build(setup, target)]


@contextlib.contextmanager
def added_kernels(
    kernels: Sequence[CandleKernel], crate: Path, library: LinkableLibrary, context: Context
) -> Iterator[AddedKernels]:
    """candle's own kernels for the archive over a library: for its GPUs, with its features, by its CUDA's nvcc.

    Their objects are there until the block ends. The depot keeps each kernel that was compiled.

    :param crate: the sources of candle-flash-attn.
    """
    from flashdepot.build.objects import compilers_of, make_objects  # noqa: PLC0415
    from flashdepot.host import probe  # noqa: PLC0415
    from flashdepot.link.candle_kernels import PLACE, kernel_actions, recipe_for  # noqa: PLC0415
    from flashdepot.toolchain.choose import asks_machine, choose_toolchain, identify_toolchain  # noqa: PLC0415
    from flashdepot.toolchain.wheels import CUTLASS  # noqa: PLC0415

    manifest, depot, limits, events = library.manifest, context.depot, context.limits, context.events
    if manifest.platform.system != "linux" or manifest.platform != this_platform():
        raise IncompatibleError(
            f"candle's own kernels are added for the Linux and the CPU of this machine, {this_platform()}, and this library "
            f"is for {manifest.platform}.",
            hint="Leave out --candle-kernels, or run it there.",
        )

    def agree(outlook: Outlook) -> None:
        left = sum(f"candle-{kernel.stem}" in outlook.jobs for kernel in kernels)
        forecast = Forecast(
            units=len(kernels),
            compiled=len(kernels) - left,
            jobs=max(1, outlook.at_once),
            seconds=outlook.seconds,
            memory=outlook.peak,
            memory_limit=outlook.memory,
            disk=left * _KEPT,
        )
        if left:
            require_consent(forecast, limits, events)

    cuda = manifest.toolchain.cuda
    machine = probe(depot=depot.root, tools=asks_machine(cuda, this_platform(), None))
    with depot.workspace() as work, events.building() as progress:
        toolchain = choose_toolchain(
            cuda,
            machine,
            manifest.sass,
            driver=None,
            folder=depot.layout.toolchains,
            work=work,
            on_file=progress.download,
        )
        sources = {
            PLACE: (crate / "kernels").resolve(),
            "cutlass": CUTLASS.provide(depot.layout.toolchains, progress.download),
        }
        identity = identify_toolchain(toolchain)
        compilers = compilers_of(toolchain, identity, manifest.platform, depot.layout.toolchains)
        recipe = recipe_for(manifest, identity, compilers)
        actions = kernel_actions(kernels, manifest.selection.features, recipe, compilers)
        objects = make_objects(actions, sources, recipe, toolchain, depot, work / "candle", limits, progress, agree)
        yield AddedKernels(tuple(kernels), manifest.selection.features, tuple(objects))
