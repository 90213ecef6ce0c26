"""The file name of a wheel, and what FlashAttention's publishers tell in its local version."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from flashdepot.errors import UsageError

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

        :raises UsageError: when it is not the name of a wheel; a path never is.
        """
        match = _NAME.fullmatch(name) if len(name) <= _LONGEST else None
        if match is None:
            raise UsageError(
                f"'{name[:_LONGEST]}' is not the name of a wheel.",
                hint="Expected NAME-VERSION-PYTHON-ABI-PLATFORM.whl, such as flash_attn-2.8.3-cp312-cp312-linux_x86_64.whl",
            )
        return cls(**{part: text or "" for part, text in match.groupdict().items()})

    def __str__(self) -> str:
        local = f"+{self.local}" if self.local else ""
        build = f"-{self.build}" if self.build else ""
        return f"{self.distribution}-{self.version}{local}{build}-{self.python}-{self.abi}-{self.platform}.whl"

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
        """Read a local version such as ``cu12torch2.8cxx11abiTRUE``; dates and commits beside it say nothing here.

        Where digits stand without dots, these rules separate them:

        - CUDA: the first two digits are the major version. ``cu118`` is 11.8, ``cu12`` is 12.
        - torch: the first digit is the major version, and the minor version has one digit, or two when it begins with
          a 1. ``27`` is 2.7, ``271`` is 2.7.1, ``210`` is 2.10, ``2100`` is 2.10.0, ``113`` is 1.13. Where a digit
          could belong to either (``211``), it is a patch of torch 2.1 if CUDA is older than 12.6: torch 2.1 was
          published for CUDA 11.8 and 12.1, and 2.10 and newer for 12.6 and newer.
        """
        cuda, torch, abi = _CUDA.search(local), _TORCH.search(local), _CXX11_ABI.search(local)
        dotted_cuda = _dotted_cuda(cuda[1]) if cuda else ""
        return cls(
            cuda=dotted_cuda,
            torch=_dotted_torch(torch[1], dotted_cuda) if torch else "",
            cxx11_abi=abi[1].lower() == "true" if abi else None,
        )


@lru_cache(maxsize=4096)
def canonical_name(distribution: str) -> str:
    """A distribution's name with single hyphens and in lower case (PEP 503, "Normalized Names")."""
    return _SEPARATORS.sub("-", distribution).lower()


def filename_of_url(url: str) -> str:
    """The decoded last segment of a URL's path, without query and fragment."""
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415  (reading a catalog does without)

    return unquote(urlsplit(url).path.rpartition("/")[2])


def _dotted_cuda(digits: str) -> str:
    major, minor = digits[:2], digits[2:]
    return f"{major}.{minor}" if minor else major


def _dotted_torch(text: str, cuda: str) -> str:
    if "." in text or len(text) == 1:
        return text
    major, rest = text[0], text[1:]
    two_digits = rest[0] == "1" and len(rest) > 1 and not (text[:2] == "21" and _is_older_than_12_6(cuda))
    minor, patch = (rest[:2], rest[2:]) if two_digits else (rest[:1], rest[1:])
    return ".".join(filter(None, (major, minor, patch)))


def _is_older_than_12_6(cuda: str) -> bool:
    major, _, minor = cuda.partition(".")
    return bool(minor) and (int(major), int(minor)) < (12, 6)
