"""What candle's own build needs of a CUDA toolkit, from the depot: nvcc, and names of CUDA's libraries to link against."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from flashdepot.errors import MissingToolError
from flashdepot.files.documents import read_toml
from flashdepot.files.folders import make_whole
from flashdepot.link.candle_archive import ZigSource, required_tool, run_tool
from flashdepot.link.candle_project import COMPUTE_CAP, LOCK
from flashdepot.link.library import Shell
from flashdepot.model.codec import digest_of

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
    packages = [p for p in read_toml(root / LOCK).get("package", []) if isinstance(p, dict)]
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
    return [*lines, shell.assignment(COMPUTE_CAP, compute_cap), shell.prepending("PATH", str(toolkit / "bin"))]
