"""C++ functions by their mangled names, read back into the declarations that make these names.

The Itanium C++ ABI, "Name mangling", for the few types that flash-attention's entry points take. What is not one of them
is refused, never guessed.
"""

from __future__ import annotations

import msgspec

ENTRY_POINTS = ("mha_fwd", "mha_varlen_fwd", "mha_bwd", "mha_varlen_bwd", "mha_fwd_kvcache")
"""The functions that upstream's Python module is made of, in its flash_api.cpp."""

_LONGEST = 600
"""Characters of a name; the longest of upstream has 150."""

_BUILTIN = {
    "b": "bool", "c": "char", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "f": "float", "d": "double", "v": "void",
}  # fmt: skip


class UnreadableNameError(ValueError):
    """A name with something in it that this decoder does not know."""


class WheelFunction(msgspec.Struct, frozen=True):
    """A function that takes ``parameters``, spelled as in C++, in a namespace (``""`` is the global one)."""

    mangled: str
    namespace: str
    name: str
    parameters: tuple[str, ...]

    def declaration(self, returns: str) -> str:
        """Its declaration, without the namespace."""
        return f"{returns} {self.name}({', '.join(self.parameters)});"


def parse_function(mangled: str) -> WheelFunction:
    """Read a mangled function name; :raises UnreadableNameError: when it holds anything that is not known here."""
    if len(mangled) > _LONGEST:
        raise UnreadableNameError(f"a name of {len(mangled)} characters")
    reader = _Reader(mangled)
    reader.expect("_Z")
    scopes = reader.function_name()
    parameters: list[str] = []
    while not reader.at_end:
        parameters.append(reader.type())
    if not parameters:
        raise UnreadableNameError(f"{mangled} names data, not a function")
    taken = () if parameters == ["void"] else tuple(parameters)
    return WheelFunction(mangled, "::".join(scopes[:-1]), scopes[-1], taken)


class _Reader:
    """A position in a name, and the parts of it that later parts may refer to (``S_``, ``S0_`` ..)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._seen: list[str] = []

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._text)

    def expect(self, wanted: str) -> None:
        if not self._take(wanted):
            raise UnreadableNameError(f"'{wanted}' is not at {self._at} of {self._text}")

    def function_name(self) -> list[str]:
        if not self._take("N"):
            return [self._source_name()]
        scopes: list[str] = []
        while not self._take("E"):
            scopes.append(self._source_name())
            if not self._text.startswith("E", self._at):
                self._remember("::".join(scopes))
        return scopes

    def type(self) -> str:
        for mark, spelled in (("R", "&"), ("P", "*")):
            if self._take(mark):
                return self._remember(f"{self.type()} {spelled}".replace("& *", "&*"))
        if self._take("K"):
            inner = self.type()
            if inner.endswith(("&", "*")):
                raise UnreadableNameError(f"a constant pointer in {self._text}")
            return self._remember(f"const {inner}")
        if not self.at_end and (builtin := _BUILTIN.get(self._text[self._at])):
            self._at += 1
            return builtin
        return self._class()

    def _class(self) -> str:
        if self._take("N"):
            return self._nested()
        if self._take("St"):
            return self._arguments(self._remember(f"std::{self._source_name()}"))
        if self._take("S"):
            return self._arguments(self._reference())
        return self._arguments(self._remember(self._source_name()))

    def _nested(self) -> str:
        name = ""
        while not self._take("E"):
            if self._take("S"):
                name = "std" if self._take("t") else self._reference()
                continue
            if self._text.startswith("I", self._at):
                name = self._arguments(name)
                continue
            name = f"{name}::{self._source_name()}" if name else self._source_name()
            self._remember(name)
        if not name:
            raise UnreadableNameError(f"an empty name in {self._text}")
        return name

    def _arguments(self, template: str) -> str:
        if not self._take("I"):
            return template
        arguments = []
        while not self._take("E"):
            arguments.append(self.type())
        return self._remember(f"{template}<{', '.join(arguments)}>")

    def _reference(self) -> str:
        end = self._text.find("_", self._at)
        digits = self._text[self._at : end]
        if end < 0 or not all(digit.isdigit() or digit.isupper() for digit in digits):
            raise UnreadableNameError(f"an unknown abbreviation at {self._at} of {self._text}")
        index = int(digits, 36) + 1 if digits else 0
        self._at = end + 1
        if index >= len(self._seen):
            raise UnreadableNameError(f"{self._text} refers to a part {index} that it has not")
        return self._seen[index]

    def _source_name(self) -> str:
        end = self._at
        while end < len(self._text) and self._text[end].isdigit():
            end += 1
        if end == self._at or end - self._at > 3:  # noqa: PLR2004  (digits)
            raise UnreadableNameError(f"no name at {self._at} of {self._text}")
        length = int(self._text[self._at : end])
        name = self._text[end : end + length]
        if len(name) != length or not name.isidentifier():
            raise UnreadableNameError(f"a damaged name at {self._at} of {self._text}")
        self._at = end + length
        return name

    def _take(self, wanted: str) -> bool:
        if not self._text.startswith(wanted, self._at):
            return False
        self._at += len(wanted)
        return True

    def _remember(self, part: str) -> str:
        self._seen.append(part)
        return part
