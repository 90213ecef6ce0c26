"""CUDA toolkits, compilers and linkers, and the environment variables that steer them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from flashdepot.diagnose.case import Case, blocker, foreseen, note, warning
from flashdepot.errors import FlashdepotError, IncompatibleError, MissingToolError
from flashdepot.facts.gpus import BUILD_TOOLS, choose_sass, codes_of
from flashdepot.model.diagnosis import Diagnosis
from flashdepot.model.host import CudaToolkit
from flashdepot.model.limits import joined
from flashdepot.model.request import AnyCuda
from flashdepot.toolchain.choose import OLDEST_CUDA, asks_machine, foresee_toolchain
from flashdepot.toolchain.wheels import provides

_STATIC_RUNTIMES = frozenset({"libcudart_static.a", "cudart_static.lib"})


def choice(case: Case) -> Iterator[Diagnosis]:
    """What choosing the toolchain would raise, in the same words; else what it would pass over."""
    cuda = case.request.cuda or AnyCuda.AUTO
    if not case.wanted or isinstance(cuda, Path):
        return
    record = case.record
    try:
        foresee_toolchain(cuda, record, case.wanted, driver=record.driver)
    except (MissingToolError, IncompatibleError) as error:
        yield foreseen(error, _class_of(error, case), "Nothing can be compiled before that is fixed.")
        return
    if asks_machine(cuda, record.platform, record.driver):
        for toolkit in record.toolkits:
            yield from _lacks_architecture(toolkit, case)


def _class_of(error: FlashdepotError, case: Case) -> str:
    if isinstance(error, IncompatibleError):
        return "driver-too-old"
    platform, is_named = case.record.platform, case.request.cuda not in {None, AnyCuda.AUTO}
    has_none = platform.system == "windows" or is_named or not provides(platform)
    return "nvcc-not-found" if has_none else "unsupported-gpu-arch"


def toolkits(case: Case) -> Iterator[Diagnosis]:
    """Toolkits that are skipped, and a CUDA_HOME without one."""
    record = case.record
    variable = next((name for name in ("CUDA_HOME", "CUDA_PATH") if record.variables.get(name)), None)
    if variable and not any(t.found_by == variable for t in record.toolkits):
        seen = f"{variable} is {record.variables[variable]}, and no nvcc that runs is in its bin folder."
        why = "Builds of PyTorch extensions stop at that; flashdepot looks elsewhere."
        yield warning("nvcc-not-found", seen, why, f"unset {variable}, or set it to a toolkit's folder")
    for toolkit in record.toolkits:
        yield from _unusable(toolkit)


def _unusable(toolkit: CudaToolkit) -> Iterator[Diagnosis]:
    named = f"CUDA {toolkit.version} in {toolkit.root} (found by {toolkit.found_by})"
    if toolkit.missing:
        file = toolkit.missing[0]
        class_id = "cuda-lib-not-found-at-link" if file in _STATIC_RUNTIMES else "cuda-headers-missing"
        seen = f"{named} is not complete: it lacks {', '.join(toolkit.missing)}."
        fix = f"Install the whole of it: the package cuda-toolkit-{'-'.join(toolkit.version.text.split('.')[:2])}"
        yield warning(class_id, seen, "Nothing can be built with it; another, or the one from PyPI, is used.", fix)
    elif toolkit.version < OLDEST_CUDA:
        why = f"It is older than {OLDEST_CUDA} and cannot compile these kernels; other builds may take it and fail."
        yield note("nvcc-too-old", f"{named} is here.", why, "Put a newer one first on PATH, or remove it.")


def _lacks_architecture(toolkit: CudaToolkit, case: Case) -> Iterator[Diagnosis]:
    if toolkit.missing or toolkit.version < OLDEST_CUDA:
        return
    codes = toolkit.codes if toolkit.codes is not None else codes_of(toolkit.version)
    try:
        choose_sass(case.wanted, toolkit.version, codes)
    except MissingToolError as error:
        why = f"The one in {toolkit.root} (found by {toolkit.found_by}) is skipped for what is wanted here."
        yield note("unsupported-gpu-arch", error.message, why, error.hint)


def flags(case: Case) -> Iterator[Diagnosis]:
    """Variables that change what nvcc does, and one that people take for such."""
    variables = case.record.variables
    for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        if variables.get(name):
            why = "nvcc adds it to every compilation: units are compiled again and shared with nobody else."
            yield note("nvcc-flags", f"{name} is '{variables[name]}'.", why, f"Unless it is meant: unset {name}")
    if variables.get("NVCC_FLAGS"):
        seen = f"NVCC_FLAGS is '{variables['NVCC_FLAGS']}'."
        yield note("nvcc-flags", seen, "nvcc does not read it.", "What nvcc reads is NVCC_PREPEND_FLAGS.")


def torch_cuda(case: Case) -> Iterator[Diagnosis]:
    """A PyTorch of another CUDA major version than the toolkit's."""
    torch = case.python.torch if case.python else None
    toolkit = next((t for t in case.record.toolkits if not t.missing), None)
    if torch is None or torch.cuda is None or toolkit is None or torch.cuda.major == toolkit.version.major:
        return
    seen = f"PyTorch {torch.version} is built with CUDA {torch.cuda}, the first toolkit here is {toolkit.version}."
    why = "upstream's own build refuses that; flashdepot's library has no torch in it and is not affected."
    yield note("cuda-torch-mismatch", seen, why, "Use flashdepot get, or a toolkit of PyTorch's CUDA.")


