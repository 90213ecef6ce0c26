"""What stops builds on Windows."""

from __future__ import annotations

from collections.abc import Iterator

from flashdepot.build.windows_paths import path_problems
from flashdepot.doctor.case import Case
from flashdepot.doctor.finding import Finding, blocker, note, warning
from flashdepot.errors import MissingToolError
from flashdepot.facts.compilers import needs_conforming_preprocessor
from flashdepot.toolchain.msvc_environment import require_usable

_NO_BUILD = "Nothing can be compiled before that is fixed."


def compilers(case: Case) -> Iterator[Finding]:
    """A prompt that cannot compile, and what other builds than ours must be told."""
    record = case.record
    if record.platform.system != "windows":
        return
    try:
        require_usable(record.variables)
    except MissingToolError as error:
        yield Finding.of(error, "msvc-env-missing", _NO_BUILD)
    msvc = [c for c in record.compilers if c.kind == "cl"]
    if msvc and "VSCMD_ARG_TGT_ARCH" not in record.variables:
        seen = f"cl {msvc[0].version} is installed, and its environment is not loaded in this shell."
        why = "flashdepot loads it by itself; other builds find neither cl nor the headers of Windows."
        mend = 'For those: the "x64 Native Tools Command Prompt", or call vcvars64.bat first'
        yield note("msvc-env-missing", seen, why, mend)
    needing = [t for t in record.toolkits if needs_conforming_preprocessor(t.version)]
    if needing:
        seen = f"CUDA {needing[0].version} is here."
        why = "Its headers want the conforming preprocessor of cl; flashdepot asks for it, other builds may not."
        yield note("msvc-preprocessor", seen, why, "For those: set NVCC_PREPEND_FLAGS=-Xcompiler /Zc:preprocessor")


def folders(case: Case) -> Iterator[Finding]:
    """Folders that the compilers cannot use, and the limit for all others."""
    record = case.record
    if record.platform.system != "windows":
        return
    places = {disk.use: disk.path for disk in record.disks if disk.use in {"depot", "temp"}}
    for problem in path_problems(places):
        yield blocker(problem.class_id, problem.seen, problem.why, problem.mend)
    if record.long_paths is False:
        seen = "Windows takes no paths of more than 260 characters here."
        why = "Source trees with their submodules have longer ones: files of them seem not to be there."
        mend = (
            "As administrator: reg add HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem /v LongPathsEnabled "
            "/t REG_DWORD /d 1 /f & git config --system core.longpaths true"
        )
        yield warning("win-long-path", seen, why, mend)
