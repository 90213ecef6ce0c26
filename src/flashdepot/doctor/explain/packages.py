"""Which package a line of a log is about, and how that one is built anew."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from flashdepot.doctor.explain.pattern import Found, Pattern
from flashdepot.system.toml import read_toml

_MODULE_FILE = Pattern.parse(
    r"(?:(?:site|dist)-packages[\\/](?P<folder>\w+?)(?:-[\d.]\S*?\.egg)?[\\/][^\s'\"]*?)?"
    r"(?P<module>\w+?)(?:\.cpython-\w+[\w-]*|\.abi3|\.cp\d+-win\w+)?\.(?:so|pyd|dll)\b"
)
_LOADED = Pattern.parse(
    r"(?:while importing |No module named ['\"]|from ['\"]|module ['\"]|NameError: name ['\"]|has no attribute ['\"])"
    r"(?P<module>\w+)"
)
_BUILT = Pattern.parse(
    r"(?:Building wheels? for |Failed building wheel for |[Ff]ailed to build [`'(]?|Building editable for "
    r"|Running setup\.py (?:install|clean|bdist_wheel) for |Failed to download and build `|[Bb]uilding '|of `"
    r"|pip-install-\w+/)(?P<name>[A-Za-z][\w.-]*?)(?:_[0-9a-f]{32}\b|==|`|'| \(|\s|@|$|[/)])"
)
_FRAME = Pattern.parse(r"File \"[^\"]*(?:site|dist)-packages[\\/](?P<name>[a-z]\w*)[\\/]")
_COLLECTED = Pattern.parse(r"(?m)^\s*Collecting (?P<name>[A-Za-z][\w.-]*)")
_LOOKED_BACK = 1 << 15
"""Bytes of the log before a line in which a build's name is looked for."""

_HELPERS = frozenset(
    {
        "collected",
        "installable",
        "wheel",
        "wheels",
        "package",
        "packages",
        "extension",
        "pip",
        "setuptools",
        "the",
        "a",
        "your",
    }
)


class Package(msgspec.Struct, frozen=True):
    """A package by its name on an index, and the command that makes it anew for the torch that is there."""

    name: str
    rebuild: str
    module: str

    @property
    def values(self) -> Mapping[str, str]:
        """What the advice of a rule can have in braces."""
        return {"package": self.name, "rebuild": self.rebuild, "module": self.module}


def package_of(line: str, before: bytes) -> Package | None:
    """The package whose file or module a line names, else the last one that the log said it was building.

    :param before: what stands in the log up to the line.
    """
    text = line.encode()
    if (found := _LOADED.search(text)) and (package := _table().get(_name(found, "module"))):
        return _built_without_torch(before[-_LOOKED_BACK:]) if package.name == "torch" else package
    if found := _MODULE_FILE.search(text):
        folder = _name(found, "folder")
        for name in (_name(found, "module"), folder):
            if package := _table().get(name):
                return package
        if folder:
            return named(folder)
        for part in reversed(re.split(r"[\\/]", text[: found.end()].decode(errors="replace"))[1:-1]):
            if package := _table().get(part.lower()):
                return package
    built = _last(_BUILT, before[-_LOOKED_BACK:])
    return named(built) if built else None


def package_running(before: bytes) -> Package | None:
    """The package whose file the last frame of a traceback is in.

    :param before: what stands in the log up to the line that ends the traceback.
    """
    name = _last(_FRAME, before[-_LOOKED_BACK:])
    return named(name) if name else None


def how_to_install(module: str) -> str:
    """The command that brings a module: the table's for its package, else pip's with the module's own name."""
    top = module.partition(".")[0]
    known = _table().get(top.lower())
    return known.rebuild if known else f"python -m pip install {shlex.quote(top)}"


def _built_without_torch(log: bytes) -> Package:
    """The package whose build finds no torch, which is what pip began with last; torch itself where nothing is built."""
    return named(_last(_BUILT, log) or _last(_COLLECTED, log) or "torch")


def _last(names: Pattern, log: bytes) -> str:
    name, found = "", names.search(log)
    while found is not None:
        name = said if (said := _name(found, "name")) not in _HELPERS else name
        found = names.search(log, found.end())
    return name


def _name(found: Found, group: str) -> str:
    return (found.groupdict()[group] or b"").decode(errors="replace").lower()


def named(name: str) -> Package:
    """The package of that name, of the table or with pip's own way to build one anew."""
    known = _table().get(name.lower().replace("-", "_")) or _by_name().get(name.lower().replace("_", "-"))
    rebuild = f"pip uninstall -y {name}; pip install {name} --no-build-isolation --no-cache-dir"
    return known or Package(name, rebuild, name.replace("-", "_"))


@cache
def _rows() -> tuple[tuple[Package, tuple[str, ...]], ...]:
    rows = read_toml(Path(__file__).with_name("packages.toml"))["package"]
    return tuple((Package(row["name"], row["rebuild"], row["modules"][0]), tuple(row["modules"])) for row in rows)


@cache
def _table() -> Mapping[str, Package]:
    return {module.lower(): package for package, modules in _rows() for module in modules}


@cache
def _by_name() -> Mapping[str, Package]:
    return {package.name: package for package, _ in _rows()}
