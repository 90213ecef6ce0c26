"""The extension module in a published wheel: which of upstream's functions it offers to C++, and what they return."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from flashdepot.binary.elf import ElfFile
from flashdepot.binary.window import open_window
from flashdepot.link.published_wheel_symbols import ENTRY_POINTS, UnreadableNameError, WheelFunction, parse_function

TENSORS = "std::vector<at::Tensor>"

_SPELLED = tuple(f"{len(name)}{name}" for name in ENTRY_POINTS)
_BINDING = re.compile(rb"\((\{[^{}\0]{1,80}\}(?:, \{[^{}\0]{1,80}\})*)\) -> ([^\0]{1,80})\0")
_LIST_OF_TENSORS = re.compile(r"[Ll]ist\[(?:torch|at)\.Tensor\]")
_KINDS = ("Tensor", "Generator", "float", "bool", "int")


class Binding(msgspec.Struct, frozen=True):
    """A signature as pybind11 keeps it in the file for Python's help: kinds of the arguments, and what it returns."""

    arguments: tuple[str, ...]
    returns: str


class EntryPoint(msgspec.Struct, frozen=True):
    """A function that C++ can call: ``returns`` is its return type, which its mangled name does not have."""

    function: WheelFunction
    returns: str


class WheelExtension(msgspec.Struct, frozen=True):
    """An extension module: its entry points, those left out with the reason, and the libraries that it needs."""

    name: str
    entry_points: tuple[EntryPoint, ...]
    left_out: tuple[str, ...]
    needed: tuple[str, ...]


def read_extension(path: Path) -> WheelExtension | None:
    """Read a shared library; ``None`` when it exports none of upstream's entry points.

    :raises IntegrityError: when it is damaged.
    """
    with open_window(path) as window:
        elf = ElfFile(window)
        if not elf.readable:
            return None
        names = [symbol.name for symbol in elf.symbols() if symbol.exported and _may_be_one(symbol.name)]
        needed = elf.needed
    if not names:
        return None
    bindings = tuple(_bindings(path))
    functions, left_out = _functions(sorted(names))
    found = []
    for function in functions:
        returned = return_type(function, bindings)
        if returned is None:
            left_out.append(f"{function.name}: nothing in the file says what it returns")
        else:
            found.append(EntryPoint(function, returned))
    return WheelExtension(path.name, tuple(found), tuple(left_out), needed)


def return_type(function: WheelFunction, bindings: Iterable[Binding]) -> str | None:
    """What a function returns, by the binding with its arguments; ``None`` without one, or with several answers."""
    kinds = tuple(_kind_of_parameter(parameter) for parameter in function.parameters)
    answers = {binding.returns for binding in bindings if binding.arguments == kinds}
    return TENSORS if answers and all(_LIST_OF_TENSORS.fullmatch(answer) for answer in answers) else None


def _may_be_one(name: str) -> bool:
    """Whether a symbol may be an entry point. ``_ZZ`` is something inside a function."""
    return name.startswith("_Z") and not name.startswith("_ZZ") and any(spelled in name for spelled in _SPELLED)


def _functions(names: Iterable[str]) -> tuple[list[WheelFunction], list[str]]:
    read, unread = [], []
    for name in names:
        try:
            function = parse_function(name)
        except UnreadableNameError as error:
            unread.append(f"{name}: {error}")
            continue
        if function.name in ENTRY_POINTS:
            read.append(function)
    return read, unread


def _bindings(path: Path) -> Iterator[Binding]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _BINDING.finditer(data):
            arguments = match[1].decode("ascii", "replace").strip("{}").split("}, {")
            yield Binding(tuple(_kind_of_text(text) for text in arguments), match[2].decode("ascii", "replace"))


def _kind_of_parameter(parameter: str) -> str:
    if "at::Tensor" in parameter or "at::Generator" in parameter:
        kind = "Tensor" if "at::Tensor" in parameter else "Generator"
        return f"optional {kind}" if "optional<" in parameter else kind
    if parameter in {"float", "double"}:
        return "float"
    return "bool" if parameter == "bool" else "int"


def _kind_of_text(text: str) -> str:
    kind = next((kind for kind in _KINDS if kind.lower() in text.lower()), text)
    optional = text.startswith("Optional[") or text.endswith("| None")
    return f"optional {kind}" if optional else kind
