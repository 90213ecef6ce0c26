"""Why a compiler failed."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

from flashdepot.errors import CompileError, FlashdepotError
from flashdepot.system.disk_full import disk_full
from flashdepot.system.process import first_error

_KILLED = (-signal.SIGKILL.value, 128 + signal.SIGKILL.value) if hasattr(signal, "SIGKILL") else ()

_MEMORY_MARKS = re.compile(
    r"died due to signal 9|--error 0x89\b|out of memory|Killed signal terminated program|virtual memory exhausted"
    r"|Cannot allocate memory|std::bad_alloc"
    r"|\bC1060\b|\bC1002\b",  # cl's words for it differ by language
    re.IGNORECASE,
)


def killed_for_memory(status: int, log: str) -> bool:
    """Whether a compiler, or a phase that nvcc started, was killed by the kernel or ran out of memory by itself."""
    return status in _KILLED or _MEMORY_MARKS.search(log) is not None


def compile_error(name: str, status: int, log: str, path: Path) -> FlashdepotError:
    """The error of one compilation: its first hard error, and where the whole output is."""
    if (full := disk_full(name, "compiled", log, path.parent)) is not None:
        return full
    reason = first_error(log) or "it wrote no message"
    return CompileError(
        f"{name}: the compiler ended with status {status}: {reason}",
        hint=f"What it means, and what fixes it: flashdepot explain {shlex.quote(str(path))}",
        log=path,
    )
