"""What an ELF shared library exports and needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flashdepot.errors import IntegrityError
from flashdepot.model.target import Version


@dataclass(frozen=True)
class SharedLibrary:
    """``exported`` symbols without their version, ``needed`` sonames, and the newest ``GLIBC_*`` version it asks for."""

    soname: str
    exported: frozenset[str]
    needed: frozenset[str]
    libc_floor: Version | None


def read_shared_library(path: Path) -> SharedLibrary:
    """Read a shared library without loading it.

    :raises IntegrityError: when the file is no ELF.
    """
    import lief  # noqa: PLC0415  (half a second to import)

    lief.logging.disable()
    binary = lief.ELF.parse(str(path))
    if binary is None:
        raise IntegrityError(f"{path} is not an ELF file.")
    names = [
        str(requirement.name)
        for needed in binary.symbols_version_requirement
        for requirement in needed.get_auxiliary_symbols()
    ]
    needs = [name.removeprefix("GLIBC_") for name in names if name.startswith("GLIBC_") and name != "GLIBC_PRIVATE"]
    soname = next((e.name for e in binary.dynamic_entries if isinstance(e, lief.ELF.DynamicSharedObject)), "")
    return SharedLibrary(
        soname=str(soname),
        exported=frozenset(str(symbol.name) for symbol in binary.exported_symbols),
        needed=frozenset(str(name) for name in binary.libraries),
        libc_floor=max((Version.parse(n) for n in needs), default=None),
    )
