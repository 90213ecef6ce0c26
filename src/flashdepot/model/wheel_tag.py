"""Tags of wheels, and what takes them (PEP 425, 600, 656 and 703)."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from flashdepot.errors import UsageError
from flashdepot.model.target import Platform, Version

_SPELLING = r"(cp|pp)(\d)(\d{1,2})(t?)"
_VERSION = r"(?:python)?(\d)\.(\d{1,2})(t?)"
_KINDS = {"cp": "cpython", "pp": "pypy"}
_OLD_FLOORS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}  # PEP 600, "Legacy"
_WINDOWS = {"x86_64": "win_amd64", "aarch64": "win_arm64"}


class Interpreter(msgspec.Struct, frozen=True):
    """A Python as far as tags go; ``implementation`` is ``cpython``, ``pypy`` or another's name."""

    implementation: str
    version: tuple[int, int]
    free_threaded: bool = False

    @classmethod
    def parse(cls, text: str) -> Interpreter:
        """Read ``cp312``, ``cp313t`` or ``pp310``; :raises UsageError: for anything else."""
        match = re.fullmatch(_SPELLING, text.strip().lower())
        if match is None:
            raise UsageError(
                f"'{text}' is not an interpreter's tag: expected one such as cp312, or cp313t for a free-threaded one.",
                hint="'flashdepot host --python PY' shows that of an interpreter.",
            )
        return cls(_KINDS[match[1]], (int(match[2]), int(match[3])), match[4] == "t")

    @classmethod
    def named(cls, text: str) -> Interpreter:
        """What a person names: a tag, or a version of CPython such as ``3.12`` or ``3.13t``; raises as :meth:`parse`."""
        version = re.fullmatch(_VERSION, text.strip().lower())
        return cls.parse(f"cp{version[1]}{version[2]}{version[3]}" if version else text)

    def __str__(self) -> str:
        kind = {name: tag for tag, name in _KINDS.items()}.get(self.implementation, self.implementation)
        return f"{kind}{self.version[0]}{self.version[1]}{'t' if self.free_threaded else ''}"


def python_fits(python_tag: str, abi_tag: str, python: Interpreter) -> bool:
    """Whether an interpreter takes a wheel of one Python tag and one ABI tag.

    Of a PyPy nobody has told its own ABI (``pypy310_pp73``): any counts as it.
    """
    taken = _taken(python)
    return (python_tag, abi_tag) in taken or (python_tag, "") in taken


@cache
def _taken(python: Interpreter) -> frozenset[tuple[str, str]]:
    """All pairs of Python tag and ABI tag that an interpreter takes; an ABI that is empty stands for any.

    They are those of ``packaging.tags``, which takes as long to import as a decision takes; a test compares them.
    """
    own, (major, minor) = str(python), python.version
    pairs = {(own, "none"), (f"py{major}", "none"), *((f"py{major}{older}", "none") for older in range(minor + 1))}
    if python.implementation != "cpython":
        return frozenset({*pairs, (own, "")})
    plain, stable = f"cp{major}{minor}", "abi3t" if python.free_threaded else "abi3"
    pairs |= {(plain, own), (plain, "none"), *((f"cp{major}{older}", stable) for older in range(2, minor + 1))}
    return frozenset(pairs)


def platform_of(tag: str) -> Platform | None:
    """Operating system and CPU of a platform tag; ``None`` for ``any`` and for what is no tag of these systems."""
    if machine := next((m for m, name in _WINDOWS.items() if name == tag), None):
        return Platform("windows", machine)
    if match := re.fullmatch(r"macosx_\d+_\d+_(\w+)", tag):
        return Platform("darwin", match[1])
    match = re.fullmatch(r"(?:many|musl)?linux\w*?_(x86_64|aarch64|i686|armv7l|ppc64le|s390x|riscv64)", tag)
    return Platform("linux", match[1]) if match else None


def platform_tag(platform: Platform, glibc: Version | None) -> str:
    """The platform tag of a wheel that needs a GNU C library: ``manylinux_2_35_x86_64`` (PEP 600).

    Where the floor has an older name as well, both: ``manylinux_2_17_x86_64.manylinux2014_x86_64``, which pip older than
    20.3 takes.
    """
    if platform.system == "windows":
        return _WINDOWS.get(platform.machine, "win32")
    if glibc is None:
        return f"{platform.system}_{platform.machine}"
    major, minor, *_ = (*glibc.numbers, 0)
    legacy = [name for name, floor in _OLD_FLOORS.items() if Version(floor) == glibc]
    return ".".join(f"{name}_{platform.machine}" for name in (f"manylinux_{major}_{minor}", *legacy))


def glibc_floor(tag: str) -> Version | None:
    """The GNU C library that a ``manylinux`` tag promises to run on; ``None`` for a tag that promises none."""
    if match := re.match(r"manylinux_(\d+)_(\d+)_", tag):
        return Version(f"{match[1]}.{match[2]}")
    floor = _OLD_FLOORS.get(tag.partition("_")[0])
    return Version(floor) if floor else None


def platform_fits(tag: str, platform: Platform, glibc: Version | None, *, musl: bool = False) -> bool:
    """Whether a machine takes a wheel of one platform tag, as installers judge.

    :param glibc: the GNU C library's version, ``None`` where the C library is another.
    :param musl: the C library is musl, of any version: no host record has it.
    """
    if tag == "any":
        return True
    if platform_of(tag) != platform:
        return False
    if platform.system == "windows" or tag == f"linux_{platform.machine}":
        return True
    if tag.startswith("musllinux_"):
        return musl
    floor = glibc_floor(tag)
    return floor is not None and glibc is not None and floor <= glibc
