"""Environments and files for the checks: a machine, a Python, a torch made of libraries that gcc wrote."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from flashdepot.diagnose.check.judge import Evidence
from flashdepot.diagnose.check.place import Place, TabledTorch, TorchSymbols
from flashdepot.diagnose.check.run import Report
from flashdepot.model.environment import Torch
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.resolve.facts import facts_of
from support import forge
from support.toolkits import make_python
from support.tools import run_program

SET_DEVICE_2_3 = "_ZN3c104cuda9SetDeviceEa"
SET_DEVICE_2_8 = "_ZN3c104cuda9SetDeviceEab"
ERROR_OLD_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationESs"
ERROR_NEW_ABI = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


def machine(
    platform: str = "linux-x86_64",
    libc: str | None = "2.36",
    *,
    libc_name: str | None = None,
    driver: str | None = None,
    cxx: tuple[str, str] | None = None,
) -> HostRecord:
    found = Version(libc) if libc else None
    served = Version(driver) if driver else None
    record = HostRecord(Platform.parse(platform), "a machine", found, 0, 0, served, (), (), (), libc_name=libc_name)
    return replace(record, libstdcxx=Version(cxx[0]), cxxabi=Version(cxx[1])) if cxx else record


def place(
    *gpus: str,
    host: HostRecord | None = None,
    torch: TorchSymbols | str | None = None,
    python: tuple[int, int] | None = None,
    is_here: bool = True,
) -> Place:
    facts = make_python(python[1]) if python else None
    side = TabledTorch(Torch.parse(torch), "x86_64") if isinstance(torch, str) else torch
    host = replace(host or machine(), python=facts)
    known = replace(facts_of(host), gpus=tuple(Architecture.parse(gpu) for gpu in gpus))
    return Place(host, facts, side, is_here, known)


def extension(folder: Path, *symbols: str, name: str = "_C.so", gpu: bytes = b"") -> Path:
    """An extension module that takes those symbols from torch."""
    source = "".join(f"extern void {symbol}(void);" for symbol in symbols)
    source += f"void init(void) {{ {''.join(f'{symbol}();' for symbol in symbols)} }}"
    if gpu:
        return forge.library_with_gpu_code(folder, gpu, name=name, source=source)
    return forge.shared_library(folder, source, name=name)


def environment_with_torch(folder: Path, *symbols: str, version: str = "2.8.0+cu128", cuda: str = "'12.8'") -> Path:
    """A virtual environment whose torch has those symbols and would end the process if it were imported."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    program = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ask = [str(program), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    site = Path(run_program(ask).strip())
    (site / "torch" / "lib").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("raise SystemExit('torch was imported')\n")
    text = f"from typing import Optional\n__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n"
    (site / "torch" / "version.py").write_text(text)
    source = "".join(f"void {symbol}(void) {{}}" for symbol in symbols)
    forge.shared_library(site / "torch" / "lib", source, name="libc10.so")
    return program


def lines(report: Report, topic: str) -> list[Evidence]:
    return [line for line in report.evidence if line.topic == topic]


def needing(soname: str, *flags: str, takes: str = "", name: str = "_C.so") -> Callable[[Path], Path]:
    """A library that needs another one, and a symbol of torch if it is said."""

    def make(folder: Path) -> Path:
        forge.shared_library(folder, "void deep(void) {}", f"-Wl,-soname,{soname}", name="libdeep.so")
        source = f"void deep(void); {f'void {takes}(void);' if takes else ''}"
        source += f"void f(void) {{ deep(); {f'{takes}();' if takes else ''} }}"
        return forge.shared_library(folder, source, *flags, f"-L{folder}", "-ldeep", name=name)

    return make
