"""A C header of the shape that ours has, read into declarations, with the comments that explain them.

It knows what a C ABI of fixed-width numbers, pointers and structs needs, and refuses the rest: a binding that was
guessed would be worse than none. The layout of structs is that of 64-bit Linux and Windows, whose C ABIs agree on
these types: every field at a multiple of its own size.
"""

from __future__ import annotations

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.link.c_tokens import Token, tokens

NUMBERS = {"int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "float": 4}
"""Types that may be used by value, with their sizes in bytes."""

POINTER = 8
_BEHIND_POINTERS = {"void", "char"}
_BITS = 32  # of the flags


class CType(msgspec.Struct, frozen=True):
    """A number, a struct, or (``pointer``) one pointer to such, to ``void`` or to ``char``."""

    name: str
    pointer: bool = False
    const: bool = False


class Field(msgspec.Struct, frozen=True):
    """A field of a struct, or a parameter of a function; ``offset`` is in bytes and 0 for a parameter.

    ``section`` is what the header says before it of the fields from here on.
    """

    name: str
    type: CType
    offset: int = 0
    doc: str = ""
    section: str = ""


class Struct(msgspec.Struct, frozen=True):
    """A struct with its size and alignment in bytes."""

    name: str
    fields: tuple[Field, ...]
    size: int
    alignment: int
    doc: str


class Constant(msgspec.Struct, frozen=True):
    """A named number. ``type`` is the typedef whose values it is among, ``int``, or ``bits`` for what is never negative.

    ``section`` is what the header says of its whole enum.
    """

    name: str
    value: int
    type: str
    doc: str
    section: str = ""


class Alias(msgspec.Struct, frozen=True):
    """Another name of a number type."""

    name: str
    target: str
    doc: str


class Function(msgspec.Struct, frozen=True):
    """A function of the library."""

    name: str
    result: CType
    parameters: tuple[Field, ...]
    doc: str


class Header(msgspec.Struct, frozen=True):
    """All that a header declares, each kind in its order."""

    aliases: tuple[Alias, ...]
    constants: tuple[Constant, ...]
    structs: tuple[Struct, ...]
    functions: tuple[Function, ...]


def parse_header(text: str, macros: tuple[str, ...] = ("FA_API", "FA_NOEXCEPT")) -> Header:
    """Read a header.

    :param macros: names that decorate functions and mean nothing to a caller in another language.
    :raises IntegrityError: for anything that this reader does not know, with the line.
    """
    return _Parser([t for t in tokens(text) if t.text not in macros]).header()


class _Parser:
    """Reads declarations off a list of tokens. A comment belongs to what it stands before, or to what it ends."""

    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._at = 0
        self._aliases: dict[str, Alias] = {}
        self._last_alias = ("", 0)  # its name and line: an enum right below it has its values
        self._constants: list[Constant] = []
        self._structs: dict[str, Struct] = {}
        self._functions: list[Function] = []

    def header(self) -> Header:
        while self._at < len(self._tokens):
            self._declaration()
        return Header(
            tuple(self._aliases.values()),
            tuple(self._constants),
            tuple(self._structs.values()),
            tuple(self._functions),
        )

    def _declaration(self) -> None:
        doc = self._comments()
        if self._at == len(self._tokens):
            return
        if self._peek().text == "#define":
            self._define()
        elif self._peek().text == "enum":
            self._enum(doc)
        elif self._accept("typedef"):
            if self._peek().text == "struct":
                self._struct(doc)
            else:
                self._alias(doc)
        else:
            self._function(doc)

    def _define(self) -> None:
        self._next()
        name, value = self._name().text, self._next()
        doc = self._trailing(value.line)
        self._constants.append(Constant(name, self._number(value), "bits", doc))

    def _enum(self, section: str) -> None:
        begun = self._next().line
        self._expect("{")
        members: list[tuple[str, int, bool, str]] = []
        while not self._accept("}"):
            doc = self._comments()
            name = self._name().text
            self._expect("=")
            value, shifted = self._expression()
            line = self._tokens[self._at - 1].line
            if self._accept(","):
                line = self._tokens[self._at - 1].line
            members.append((name, value, shifted, doc or self._trailing(line)))
        self._expect(";")
        self._trailing(self._tokens[self._at - 1].line)
        alias, line = self._last_alias
        kind = "bits" if any(shifted for _, _, shifted, _ in members) else alias if begun == line + 1 else "int"
        self._constants += [Constant(name, value, kind, doc, section) for name, value, _, doc in members]

    def _expression(self) -> tuple[int, bool]:
        value = self._number(self._next())
        if not self._accept("<<"):
            return value, False
        shift = self._next()
        if self._number(shift) >= _BITS:
            raise _refusal(shift, f"a shift within {_BITS} bits")
        return value << self._number(shift), True

    def _alias(self, doc: str) -> None:
        target = self._next()
        if target.text not in NUMBERS:
            raise _refusal(target, "a number type")
        name = self._name().text
        self._expect(";")
        self._aliases[name] = Alias(name, target.text, doc)
        self._last_alias = (name, target.line)

    def _struct(self, doc: str) -> None:
        self._next()
        name = self._name()
        self._expect("{")
        fields: list[Field] = []
        offset, alignment = 0, 1
        while True:
            before = self._comments()
            if self._accept("}"):
                break
            kind = self._type()
            field = self._name().text
            self._expect(";")
            after = self._trailing(self._tokens[self._at - 1].line)
            size, aligned = self._extent(kind)
            offset = _round_up(offset, aligned)
            fields.append(Field(field, kind, offset, after or before, before if after else ""))
            offset, alignment = offset + size, max(alignment, aligned)
        again = self._next()
        if again.text != name.text or not fields:
            raise _refusal(again, f"'{name.text}' once more, after a field or several,")
        self._expect(";")
        self._structs[name.text] = Struct(name.text, tuple(fields), _round_up(offset, alignment), alignment, doc)

    def _function(self, doc: str) -> None:
        result = self._type()
        name = self._name().text
        self._expect("(")
        parameters: list[Field] = []
        if not (self._peek().text == "void" and self._skip_void()):
            while True:
                kind = self._type()
                parameters.append(Field(self._name().text, kind))
                if not self._accept(","):
                    break
            self._expect(")")
        self._expect(";")
        self._functions.append(Function(name, result, tuple(parameters), doc))

    def _skip_void(self) -> bool:
        if [t.text for t in self._tokens[self._at + 1 : self._at + 2]] != [")"]:
            return False
        self._at += 2
        return True

    def _type(self) -> CType:
        const = self._accept("const")
        name = self._next()
        pointer = self._accept("*")
        by_value = name.text in NUMBERS or name.text in self._aliases or name.text in self._structs
        if not by_value and not (pointer and name.text in _BEHIND_POINTERS):
            raise _refusal(name, "a fixed-width number, a struct of this header, or a pointer to one")
        return CType(name.text, pointer, const)

    def _extent(self, kind: CType) -> tuple[int, int]:
        """Size and alignment in bytes."""
        if kind.pointer:
            return POINTER, POINTER
        if kind.name in self._structs:
            struct = self._structs[kind.name]
            return struct.size, struct.alignment
        size = NUMBERS[self._aliases[kind.name].target if kind.name in self._aliases else kind.name]
        return size, size

    def _comments(self) -> str:
        """The comment right before a declaration: one that a blank line parts from it says something else."""
        doc = ""
        while self._at < len(self._tokens) and self._peek().is_comment:
            comment = self._next()
            adjacent = self._at < len(self._tokens) and self._peek().line <= comment.end_line + 1
            doc = comment.text if adjacent else ""
        return doc

    def _trailing(self, line: int) -> str:
        """The comment that begins on the line on which something ended."""
        if self._at < len(self._tokens) and self._peek().is_comment and self._peek().line == line:
            return self._next().text
        return ""

    def _name(self) -> Token:
        token = self._next()
        if token.is_comment or not token.text.isidentifier():
            raise _refusal(token, "a name")
        return token

    def _number(self, token: Token) -> int:
        if not token.text.isdecimal():
            raise _refusal(token, "a decimal number")
        return int(token.text)

    def _peek(self) -> Token:
        if self._at == len(self._tokens):
            last = self._tokens[-1]
            raise IntegrityError(f"The header ends within a declaration, in line {last.end_line}.")
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._peek().text != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        token = self._next()
        if token.text != text:
            raise _refusal(token, f"'{text}'")


def _round_up(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _refusal(token: Token, expected: str) -> IntegrityError:
    return IntegrityError(
        f"Line {token.line} of the header has '{token.text}' where {expected} was expected.",
        hint="Bindings are made for the header that travels with a library. Get it again: flashdepot get",
    )
