"""Environment variables that steer builds: values that their readers ignore, refuse or take for something else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from flashdepot.doctor.case import Case
from flashdepot.doctor.finding import Finding, note, warning

_TORCH_ARCH = re.compile(
    r"\d{1,2}\.\d[af]?(?:\+PTX)?|native|all|all-major|common"
    r"|(?:Kepler(?:\+Tesla|\+Tegra)?|Maxwell(?:\+Tegra)?|Pascal|Volta|Turing|Ampere|Ada|Hopper|Blackwell(?:\+Tegra)?)"
)
"""One entry of TORCH_CUDA_ARCH_LIST (torch/utils/cpp_extension.py, _get_cuda_arch_flags)."""

_JOB_BYTES = 7 * 10**9  # the largest unit needs 6.6 GB: benchmarks/README.md


def jobs(case: Case) -> Iterator[Finding]:
    """``MAX_JOBS`` of PyTorch's extensions and of upstream's setup.py."""
    value = case.record.variables.get("MAX_JOBS")
    if value is None:
        return
    unset = "unset MAX_JOBS, or MAX_JOBS=4"
    if not value.isdecimal() or int(value) == 0:
        why = "PyTorch and ninja take that for no limit, or stop at it; flashdepot does not read it."
        yield warning("oom-killed", f"MAX_JOBS is '{value}', which is no number of jobs.", why, unset)
        return
    fitting = max(1, case.record.memory // _JOB_BYTES)
    if case.record.memory and int(value) > max(fitting, case.record.cores):
        seen = f"MAX_JOBS is {value}, on {case.record.cores} cores with {case.record.memory / 1e9:.0f} GB of memory."
        why = "pip starts that many compilers of up to 7 GB each; flashdepot does not read it and measures memory."
        yield warning("oom-killed", seen, why, f"MAX_JOBS={min(fitting, case.record.cores or fitting)}")


def architectures(case: Case) -> Iterator[Finding]:
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
            seen = f"{name} is '{value}': '{wrong[0]}' is no architecture as it spells them."
            yield warning(
                "unsupported-gpu-arch", seen, f"{reader} at that; flashdepot does not read it.", f"{name}={example}"
            )


def places(case: Case) -> Iterator[Finding]:
    """Variables that name a program or a folder that is not there."""
    for name in case.record.dangling:
        value = case.record.variables.get(name, "")
        classes = {"TMPDIR": "disk-full"}
        why = {
            "TMPDIR": "Compilers and pip write their temporary files there, and stop.",
            "CXX": "CMake, PyTorch's extensions and cargo start it as the C++ compiler, and stop.",
            "NVCC_CCBIN": "nvcc starts it as its host compiler, and stops.",
        }[name]
        mend = f"mkdir -p {value}" if name == "TMPDIR" else f"unset {name}, or set it to a compiler that is there"
        yield warning(
            classes.get(name, "host-compiler-missing"), f"{name} is '{value}', which is not there.", why, mend
        )


def two_toolkits(case: Case) -> Iterator[Finding]:
    """A ``CUDA_HOME`` of one release, and the nvcc of another first on ``PATH``."""
    named = next((t for t in case.record.toolkits if t.found_by in {"CUDA_HOME", "CUDA_PATH"}), None)
    first = next((t for t in case.record.toolkits if t.found_by == "PATH"), None)
    if named is None or first is None or named.version.numbers[:2] == first.version.numbers[:2]:
        return
    seen = f"{named.found_by} is CUDA {named.version} ({named.root}), and the nvcc on PATH is {first.version}."
    why = "PyTorch's extensions take the first, CMake and cargo the second."
    yield note("cuda-torch-mismatch", seen, why, f"export PATH={shlex.quote(str(named.root))}/bin:$PATH")