def git(case: Case) -> Iterator[Diagnosis]:
    """No git, where a commit was asked for."""
    if case.has_program("git") is False and (case.request.upstream or "").startswith("git+"):
        seen = "There is no git on this machine."
        why = "flash-attention's source and its submodule CUTLASS are fetched with it."
        yield warning("cutlass-missing", seen, why, "Install git, or take a published version: --upstream 2.8.3.post2")


_TORCH_ARCH = re.compile(
    r"\d{1,2}\.\d[af]?(?:\+PTX)?|native|all|all-major|common"
    r"|(?:Kepler(?:\+Tesla|\+Tegra)?|Maxwell(?:\+Tegra)?|Pascal|Volta|Turing|Ampere|Ada|Hopper|Blackwell(?:\+Tegra)?)"
)
"""One entry of TORCH_CUDA_ARCH_LIST (torch/utils/cpp_extension.py, _get_cuda_arch_flags)."""

_JOB_BYTES = 7 * 10**9  # the largest unit needs 6.6 GB: benchmarks/README.md


def jobs(case: Case) -> Iterator[Diagnosis]:
    """``MAX_JOBS`` of PyTorch's extensions and of upstream's setup.py."""
    value = case.record.variables.get("MAX_JOBS")
    if value is None:
        return
    unset = "unset MAX_JOBS, or MAX_JOBS=4"
    if not value.isdecimal() or int(value) == 0:
        why = "PyTorch and ninja take that for no limit, or stop at it; flashdepot does not read it."
        yield warning("oom-killed", f"MAX_JOBS is '{value}', which is not a valid number of jobs.", why, unset)
        return
    fitting = max(1, case.record.memory // _JOB_BYTES)
    if case.record.memory and int(value) > max(fitting, case.record.cores):
        seen = f"MAX_JOBS is {value}, on {case.record.cores} cores with {case.record.memory / 1e9:.0f} GB of memory."
        why = "pip starts that many compilers of up to 7 GB each; flashdepot does not read it and measures memory."
        yield warning("oom-killed", seen, why, f"MAX_JOBS={min(fitting, case.record.cores or fitting)}")


def architectures(case: Case) -> Iterator[Diagnosis]:
    """Lists of architectures, each with a spelling of its own."""
    variables = case.record.variables
    gpu = case.usable_gpus[0].architecture if case.usable_gpus else None
    dotted, plain = (gpu.dotted, str(gpu)) if gpu else ("8.0", "80")
    for name, separator, right, example, reader in (
        ("TORCH_CUDA_ARCH_LIST", r"[;,\s]+", _TORCH_ARCH, dotted, "PyTorch's extensions stop"),
        ("FLASH_ATTN_CUDA_ARCHS", ";", re.compile(r"\d{2,3}[af]?"), plain, "upstream's setup.py builds for nothing"),
        ("CUDA_COMPUTE_CAP", r"(?!)", re.compile(r"\d{2,3}[af]?"), plain, "candle's build stops"),
    ):
        value = variables.get(name)
        if not value:
            continue
        wrong = [entry for entry in re.split(separator, value.strip()) if entry and not right.fullmatch(entry)]
        if wrong:
            seen = f"{name} is '{value}': '{wrong[0]}' is not an architecture as it spells them."
            yield warning(
                "unsupported-gpu-arch", seen, f"{reader} at that; flashdepot does not read it.", f"{name}={example}"
            )


_OF_PLACES = {
    "disk-full": ("TMPDIR", "Compilers and pip write their temporary files there, and stop."),
    "host-compiler-missing": ("CC CXX CUDAHOSTCXX NVCC_CCBIN", "Builds start it as the C++ compiler, nvcc as its host compiler, and stop."),
    "nvcc-not-found": ("CUDACXX NVCC CUDA_HOME CUDA_PATH CUDA_ROOT CUDA_TOOLKIT_ROOT_DIR CUDAToolkit_ROOT", "Builds look only there for nvcc and its toolkit, and stop."),
    "download-failed": ("PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GIT_SSL_CAINFO CARGO_HTTP_CAINFO", "What downloads reads its certificates there, and stops."),
    "build-dep-missing": ("", "What reads it stops."),
}  # fmt: skip
"""The class of failure that a variable leads to which names what is not there, and why; the last is for any other."""


def places(case: Case) -> Iterator[Diagnosis]:
    """Variables that name a program, a folder or a file that is not there."""
    for name in case.record.dangling:
        value = case.record.variables.get(name, "")
        class_id, (_, why) = next(
            (row for row in _OF_PLACES.items() if name in row[1][0].split()), list(_OF_PLACES.items())[-1]
        )
        fix = joined(["mkdir", "-p", value]) if name == "TMPDIR" else f"unset {name}, or set it to what is there"
        yield warning(class_id, f"{name} is '{value}', which is not there.", why, fix)


def two_toolkits(case: Case) -> Iterator[Diagnosis]:
    """A ``CUDA_HOME`` of one release, and the nvcc of another first on ``PATH``."""
    named = next((t for t in case.record.toolkits if t.found_by in {"CUDA_HOME", "CUDA_PATH"}), None)
    first = next((t for t in case.record.toolkits if t.found_by == "PATH"), None)
    if named is None or first is None or named.version.numbers[:2] == first.version.numbers[:2]:
        return
    seen = f"{named.found_by} is CUDA {named.version} ({named.root}), and the nvcc on PATH is {first.version}."
    why = "PyTorch's extensions take the first, CMake and cargo the second."
    yield note("cuda-torch-mismatch", seen, why, f"export PATH={shlex.quote(str(named.root))}/bin:$PATH")


def folders(case: Case) -> Iterator[Diagnosis]:
    """The limit of Windows for the length of paths."""
    if case.record.platform.system == "windows" and case.record.long_paths is False:
        seen = "Windows takes no paths of more than 260 characters here."
        why = "Source trees with their submodules have longer ones: files in them seem to be missing."
        fix = (
            "As administrator: reg add HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem /v LongPathsEnabled "
            "/t REG_DWORD /d 1 /f   For git: git config --system core.longpaths true"
        )
        yield warning("win-long-path", seen, why, fix)


def linker(case: Case) -> Iterator[Diagnosis]:
    """No compiler, so no linker either."""
    if not case.record.compilers:
        seen = "No C++ compiler was found."
        why = "C, C++ and Rust programs are all linked through one."
        windows = case.record.platform.system == "windows"
        fix = BUILD_TOOLS if windows else "Install one, for example: apt-get install g++"
        yield blocker("host-compiler-missing", seen, why, fix)


def cuda(case: Case) -> Iterator[Diagnosis]:
    """No toolkit for programs that call CUDA themselves."""
    if not any(not t.missing for t in case.record.toolkits):
        seen = "No complete CUDA toolkit was found."
        why = "The library calls the driver by itself; a program that allocates GPU memory itself needs its own."
        fix = "Where the linker says 'cannot find -lcudart': install the toolkit's cuda-cudart-dev"
        yield note("cuda-lib-not-found-at-link", seen, why, fix)


def rust(case: Case) -> Iterator[Diagnosis]:
    """Build scripts of Rust crates that ask nvidia-smi for the GPU."""
    has_tools = case.has_program("cargo") and case.has_program("nvidia-smi") is False
    if has_tools and "CUDA_COMPUTE_CAP" not in case.record.variables:
        seen = "cargo is here, nvidia-smi is not, and CUDA_COMPUTE_CAP is not set."
        why = "Build scripts of candle and others ask nvidia-smi for the compute capability, and stop without it."
        fix = f"export CUDA_COMPUTE_CAP={case.wanted[-1] if case.wanted else '90'}"
        yield warning("compute-cap-undetected", seen, why, fix)


def large_files(case: Case) -> Iterator[Diagnosis]:
    """git without its extension for large files."""
    if case.has_program("git") and case.has_program("git-lfs") is False:
        why = "Libraries that a repository keeps in LFS are three-line text files then, and linkers report confusing errors."
        fix = "Install git-lfs, then: git lfs install && git lfs pull"
        yield note("lfs-pointer", "git is here, git-lfs is not.", why, fix)


def build_systems(case: Case) -> Iterator[Diagnosis]:
    """No build system that the library has files for."""
    if case.record.programs is not None and not any(map(case.has_program, ("cmake", "pkg-config", "cargo"))):
        why = "The library comes with files for each; without them its folders are named by hand."
        fix = "Install one, or give the compiler: -I DIR/include -L DIR/lib/shared -lflashattention"
        yield note("build-system-missing", "There is no cmake, pkg-config or cargo.", why, fix)
