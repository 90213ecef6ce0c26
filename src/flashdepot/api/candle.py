"""candle-flash-attn with prebuilt kernels: the crate that links them, kernels of its own in it, and a CUDA toolkit."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flashdepot.api.acquire import Context
from flashdepot.api.libraries import zig
from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.events import Forecast
from flashdepot.files.documents import read_toml
from flashdepot.files.folders import make_whole
from flashdepot.host.probe import this_platform
from flashdepot.link import candle_project as advice
from flashdepot.link.candle_archive import (
    AddedKernels,
    ZigSource,
    required_tool,
    run_tool,
    write_candle_crate,
)
from flashdepot.link.candle_check import CandleNeed, check_setup
from flashdepot.link.candle_project import CandleProject, CandleSetup, config_text, read_setup
from flashdepot.link.candle_versions import (
    NEWEST_LIST,
    CandleKernel,
    CandleLine,
    choose_kernels,
    default_cargo_home,
    find_crate,
    line_of,
    line_of_folder,
    require_crate,
)
from flashdepot.link.library import LinkableLibrary, Shell
from flashdepot.model.codec import digest_of
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
    :param folder: of the crate that links it.
    :param kernels: words for candle's own kernels that are compiled too.
    """

    version: str
    line: CandleLine
    sources: Path | None
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
    """Give candle-flash-attn prebuilt kernels: a crate for ``[patch]`` that links them.

    :param library: asked for when all else is there: getting it may take long.
    """
    line, sources, project, kernels = wish.line, wish.sources, wish.project, tuple[CandleKernel, ...]()
    git = project.git if project else {}
    if sources is None:
        raise MissingToolError(
            f"The sources of {line.crate} {wish.version} are not on this machine: Cargo has not fetched them to "
            f"{default_cargo_home() / 'registry'}.",
            hint="Run 'cargo fetch' in a project that depends on it, or name their folder with --crate.",
        )
    if wish.kernels is not None:
        kernels = choose_kernels(sources, wish.kernels, line, wish.version)
    got = library()
    with added_kernels(kernels, sources, got, context) if kernels else contextlib.nullcontext() as objects:
        root = write_candle_crate(got, line.archive, sources, wish.folder, partial(zig, context), objects, git)
    patch = f'[patch.crates-io]\n{line.crate} = {{ path = "{root.as_posix()}" }}'
    setup = CandleSetup(root, replaces=git.get("git", advice.CRATES_IO), crate=line.crate)
    document = {"built": str(root), "candle_kernels": [kernel.name for kernel in kernels], "patch": patch}
    lines = patch if project is None else config_text("", setup, project.root).rstrip("\n")
    said = [
        advice.missing_kernels(got.manifest, line.arguments, kernels),
        *[advice.STREAMS] * (line.archive < NEWEST_LIST),
        *advice.crate_notes(got.manifest, shutil.which("nvcc")),
    ]
    if project is not None and project.features:
        said.append(f"{line.crate} is behind a feature here: cargo build --features {project.features[0]}")
    return CandleResult(setup, got.manifest, {**got.to_json(), **document}, lines, said)


def cargo_toolkit(project: CandleProject, manifest: Manifest, context: Context) -> list[str]:
    """The lines of a shell with which ``cargo build`` finds a CUDA toolkit, which is put into the depot first."""
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


_BINDING = "cudarc"
_DECLARED = re.compile(r"^\s*(?:pub )?fn ((?:cu|nvrtc|nccl)\w+)\(", re.MULTILINE)
"""In an ``extern "C"`` block, for all functions together or, from cudarc 0.19.10 on, one in each function of Rust's."""
_LIBRARIES = {
    "driver": ("cuda", "libcuda.so.1", "nvcuda.dll"),
    "runtime": ("cudart", "", "cudart64_{major}.dll"),
    "cublas": ("cublas", "libcublas.so.{major}", "cublas64_{major}.dll"),
    "cublaslt": ("cublasLt", "libcublasLt.so.{major}", "cublasLt64_{major}.dll"),
    "curand": ("curand", "libcurand.so.10", "curand64_10.dll"),
    "nvrtc": ("nvrtc", "libnvrtc.so.{major}", "nvrtc64_{major}0_0.dll"),
    "cudnn": ("cudnn", "libcudnn.so.9", "cudnn64_9.dll"),
    "nccl": ("nccl", "libnccl.so.2", ""),
}
"""By cudarc's module: the library that it links, and what a program loads on Linux and on Windows, if anything (the names in
NVIDIA's wheels for CUDA 13)."""


