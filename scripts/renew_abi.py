"""Renew what is made from flash_attention.h: the wheel's layout.py and the Rust crate's bindings.rs.

Usage: python scripts/renew_abi.py

Run it after the header was changed. The tests compare both files with the header, and with what compilers make of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from struct import calcsize
from textwrap import wrap

SOURCE = Path(__file__).parents[1] / "src/flashdepot"
HEADER = SOURCE / "native/include/flash_attention.h"
LAYOUT = SOURCE / "wheel/runtime/layout.py"
BINDINGS = SOURCE / "link/crate/src/bindings.rs"

STRUCTS = {"fa_fwd_args": "FORWARD_FIELDS", "fa_bwd_args": "BACKWARD_FIELDS"}
USED = (
    "DTYPE_FP16",
    "DTYPE_BF16",
    "DTYPE_E4M3",
    *(f"FLAG_{name}" for name in ("CAUSAL", "WINDOW_LEFT", "WINDOW_RIGHT")),
)
USED += ("FLAG_ROTARY_INTERLEAVED", "FLAG_DETERMINISTIC", "FLAG_EMPTY_LSE_NEG_INF")
NUMBERS = {
    "uint32_t": ("I", "u32"),
    "int32_t": ("i", "i32"),
    "int64_t": ("q", "i64"),
    "uint64_t": ("Q", "u64"),
    "float": ("f", "f32"),
}
"""C types as module ``struct`` and as Rust spell them."""

_COMMENT = r"/\*(?P<{}>(?:(?!\*/).)*)\*/"
_STRUCT = re.compile(
    rf"(?:{_COMMENT.format('doc')}\n)?typedef struct (?P<name>\w+) \{{(?P<body>.*?)\}} \w+;", re.DOTALL
)
_FIELD = re.compile(
    rf"(?:{_COMMENT.format('before')}\s*)?(?P<type>(?:const )?\w+) (?P<pointer>\*?)(?P<name>\w+);"
    rf"(?:[ \t]*{_COMMENT.format('after')})?",
    re.DOTALL,
)
_CONSTANT = re.compile(
    rf"^\s*(?:enum {{ )?(?P<name>FA_\w+) = (?P<value>\d+)(?: << (?P<shift>\d+))?,?(?:[ \t]*{_COMMENT.format('doc')})?"
    r"|(?<=, )(?P<more>FA_\w+) = (?P<another>\d+)",
    re.DOTALL | re.MULTILINE,
)
_FUNCTION = re.compile(
    rf"{_COMMENT.format('doc')}\nFA_API (?P<type>(?:const )?\w+) (?P<pointer>\*?)(?P<name>\w+)\((?P<parameters>[^()]*)\)",
    re.DOTALL,
)
_PARAMETER = re.compile(r"(?P<type>(?:const )?\w+) (?P<pointer>\*?)(?P<name>\w+)")
_VERSION = re.compile(r"^#define (FA_VERSION_\w+) (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Value:
    """A field, a parameter or a result: a number, a struct, or one pointer to such."""

    name: str
    type: str
    pointer: bool
    const: bool
    doc: str = ""

    @classmethod
    def of(cls, match: re.Match[str]) -> Value:
        """What a declaration says, with the comment before or after it."""
        groups = match.groupdict()
        doc = "\n".join(filter(None, (groups.get("before"), groups.get("after"))))
        kind = match["type"]
        return cls(match["name"], kind.removeprefix("const "), bool(match["pointer"]), kind.startswith("const "), doc)

    @property
    def rust(self) -> str:
        """The type in Rust."""
        words = {"void": "core::ffi::c_void", "char": "core::ffi::c_char"}
        name = words.get(self.type) or NUMBERS.get(self.type, ("", self.type))[1]
        return f"*{'const' if self.const else 'mut'} {name}" if self.pointer else name


def read_fields(header: str) -> dict[str, list[Value]]:
    """The fields of every struct, in the order of the header."""
    structs = {}
    for struct in _STRUCT.finditer(header):
        structs[struct["name"]] = [Value.of(field) for field in _FIELD.finditer(struct["body"])]
        if rest := _FIELD.sub("", struct["body"]).strip():
            raise SystemExit(f"{struct['name']}: this script cannot read '{rest}'")
    return structs


def read_constants(header: str) -> dict[str, tuple[int, str]]:
    """The enumerators and the version, each with its comment."""
    found = {name: (int(value), "") for name, value in _VERSION.findall(header)}
    major, minor, patch = (value for value, _ in found.values())
    found["FA_VERSION"] = (major * 10000 + minor * 100 + patch, "")
    for match in _CONSTANT.finditer(header):
        name, value = (match["name"], match["value"]) if match["name"] else (match["more"], match["another"])
        found[name] = (int(value) << int(match["shift"] or 0), match["doc"] or "")
    return found


def codes(structs: dict[str, list[Value]], struct: str) -> Iterator[tuple[str, str]]:
    """Each field of a struct, and of the structs within, as module ``struct`` spells it."""
    for field in structs[struct]:
        if field.type in structs and not field.pointer:
            yield from ((f"{field.name}.{inner}", code) for inner, code in codes(structs, field.type))
        else:
            yield _code(field)


def _code(field: Value) -> tuple[str, str]:
    code = "P" if field.pointer else NUMBERS[field.type][0]
    return field.name, f"{calcsize(code)}x" if field.name.startswith("reserved") else code


_LAYOUT = '''"""The structs and constants of flash_attention.h. Written by scripts/renew_abi.py."""

{constants}

_TENSOR = (
{tensor}
)


def _fields(table: str) -> tuple[tuple[str, str], ...]:
    """Each field and its code in module struct. A line has a code and the names of the fields that have it."""
    found = []
    for code, *names in map(str.split, table.strip().splitlines()):
        for name in names:
            found += [(f"{{name}}.{{part}}", of) for part, of in _TENSOR] if code == "tensor" else [(name, code)]
    return tuple(found)

'''


def layout(header: str) -> str:
    """The text of layout.py. What is reserved is packed as zeros, and any pointer is ``P``."""
    structs, constants = read_fields(header), read_constants(header)

    def rows(struct: str) -> Iterator[str]:
        # fa_const_tensor is laid out as fa_tensor is.
        kinds = ((f.name, "tensor") if f.type in structs and not f.pointer else _code(f) for f in structs[struct])
        for code, fields in groupby(kinds, key=itemgetter(1)):
            line = " ".join((code, *(name for name, _ in fields)))
            yield from wrap(line, 114, initial_indent=" " * 4, subsequent_indent=f"    {code} ")

    found = "\n".join(f"{name.partition('_')[2]} = {constants[f'FA_{name}'][0]}" for name in USED)
    tensor = "\n".join(f'    ("{name}", "{code}"),' for name, code in codes(structs, "fa_tensor"))
    tables = (
        "\n".join(("", f'{constant} = _fields("""', *rows(struct), '""")', "")) for struct, constant in STRUCTS.items()
    )
    return _LAYOUT.format(constants=found, tensor=tensor) + "".join(tables)


def bindings(header: str) -> str:
    """The text of bindings.rs, with the header's comments."""
    parts = ["// Written by scripts/renew_abi.py from flash_attention.h; do not edit.", "pub type fa_status = i32;"]
    parts += [
        f"{_doc(doc)}pub const {name}: {_constant_type(name)} = {value};"
        for name, (value, doc) in read_constants(header).items()
    ]
    docs = {struct["name"]: struct["doc"] or "" for struct in _STRUCT.finditer(header)}
    structs = read_fields(header)
    parts += [_struct(name, fields, docs[name]) for name, fields in structs.items()]
    sizes = {name: calcsize("".join(code for _, code in codes(structs, name)) + "0Q") for name in structs}
    asserts = "\n".join(f"    assert!(core::mem::size_of::<{name}>() == {size});" for name, size in sizes.items())
    parts += [f"const _: () = {{\n{asserts}\n}};"]
    functions = "\n".join(map(_function, _FUNCTION.finditer(header)))
    return "\n\n".join((*parts, f'extern "C" {{\n{functions}\n}}')) + "\n"


