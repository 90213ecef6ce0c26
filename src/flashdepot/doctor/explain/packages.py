"""Which package a line of a log is about, and how that one is built anew."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from flashdepot.doctor.explain.pattern import Found, Pattern
from flashdepot.doctor.explain.steps import Step
from flashdepot.system.toml import read_toml

_MODULE_FILE = Pattern.parse(
    r"(?:(?:site|dist)-packages[\\/](?P<folder>\w+?)(?:-[\d.]\S*?\.egg)?[\\/][^\s'\"]*?)?"
    r"(?P<module>\w+?)(?:\.cpython-\w+[\w-]*|\.abi3|\.cp\d+-win\w+)?\.(?:so|pyd|dll)\b"
)
_LOADED = Pattern.parse(
    r"(?:while importing |No module named ['\"]|from ['\"]|module ['\"]|NameError: name ['\"]|has no attribute ['\"])"
    r"(?P<module>\w+)"
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


def package_of(line: str, step: Step | None) -> Package | None:
    """The package whose file or module a line names, else the one that its step is about."""
    text = line.encode()
    if (found := _LOADED.search(text)) and (package := _table().get(_name(found, "module"))):
        about = named(step.package) if step and step.package and step.phase == "build" else package
        return about if package.name == "torch" else package
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
    return named(step.package) if step and step.package else None


def how_to_install(module: str) -> str:
    """The command that brings a module: the table's for its package, else pip's with the module's own name."""
    top = module.partition(".")[0]
    known = _table().get(top.lower())
    return known.rebuild if known else f"python -m pip install {shlex.quote(top)}"


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
