"""What candle's own build needs of a CUDA toolkit, from the depot: nvcc, and names of CUDA's libraries to link against."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from flashdepot.errors import MissingToolError
from flashdepot.files.documents import read_toml
from flashdepot.files.folders import make_whole
from flashdepot.link.candle_archive import required_tool, run_tool
from flashdepot.link.candle_project import COMPUTE_CAP, LOCK
from flashdepot.link.lines import Shell
from flashdepot.model.codec import digest_of

_BINDING = "cudarc"
_DECLARED = re.compile(r"^\s*pub fn ((?:cu|nvrtc|nccl)\w+)\(", re.MULTILINE)
_LIBRARIES = {
    "driver": ("cuda", "1"),
    "cublas": ("cublas", "{major}"),
    "cublaslt": ("cublasLt", "{major}"),
    "curand": ("curand", "10"),
    "nvrtc": ("nvrtc", "{major}"),
    "cudnn": ("cudnn", "9"),
    "nccl": ("nccl", "2"),
}
"""By cudarc's module: the library that it links, and the number in its soname (the names in NVIDIA's wheels for CUDA 13)."""


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
    """The C functions that cudarc declares, by its module, sorted."""
    names: dict[str, set[str]] = {}
    for source in bindings:
        for module in _LIBRARIES:
            if (file := source / module / "sys" / "mod.rs").is_file():
                names.setdefault(module, set()).update(_DECLARED.findall(file.read_text("utf-8")))
    return {module: sorted(found) for module, found in names.items() if found}


def provide_stubs(toolkit: Path, major: int, bindings: Iterable[Path], folder: Path) -> Path:
    """A folder in ``folder`` whose ``lib`` links a program that uses cudarc, without CUDA's libraries.

    Each stub has the soname and the names of the library that the program loads when it runs, as those in the
    ``lib/stubs`` of a toolkit do. CUDA's runtime is the static one of the toolkit: no file for it is needed then.

    :param major: of the CUDA release.
    :raises MissingToolError: when there is no C compiler.
    """
    declared = declared_names(bindings)
    runtime = toolkit / "lib" / "libcudart_static.a"
    compiler = required_tool("cc", "gcc")

    def fill(place: Path) -> None:
        lib = place / "lib"
        lib.mkdir(parents=True)
        shutil.copyfile(runtime, lib / "libcudart.a")
        for module, names in declared.items():
            name, number = _LIBRARIES[module]
            source = place / f"{name}.c"
            source.write_text("".join(f"void {declared}(void) {{}}\n" for declared in names))
            soname = f"-Wl,-soname,lib{name}.so.{number.format(major=major)}"
            quiet = ["-w", "-fno-builtin", "-nostdlib"]
            run_tool([compiler, "-shared", "-fPIC", *quiet, soname, str(source), "-o", str(lib / f"lib{name}.so")])
            source.unlink()

    key = digest_of([toolkit.name, sorted(declared.items()), sorted(_LIBRARIES.items())])[:12]
    return make_whole(folder / f"cuda-stubs-{key}", fill)


def toolkit_lines(toolkit: Path, stubs: Path, compute_cap: str, shell: Shell) -> list[str]:
    """What a shell evaluates before ``cargo build``.

    candle's build scripts start ``nvcc`` from PATH and read ``NVCC``; cudarc looks for libraries in the ``lib`` of the
    other folders.
    """
    said = {"CUDA_HOME": toolkit, "CUDA_PATH": toolkit, "CUDA_ROOT": stubs, "NVCC": toolkit / "bin" / "nvcc"}
    lines = [shell.assignment(name, str(value)) for name, value in said.items()]
    return [*lines, shell.assignment(COMPUTE_CAP, compute_cap), shell.prepending("PATH", str(toolkit / "bin"))]
