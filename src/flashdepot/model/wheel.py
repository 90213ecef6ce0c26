"""Names, versions and tags of wheels (PEP 425, 427, 440, 600, 656 and 703)."""

from __future__ import annotations

import math
import re
from functools import cache, lru_cache
from typing import Any

import msgspec

from flashdepot.errors import UsageError
from flashdepot.model.codec import Spelled
from flashdepot.model.target import Platform, Version

FLASH_ATTN = "flash-attn"
OURS = "ours"
"""The source of the wheels that flashdepot makes. They link neither torch nor CUDA's runtime library."""

INDEX = "index:"
"""What the source of a wheel begins with that is in our index; the index's address follows."""

OFFICIAL = "official"
"""The collection of upstream's own releases."""

COMMUNITY = "community"
"""All collections of others; a single one is ``community:NAME``."""

DEFAULT_SOURCES = frozenset({OURS, OFFICIAL})


def is_ours(source: str) -> bool:
    """Whether wheels of a source link neither torch nor CUDA's runtime, or are built for those that are there."""
    return source == OURS or source.startswith(INDEX)


_VERSION_IN_NAMES = re.compile(
    r"(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)(?:(?P<pre>a|b|rc)(?P<pre_number>\d+))?(?:\.post(?P<post>\d+))?"
    r"(?:\.dev(?P<dev>\d+))?(?:\+[a-z0-9.]+)?",
    re.ASCII,
)
"""A version in its normal form (PEP 440), as file names of wheels have it."""


@cache
def version_key(version: str) -> tuple[Any, ...]:
    """For comparing; what is not a version (PEP 440) comes before all that are. Local versions do not count.

    packaging's ``Version`` orders them the same way, and takes as long to import as a decision takes.
    """
    match = _VERSION_IN_NAMES.fullmatch(version)
    if match is None:
        return (-1,)
    release = numbers_of(match["release"])
    while release[1:] and not release[-1]:
        release = release[:-1]
    post, dev = (int(match[part]) if match[part] else None for part in ("post", "dev"))
    if match["pre"]:
        stage = (match["pre"], int(match["pre_number"]))
    else:
        stage = ("", 0) if dev is not None and post is None else ("z", 0)
    return (int(match["epoch"] or 0), release, stage, -1 if post is None else post, math.inf if dev is None else dev)


def numbers_of(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: 2, 8 and 3 of ``2.8.3.post1``; none of what is not a version."""
    match = re.match(r"\d+(?:\.\d+)*", version, re.ASCII)
    return tuple(map(int, match[0].split("."))) if match else ()


_TAGS = r"[a-z0-9_]+(?:\.[a-z0-9_]+)*"
_NAME = re.compile(
    r"(?P<distribution>[A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?)"
    r"-(?P<version>(?:\d+!)?\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?)"
    r"(?:\+(?P<local>[A-Za-z0-9]+(?:[._][A-Za-z0-9]+)*))?"
    r"(?:-(?P<build>\d[A-Za-z0-9_.]*))?"
    rf"-(?P<python>{_TAGS})-(?P<abi>{_TAGS})-(?P<platform>{_TAGS})\.whl",
    re.ASCII,
)
_CUDA = re.compile(r"(?<![A-Za-z])cu(\d{2,4})(?!\d)", re.ASCII)
_TORCH = re.compile(r"torch(\d+(?:\.\d+){0,2})", re.ASCII)
_CXX11_ABI = re.compile(r"cxx11abi(true|false)", re.IGNORECASE)
_SEPARATORS = re.compile(r"[-_.]+")
_LONGEST = 255
"""No file system keeps a longer name."""


class WheelName(msgspec.Struct, frozen=True):
    """The parts of a wheel's file name, as spelled there; ``str()`` gives the name back.

    ``local`` is the local version without its plus sign, ``build`` the build tag; either is empty where there is none.

    Typical usage::

        name = WheelName.parse("flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl")
        name.built_for.torch  # "2.8"
    """

    distribution: str
    version: str
    local: str
    build: str
    python: str
    abi: str
    platform: str

    @classmethod
    def parse(cls, name: str) -> WheelName:
        """Read a file name; :func:`filename_of_url` takes it out of a URL.

        The grammar is that of the wheel format ("File name convention" in the binary distribution format of the Python
        packaging guide, PEP 427), with versions in their normal form (PEP 440) and tags in lower case (PEP 425).
        """
        match = _NAME.fullmatch(name) if len(name) <= _LONGEST else None
        if match is None:
            raise UsageError(
                f"'{name[:_LONGEST]}' is not the name of a wheel.",
                hint="Expected NAME-VERSION-PYTHON-ABI-PLATFORM.whl, such as flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl",
            )
        return cls(**{part: text or "" for part, text in match.groupdict().items()})

    def __str__(self) -> str:
        build = f"-{self.build}" if self.build else ""
        return f"{self.distribution}-{self.full_version}{build}-{self.python}-{self.abi}-{self.platform}.whl"

    @property
    def full_version(self) -> str:
        """The version with the local one."""
        return f"{self.version}+{self.local}" if self.local else self.version

    @property
    def canonical(self) -> str:
        """The distribution as an index spells it (PEP 503): ``flash-attn``."""
        return canonical_name(self.distribution)

    @property
    def built_for(self) -> BuiltFor:
        """What the local version tells."""
        return BuiltFor.parse(self.local)


class BuiltFor(msgspec.Struct, frozen=True):
    """What a wheel was built for, as far as its local version tells.

    ``cuda`` and ``torch`` are dotted and empty where nothing is said; ``cxx11_abi`` is ``None`` then.
    """

    cuda: str
    torch: str
    cxx11_abi: bool | None

    @classmethod
    @lru_cache(maxsize=4096)
    def parse(cls, local: str) -> BuiltFor:
        """Read a local version such as ``cu12torch2.8cxx11abiTRUE``; dates and commits next to it say nothing here.

        Where digits stand without dots, these rules separate them:

        - CUDA: the first two digits are the major version. ``cu118`` is 11.8, ``cu12`` is 12.
        - torch: the first digit is the major version, and the minor version has one digit, or two when it begins with
          a 1. ``27`` is 2.7, ``271`` is 2.7.1, ``210`` is 2.10, ``2100`` is 2.10.0, ``113`` is 1.13. Where a digit
          could belong to either (``211``), it is a patch of torch 2.1 if CUDA is older than 12.6: torch 2.1 was
          published for CUDA 11.8 and 12.1, and 2.10 and newer for 12.6 and newer.
        """
        cuda, torch, abi = _CUDA.search(local), _TORCH.search(local), _CXX11_ABI.search(local)
        dotted_cuda = ".".join(filter(None, (cuda[1][:2], cuda[1][2:]))) if cuda else ""
        return cls(
            cuda=dotted_cuda,
            torch=_dotted_torch(torch[1], dotted_cuda) if torch else "",
            cxx11_abi=abi[1].lower() == "true" if abi else None,
        )


@lru_cache(maxsize=4096)
def canonical_name(distribution: str) -> str:
    """A distribution's name with single hyphens and in lower case (PEP 503, "Normalized Names")."""
    return _SEPARATORS.sub("-", distribution).lower()


def in_record(digest: bytes) -> str:
    """The digest of a file as RECORD has it, behind the algorithm's name and "=" (PEP 376 and 427)."""
    import base64  # noqa: PLC0415  (a depot hit reads names of wheels, and no RECORD)

    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def filename_of_url(url: str) -> str:
    """The decoded last segment of a URL's path, without query and fragment."""
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415  (reading a catalog does without)

    return unquote(urlsplit(url).path.rpartition("/")[2])


def _dotted_torch(text: str, cuda: str) -> str:
    if "." in text or len(text) == 1:
        return text
    major, rest = text[0], text[1:]
    two_digits = (
        rest[0] == "1" and len(rest) > 1 and not (text[:2] == "21" and "." in cuda and Version(cuda) < Version("12.6"))
    )
    minor, patch = (rest[:2], rest[2:]) if two_digits else (rest[:1], rest[1:])
    return ".".join(filter(None, (major, minor, patch)))


_SPELLING = r"(cp|pp)(\d)(\d{1,2})(t?)"
_VERSION = r"(?:python)?(\d)\.(\d{1,2})(t?)"
_KINDS = {"cp": "cpython", "pp": "pypy"}
_OLD_FLOORS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}  # PEP 600, "Legacy"
_WINDOWS = {"x86_64": "win_amd64", "aarch64": "win_arm64"}