def bindings_of(root: Path, cargo_home: Path) -> list[Path]:
    """The sources of each cudarc of a project; :raises MissingToolError: when Cargo has not fetched them."""
    packages = [p for p in read_toml(root / advice.LOCK).get("package", []) if isinstance(p, dict)]
    found = []
    for version in [str(p.get("version")) for p in packages if p.get("name") == _BINDING]:
        places = sorted((cargo_home / "registry" / "src").glob(f"*/{_BINDING}-{version}/src"))
        if not places:
            raise MissingToolError(f"The sources of {_BINDING} {version} are not in {cargo_home}.", hint="cargo fetch")
        found.append(places[0])
    return found


def declared_names(bindings: Iterable[Path]) -> dict[str, list[str]]:
    """The C functions that cudarc declares, by its module, sorted; :raises MissingToolError: when none is found."""
    names: dict[str, set[str]] = {}
    for source in bindings:
        for module in _LIBRARIES:
            if (file := source / module / "sys" / "mod.rs").is_file():
                names.setdefault(module, set()).update(_DECLARED.findall(file.read_text("utf-8")))
    if not names.get("driver"):
        raise MissingToolError(
            f"No function of the driver was found in the sources of {_BINDING}, which may declare them in a new way.",
            hint="Leave out --toolkit, and install a CUDA toolkit.",
        )
    return {module: sorted(found) for module, found in names.items() if found}


def provide_stubs(
    toolkit: Path, major: int, bindings: Iterable[Path], folder: Path, zig: ZigSource | None = None
) -> Path:
    """A folder in ``folder`` whose ``lib`` links a program that uses cudarc, without CUDA's libraries.

    Each stub has the names of a library, and that of the file that the program loads when it runs, as those in the
    ``lib/stubs`` of a toolkit do. On Linux CUDA's runtime is the static one of the toolkit: no file for it is needed then.

    :param major: of the CUDA release.
    :param zig: for programs for Windows, whose import libraries it makes; ``None`` for Linux.
    """
    declared = declared_names(bindings)
    make = _shared_library if zig is None else _import_library

    def fill(place: Path) -> None:
        lib = place / "lib"
        lib.mkdir(parents=True)
        tool = required_tool("cc", "gcc") if zig is None else str(zig().program)
        if zig is None:
            shutil.copyfile(toolkit / "lib" / "libcudart_static.a", lib / "libcudart.a")
        for module, names in declared.items():
            name, *files = _LIBRARIES[module]
            if loaded := files[zig is not None].format(major=major):
                make(tool, names, loaded, lib / f"lib{name}")

    key = digest_of([toolkit.name, sorted(declared.items()), sorted(_LIBRARIES.items()), zig is None])[:12]
    return make_whole(folder / f"cuda-stubs-{key}", fill)


def _shared_library(compiler: str, names: Sequence[str], soname: str, place: Path) -> None:
    source = place.with_suffix(".c")
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    quiet = ["-w", "-fno-builtin", "-nostdlib", f"-Wl,-soname,{soname}"]
    run_tool([compiler, "-shared", "-fPIC", *quiet, str(source), "-o", f"{place}.so"])
    source.unlink()


def _import_library(zig: str, names: Sequence[str], dll: str, place: Path) -> None:
    listed = place.with_suffix(".def")
    listed.write_text("\n".join([f"LIBRARY {dll}", "EXPORTS", *names, ""]))
    run_tool([zig, "dlltool", "-m", "i386:x86-64", "-D", dll, "-d", str(listed), "-l", f"{place}.a"])
    listed.unlink()


def toolkit_lines(toolkit: Path, stubs: Path, compute_cap: str, shell: Shell) -> list[str]:
    """What a shell evaluates before ``cargo build``.

    candle's build scripts start ``nvcc`` from PATH and read ``NVCC``; cudarc looks for libraries in the ``lib`` of the
    other folders.
    """
    said = {"CUDA_HOME": toolkit, "CUDA_PATH": toolkit, "CUDA_ROOT": stubs, "NVCC": toolkit / "bin" / "nvcc"}
    lines = [shell.assignment(name, str(value)) for name, value in said.items()]
    return [*lines, shell.assignment(advice.COMPUTE_CAP, compute_cap), shell.prepending("PATH", str(toolkit / "bin"))]


def check_candle(project: CandleProject, need: CandleNeed) -> tuple[CandleSetup, list[Diagnosis]]:
    """What a project's set-up says, and what is wrong with it; :raises UsageError: where there is none."""
    setup = read_setup(project.root, os.environ, project.crate)
    if setup is None:
        raise UsageError(
            f"Nothing in {project.root} says where a library for {project.crate} {need.version} is: cargo build would compile its "
            "kernels.",
            hint=str(need.again),
        )
    return setup, [*check_setup(setup, need)]


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
    from flashdepot.link.candle_versions import PLACE, kernel_actions, recipe_for  # noqa: PLC0415
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
