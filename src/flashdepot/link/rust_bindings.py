"""A C header's declarations as a Rust module."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flashdepot.link.c_header import Alias, Constant, CType, Function, Header, Struct

_NUMBERS = {"int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "float": "f32"}
_BEHIND_POINTERS = {"void": "core::ffi::c_void", "char": "core::ffi::c_char"}
_CONSTANTS = {"int": "i32", "bits": "u32"}


def rust_bindings(header: Header) -> str:
    """The text of a module: constants, ``repr(C)`` structs with their layout proved at compile time, functions.

    ``Default`` of a struct is all zeros, with its own size in a first field ``size``, as the header's rules ask.
    """
    parts = [
        "// Written by flashdepot from flash_attention.h; do not edit.",
        *(_alias(a) for a in header.aliases),
        "\n".join(_constant(c) for c in header.constants),
        *(_struct(s) for s in header.structs),
        *(_layout(s) for s in header.structs),
        _functions(header.functions),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _alias(alias: Alias) -> str:
    return _doc(alias.doc) + f"pub type {alias.name} = {_NUMBERS[alias.target]};"


def _constant(constant: Constant) -> str:
    kind = _CONSTANTS.get(constant.type, constant.type)
    return _doc(constant.doc) + f"pub const {constant.name}: {kind} = {constant.value};"


def _struct(struct: Struct) -> str:
    fields = "\n".join(_doc(f.doc, "    ") + f"    pub {f.name}: {_type(f.type)}," for f in struct.fields)
    sized = struct.fields[0].name == "size" and struct.fields[0].type == CType("uint32_t")
    about = "All zero but `size`, which is that of this struct." if sized else "All zero."
    body = ["        // SAFETY: zero is a value of every number and pointer."]
    if sized:
        body += [
            f"        let mut value: {struct.name} = unsafe {{ core::mem::zeroed() }};",
            f"        value.size = core::mem::size_of::<{struct.name}>() as u32;",
            "        value",
        ]
    else:
        body.append("        unsafe { core::mem::zeroed() }")
    default = "\n".join(body)
    return (
        f"{_doc(struct.doc)}#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {struct.name} {{\n{fields}\n}}\n\n"
        f"impl Default for {struct.name} {{\n    /// {about}\n    fn default() -> Self {{\n{default}\n    }}\n}}"
    )


def _layout(struct: Struct) -> str:
    """Assertions that stop the compile when Rust lays a struct out differently from C."""
    lines = [
        f"    assert!(core::mem::size_of::<{struct.name}>() == {struct.size});",
        f"    assert!(core::mem::align_of::<{struct.name}>() == {struct.alignment});",
    ]
    lines += [f"    assert!(core::mem::offset_of!({struct.name}, {f.name}) == {f.offset});" for f in struct.fields]
    return "const _: () = {\n" + "\n".join(lines) + "\n};"


def _functions(functions: tuple[Function, ...]) -> str:
    return 'extern "C" {\n' + "\n".join(_function(f) for f in functions) + "\n}" if functions else ""


def _function(function: Function) -> str:
    parameters = ", ".join(f"{p.name}: {_type(p.type)}" for p in function.parameters)
    return _doc(function.doc, "    ") + f"    pub fn {function.name}({parameters}) -> {_type(function.result)};"


def _type(kind: CType) -> str:
    name = _NUMBERS.get(kind.name) or _BEHIND_POINTERS.get(kind.name) or kind.name
    return f"*{'const' if kind.const else 'mut'} {name}" if kind.pointer else name


def _doc(text: str, indent: str = "") -> str:
    return "".join(f"{indent}/// {line}".rstrip() + "\n" for line in _doc_lines(text))


def _doc_lines(text: str) -> Iterator[str]:
    """Lines for rustdoc, to which brackets are links, angle brackets tags, and stars emphasis."""
    for line in text.splitlines():
        yield re.sub(r"([*<>\[\]])", r"\\\1", line)
