"""What stops builds of others on Windows."""

from __future__ import annotations

from collections.abc import Iterator

from flashdepot.doctor.case import Case
from flashdepot.doctor.finding import Finding, note, warning
from flashdepot.facts.compilers import needs_conforming_preprocessor


def compilers(case: Case) -> Iterator[Finding]:
    """What other builds than ours must be told."""
    record = case.record
    if record.platform.system != "windows":
        return
    msvc = [c for c in record.compilers if c.kind == "cl"]
    if msvc and "VSCMD_ARG_TGT_ARCH" not in record.variables:
        seen = f"cl {msvc[0].version} is installed, and its environment is not loaded in this shell."
        why = "Builds of extensions by pip find neither cl nor the headers of Windows."
        mend = 'For those: the "x64 Native Tools Command Prompt", or call vcvars64.bat first'
        yield note("msvc-env-missing", seen, why, mend)
    needing = [t for t in record.toolkits if needs_conforming_preprocessor(t.version)]
    if needing:
        seen = f"CUDA {needing[0].version} is here."
        why = "Its headers want the conforming preprocessor of cl, and few builds ask for it."
        yield note("msvc-preprocessor", seen, why, "For those: set NVCC_PREPEND_FLAGS=-Xcompiler /Zc:preprocessor")


def folders(case: Case) -> Iterator[Finding]:
    """The limit of Windows for the length of paths."""
    record = case.record
    if record.platform.system != "windows":
        return
    if record.long_paths is False:
        seen = "Windows takes no paths of more than 260 characters here."
        why = "Source trees with their submodules have longer ones: files of them seem not to be there."
        mend = (
            "As administrator: reg add HKLM\\SYSTEM\\CurrentControlSet\\Control\\FileSystem /v LongPathsEnabled "
            "/t REG_DWORD /d 1 /f & git config --system core.longpaths true"
        )
        yield warning("win-long-path", seen, why, mend)
