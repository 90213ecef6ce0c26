"""CUDA toolkits, host compilers, and what steers them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flashdepot.doctor.case import Case
from flashdepot.doctor.finding import Finding, note, warning
from flashdepot.errors import FlashdepotError, IncompatibleError, MissingToolError
from flashdepot.facts.gpus import codes_of
from flashdepot.model.host import CudaToolkit
from flashdepot.model.library_names import LINUX, WINDOWS
from flashdepot.model.library_request import AnyCuda
from flashdepot.model.target import Version
from flashdepot.toolchain.architectures import choose_sass
from flashdepot.toolchain.choose import OLDEST_CUDA, asks_machine, foresee_toolchain
from flashdepot.toolchain.wheels import provides

_STATIC_RUNTIMES = frozenset({LINUX.cuda_runtime, WINDOWS.cuda_runtime})


def choice(case: Case) -> Iterator[Finding]:
    """What choosing the toolchain would raise, in the same words; else what it would pass over."""
    cuda = case.request.cuda or AnyCuda.AUTO
    if not case.wanted or isinstance(cuda, Path):
        return
    record = case.record
    try:
        foresee_toolchain(cuda, record, case.wanted, driver=record.driver)
    except (MissingToolError, IncompatibleError) as error:
        yield Finding.of(error, _class_of(error, case), "Nothing can be compiled before that is fixed.")
        return
    if asks_machine(cuda, record.platform, record.driver):
        for toolkit in record.toolkits:
            yield from _lacks_architecture(toolkit, case)


def _class_of(error: FlashdepotError, case: Case) -> str:
    record = case.record
    if isinstance(error, IncompatibleError):
        return "driver-too-old"
    if (
        record.platform.system == "windows"
        or not provides(record.platform)
        or case.request.cuda not in {None, AnyCuda.AUTO}
    ):
        return "nvcc-not-found"
    return "unsupported-gpu-arch"


def toolkits(case: Case) -> Iterator[Finding]:
    """Toolkits that are passed over, and a CUDA_HOME without one."""
    record = case.record
    variable = next((name for name in ("CUDA_HOME", "CUDA_PATH") if record.variables.get(name)), None)
    if variable and not any(t.found_by == variable for t in record.toolkits):
        seen = f"{variable} is {record.variables[variable]}, and no nvcc that runs is in its bin folder."
        why = "Builds of PyTorch extensions stop at that; flashdepot looks elsewhere."
        yield warning("nvcc-not-found", seen, why, f"unset {variable}, or set it to a toolkit's folder")
    for toolkit in record.toolkits:
        yield from _unusable(toolkit)


def _unusable(toolkit: CudaToolkit) -> Iterator[Finding]:
    named = f"CUDA {toolkit.version} in {toolkit.root} (found by {toolkit.found_by})"
    if toolkit.missing:
        file = toolkit.missing[0]
        class_id = "cuda-lib-not-found-at-link" if file in _STATIC_RUNTIMES else "cuda-headers-missing"
        seen = f"{named} is not complete: it lacks {', '.join(toolkit.missing)}."
        why = "Nothing can be built with it; another, or the one from PyPI, is used."
        yield warning(
            class_id, seen, why, f"Install the whole of it: the package cuda-toolkit-{_dashed(toolkit.version)}"
        )
    elif toolkit.version < OLDEST_CUDA:
        why = f"It is older than {OLDEST_CUDA} and cannot compile these kernels; other builds may take it and fail."
        yield note("nvcc-too-old", f"{named} is here.", why, "Put a newer one first on PATH, or remove it.")


def _lacks_architecture(toolkit: CudaToolkit, case: Case) -> Iterator[Finding]:
    if toolkit.missing or toolkit.version < OLDEST_CUDA:
        return
    codes = toolkit.codes if toolkit.codes is not None else codes_of(toolkit.version)
    try:
        choose_sass(case.wanted, toolkit.version, codes)
    except MissingToolError as error:
        why = f"The one in {toolkit.root} (found by {toolkit.found_by}) is passed over for what is wanted here."
        yield note("unsupported-gpu-arch", error.message, why, error.hint)


def _dashed(version: Version) -> str:
    return "-".join(version.text.split(".")[:2])


def flags(case: Case) -> Iterator[Finding]:
    """Variables that change what nvcc does, and one that people take for such."""
    variables = case.record.variables
    for name in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        if variables.get(name):
            why = "nvcc adds it to every compilation: units are compiled again and shared with nobody else."
            yield note("nvcc-flags", f"{name} is '{variables[name]}'.", why, f"Unless it is meant: unset {name}")
    if variables.get("NVCC_FLAGS"):
        seen = f"NVCC_FLAGS is '{variables['NVCC_FLAGS']}'."
        yield note("nvcc-flags", seen, "nvcc does not read it.", "What nvcc reads is NVCC_PREPEND_FLAGS.")


def torch_cuda(case: Case) -> Iterator[Finding]:
    """A PyTorch of another CUDA major version than the toolkit's."""
    torch = case.python.torch if case.python else None
    toolkit = next((t for t in case.record.toolkits if not t.missing), None)
    if torch is None or torch.cuda is None or toolkit is None or torch.cuda.major == toolkit.version.major:
        return
    seen = f"PyTorch {torch.version} is built with CUDA {torch.cuda}, the first toolkit here is {toolkit.version}."
    why = "upstream's own build refuses that; flashdepot's library has no torch in it and is not concerned."
    yield note("cuda-torch-mismatch", seen, why, "Use flashdepot get, or a toolkit of PyTorch's CUDA.")


def git(case: Case) -> Iterator[Finding]:
    """No git, where a commit was asked for."""
    if case.has_program("git") is False and (case.request.upstream or "").startswith("git+"):
        seen = "There is no git on this machine."
        why = "flash-attention's source and its submodule CUTLASS are fetched with it."
        yield warning("cutlass-missing", seen, why, "Install git, or take a published version: --upstream 2.8.3.post2")
