"""What linking a program with the library needs."""

from __future__ import annotations

from collections.abc import Iterator

from flashdepot.doctor.case import Case
from flashdepot.doctor.finding import Finding, blocker, note, warning
from flashdepot.facts.compilers import BUILD_TOOLS


def linker(case: Case) -> Iterator[Finding]:
    """No compiler, so no linker either."""
    if not case.record.compilers:
        seen = "No C++ compiler was found."
        why = "C, C++ and Rust programs are all linked through one."
        windows = case.record.platform.system == "windows"
        mend = BUILD_TOOLS if windows else "Install one, for example: apt-get install g++"
        yield blocker("host-compiler-missing", seen, why, mend)


def cuda(case: Case) -> Iterator[Finding]:
    """No toolkit for programs that call CUDA themselves."""
    if not any(not t.missing for t in case.record.toolkits):
        seen = "No complete CUDA toolkit was found."
        why = "The library calls the driver by itself; a program that allocates GPU memory itself needs its own."
        mend = "Where the linker says 'cannot find -lcudart': install the toolkit's cuda-cudart-dev"
        yield note("cuda-lib-not-found-at-link", seen, why, mend)


def rust(case: Case) -> Iterator[Finding]:
    """Build scripts of Rust crates that ask nvidia-smi for the GPU."""
    if case.has_program("cargo") and case.has_program("nvidia-smi") is False:
        if "CUDA_COMPUTE_CAP" in case.record.variables:
            return
        wanted = case.wanted[-1] if case.wanted else "90"
        seen = "cargo is here, nvidia-smi is not, and CUDA_COMPUTE_CAP is not set."
        why = "Build scripts of candle and others ask nvidia-smi for the compute capability, and stop without it."
        yield warning("compute-cap-undetected", seen, why, f"export CUDA_COMPUTE_CAP={wanted}")


def large_files(case: Case) -> Iterator[Finding]:
    """git without its extension for large files."""
    if case.has_program("git") and case.has_program("git-lfs") is False:
        why = "Libraries that a repository keeps in LFS are three-line text files then, and linkers say strange things."
        mend = "Install git-lfs, then: git lfs install && git lfs pull"
        yield note("lfs-pointer", "git is here, git-lfs is not.", why, mend)


def build_systems(case: Case) -> Iterator[Finding]:
    """No build system that the library has files for."""
    if case.record.programs is not None and not any(map(case.has_program, ("cmake", "pkg-config", "cargo"))):
        why = "The library comes with files for each; without them its folders are named by hand."
        mend = "Install one, or give the compiler: -I DIR/include -L DIR/lib/shared -lflashattention"
        yield note("build-system-missing", "There is no cmake, pkg-config or cargo.", why, mend)