def _struct(name: str, fields: list[Value], doc: str) -> str:
    members = "\n".join(f"{_doc(field.doc, '    ')}    pub {field.name}: {field.rust}," for field in fields)
    sized = fields[0].name == "size"
    about = "All zero but `size`, which is that of this struct." if sized else "All zero."
    made = "let mut value: Self = unsafe { core::mem::zeroed() };\n        value.size = core::mem::size_of::<Self>() as u32;\n        value"
    body = made if sized else "unsafe { core::mem::zeroed() }"
    return (
        f"{_doc(doc)}#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {name} {{\n{members}\n}}\n\n"
        f"impl Default for {name} {{\n    /// {about}\n    fn default() -> Self {{\n"
        f"        // SAFETY: zero is a value of every number and pointer.\n        {body}\n    }}\n}}"
    )


def _function(match: re.Match[str]) -> str:
    parameters = ", ".join(
        f"{value.name}: {value.rust}" for value in map(Value.of, _PARAMETER.finditer(match["parameters"]))
    )
    return f"{_doc(match['doc'], '    ')}    pub fn {match['name']}({parameters}) -> {Value.of(match).rust};"


def _constant_type(name: str) -> str:
    kind = name.split("_")[1]
    return {"STATUS": "fa_status", "FLAG": "u32", "FEATURE": "u32"}.get(kind, "i32")


def _doc(comment: str, indent: str = "") -> str:
    """Lines for rustdoc, to which brackets are links, angle brackets tags, and stars emphasis."""
    lines = (re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment.strip().splitlines())
    escaped = (re.sub(r"([*<>\[\]])", r"\\\1", line) for line in lines)
    return "".join(f"{indent}/// {line}".rstrip() + "\n" for line in escaped)


if __name__ == "__main__":
    text = HEADER.read_text(encoding="utf-8")
    LAYOUT.write_text(layout(text), encoding="utf-8")
    BINDINGS.write_text(bindings(text), encoding="utf-8")
