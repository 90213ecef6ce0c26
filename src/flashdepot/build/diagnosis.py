"""Why a compiler failed."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path

from flashdepot.errors import CompileError, FlashdepotError, MissingToolError
from flashdepot.toolchain.probe_compile import first_error

_KILLED = (-signal.SIGKILL.value, 128 + signal.SIGKILL.value) if hasattr(signal, "SIGKILL") else ()

_MEMORY_MARKS = re.compile(
    r"died due to signal 9|--error 0x89\b|out of memory|Killed signal terminated program|virtual memory exhausted"
    r"|Cannot allocate memory|std::bad_alloc"
    r"|\bC1060\b|\bC1002\b",  # cl's words for it differ by language
    re.IGNORECASE,
)

_LITTLE_SPACE = 10**9
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|\bLNK1180\b")
_BUS_ERROR = re.compile(r"Bus error|signal 7\b")


def killed_for_memory(status: int, log: str) -> bool:
    """Whether a compiler, or a phase that nvcc started, was killed by the kernel or ran out of memory by itself."""
    return status in _KILLED or _MEMORY_MARKS.search(log) is not None


def disk_full(name: str, made: str, log: str, folder: Path) -> MissingToolError | None:
    """The error of a compiler or linker that had no space to write; ``None`` when that was not it.

    :param made: what was being done to it: compiled, linked.
    """
    free = shutil.disk_usage(folder).free
    # A full disk takes the message of it as well, and ends a linker that writes into mapped memory by a signal.
    cut_short = not log.strip() or _BUS_ERROR.search(log) is not None
    if not (_NO_SPACE.search(log) or (cut_short and free < _LITTLE_SPACE)):
        return None
    return MissingToolError(
        f"{name}: the disk that holds {folder} filled up while it was {made} ({free / 1e6:.0f} MB are free now); "
        "compilers need up to 1 GB for their temporary files.",
        hint="Free space there, or use another disk: --depot DIR. What was finished is kept.",
    )


def compile_error(name: str, status: int, log: str, path: Path) -> FlashdepotError:
    """The error of one compilation: its first hard error, and where the whole output is."""
    if (full := disk_full(name, "compiled", log, path.parent)) is not None:
        return full
    reason = first_error(log) or "it wrote no message"
    return CompileError(
        f"{name}: the compiler ended with status {status}: {reason}",
        hint=f"What it means, and what mends it: flashdepot explain {path}",
        log=path,
    )
