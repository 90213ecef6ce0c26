"""CUDA toolkits of the host."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flashdepot.errors import FlashdepotError
from flashdepot.model.host import CudaToolkit
from flashdepot.model.target import Version
from flashdepot.system.process import run
from flashdepot.toolchain.nvcc import inspect

_NVCC = "nvcc.exe" if os.name == "nt" else "nvcc"


def find_toolkits() -> tuple[CudaToolkit, ...]:
    """Toolkits with an nvcc that runs, in the order of preference: environment, ``PATH``, usual places.

    Several names of one program are asked once, and all programs at the same time.
    """
    candidates: dict[str, tuple[str, Path]] = {}
    for found_by, nvcc in _candidates():
        candidates.setdefault(os.path.realpath(nvcc), (found_by, nvcc))
    found: dict[str, CudaToolkit] = {}
    with ThreadPoolExecutor() as pool:
        for toolkit in pool.map(lambda candidate: identify_toolkit(candidate[1], candidate[0]), candidates.values()):
            if toolkit is not None:
                found.setdefault(toolkit.root, toolkit)
    return tuple(found.values())


def identify_toolkit(nvcc: Path, found_by: str) -> CudaToolkit | None:
    """The toolkit that an nvcc belongs to, or ``None`` when the program does not answer as nvcc does.

    nvcc itself is asked for its root, because the program on ``PATH`` may be a link or a script of a distribution.
    """
    try:
        top = re.search(
            r"^#\$ TOP=(.+)$", run([str(nvcc), "--dryrun", "-c", "-x", "cu", os.devnull]).stderr, re.MULTILINE
        )
    except FlashdepotError:
        return None
    root = Path(os.path.realpath(Path(top[1].strip()) if top else nvcc.resolve().parent.parent))
    try:
        looked = inspect(root)
    except FlashdepotError:
        return _without_its_folder(nvcc, root, found_by)
    return CudaToolkit(
        root=str(root),
        version=looked.version,
        found_by=found_by,
        missing=looked.missing,
        codes=looked.codes,
        newest_gcc=looked.newest_gcc,
        newest_clang=looked.newest_clang,
    )


def _without_its_folder(nvcc: Path, root: Path, found_by: str) -> CudaToolkit | None:
    """An nvcc that answers, whose toolkit is not where it says, as some distributions pack it."""
    try:
        version = re.search(r"\bV(\d+\.\d+\.\d+)", run([str(nvcc), "--version"], timeout=30).stdout)
    except FlashdepotError:
        return None
    return CudaToolkit(str(root), Version(version[1]), found_by, missing=(f"bin/{_NVCC}",)) if version else None


def _candidates() -> Iterator[tuple[str, Path]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield from _if_file(variable, Path(value) / "bin" / _NVCC)
    if program := shutil.which("nvcc"):
        yield "PATH", Path(program)
    for folder in _usual_places():
        yield from _if_file(str(folder), folder / "bin" / _NVCC)


def _usual_places() -> list[Path]:
    if os.name == "nt":
        parent = Path(os.environ.get("ProgramFiles", r"C:\Program Files")) / "NVIDIA GPU Computing Toolkit" / "CUDA"  # noqa: SIM112
        return _newest_first(parent, "v*")
    return [Path("/usr/local/cuda"), *_newest_first(Path("/usr/local"), "cuda-*"), Path("/opt/cuda")]


def _newest_first(parent: Path, pattern: str) -> list[Path]:
    def number(path: Path) -> tuple[int, ...]:
        return tuple(int(n) for n in re.findall(r"\d+", path.name))

    return sorted(parent.glob(pattern), key=number, reverse=True) if parent.is_dir() else []


def _if_file(found_by: str, nvcc: Path) -> Iterator[tuple[str, Path]]:
    if nvcc.is_file():
        yield found_by, nvcc