class Interpreter(Spelled):
    """A Python as far as tags go; ``implementation`` is ``cpython``, ``pypy`` or another's name."""

    __slots__ = ("implementation", "version", "free_threaded")  # noqa: RUF023  (in the order in which they compare)

    def __init__(self, implementation: str, version: tuple[int, int], free_threaded: bool = False) -> None:
        self.implementation, self.version, self.free_threaded = implementation, version, free_threaded

    @classmethod
    def parse(cls, text: str) -> Interpreter:
        """Read ``cp312``, ``cp313t`` or ``pp310``; :raises UsageError: for anything else."""
        match = re.fullmatch(_SPELLING, text.strip().lower())
        if match is None:
            version = re.fullmatch(r"(?:py|python)?3\.?(\d+)(?:\.\d+)?", text.strip().lower())
            raise UsageError(
                f"'{text}' is not an interpreter's tag: expected one such as cp312, or cp313t for a free-threaded one.",
                hint="'flashdepot host --python PY' shows that of an interpreter.",
                meant=(text, f"cp3{version[1]}" if version else ""),
            )
        return cls(_KINDS[match[1]], (int(match[2]), int(match[3])), match[4] == "t")

    @classmethod
    def named(cls, text: str) -> Interpreter:
        """What a person names: a tag, or a version of CPython such as ``3.12`` or ``3.13t``."""
        version = re.fullmatch(_VERSION, text.strip().lower())
        return cls.parse(f"cp{version[1]}{version[2]}{version[3]}" if version else text)

    @property
    def label(self) -> str:
        """``Python 3.11``, ``PyPy 3.10``, ``Python 3.13, free-threaded``."""
        name = {"cpython": "Python", "pypy": "PyPy"}.get(self.implementation, self.implementation)
        return f"{name} {self.version[0]}.{self.version[1]}{', free-threaded' if self.free_threaded else ''}"

    def __str__(self) -> str:
        kind = {name: tag for tag, name in _KINDS.items()}.get(self.implementation, self.implementation)
        return f"{kind}{self.version[0]}{self.version[1]}{'t' if self.free_threaded else ''}"


def python_fits(python_tag: str, abi_tag: str, python: Interpreter) -> bool:
    """Whether an interpreter takes a wheel of one Python tag and one ABI tag.

    The ABI of a PyPy is not known (``pypy310_pp73``): any counts as it.
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
    """Operating system and CPU of a platform tag; ``None`` for ``any`` and for what is not a tag of these systems."""
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


OLDEST_PYTHON = Version("3.9")
"""``python_requires`` of upstream's setup.py, and ``Requires-Python`` of the wheels that flashdepot makes."""

OLDEST_TORCH = Version("2.2")
"""The oldest that has all that upstream's Python files and our runtime use."""

IMPORTED = ("torch", "einops")
"""The distributions that ``import flash_attn`` needs: upstream's ``install_requires``."""
