"""The bindings that are made from a header agree with what a C compiler makes of it."""

from __future__ import annotations

import contextlib
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashdepot.errors import IntegrityError
from flashdepot.families.c_layer import NATIVE
from flashdepot.link.c_header import CType, Header, parse_header
from flashdepot.link.cargo_crate import crate_version
from flashdepot.link.rust_bindings import rust_bindings
from support.c_compiler import compile_c

TEXT = (NATIVE / "include" / "flash_attention.h").read_text()


@pytest.fixture(scope="module")
def header() -> Header:
    return parse_header(TEXT)


def test_sizes_offsets_and_values_are_those_of_the_c_compiler(header: Header, tmp_path: Path) -> None:
    questions = [(f"sizeof({s.name})", s.size) for s in header.structs]
    questions += [(f"_Alignof({s.name})", s.alignment) for s in header.structs]
    questions += [(f"offsetof({s.name}, {f.name})", f.offset) for s in header.structs for f in s.fields]
    questions += [(c.name, c.value) for c in header.constants]
    source = tmp_path / "ask.c"
    prints = "\n".join(f'  printf("%ld\\n", (long)({question}));' for question, _ in questions)
    source.write_text(
        f"#include <flash_attention.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{\n{prints}\n}}\n"
    )
    program = compile_c(source, tmp_path / "ask", "-std=c11")
    answers = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip([q for q, _ in questions], map(int, answers), strict=True)) == dict(questions)


def test_every_name_that_c_declares_is_bound(header: Header) -> None:
    text = rust_bindings(header)
    without_comments = re.sub(r"/\*.*?\*/", "", TEXT, flags=re.DOTALL)
    functions = set(re.findall(r"\b(fa_\w+)\(", without_comments))
    constants = set(re.findall(r"\b(FA_[A-Z0-9_]+) = ", without_comments)) | {"FA_ABI"}
    structs = set(re.findall(r"typedef struct (fa_\w+)", without_comments))
    assert functions == set(re.findall(r"pub fn (\w+)\(", text))
    assert constants == set(re.findall(r"pub const (\w+):", text))
    assert structs == set(re.findall(r"pub struct (\w+) ", text))
    assert len(functions) >= 8
    assert len(structs) >= 5


def test_flags_are_unsigned_and_statuses_have_their_type(header: Header) -> None:
    text = rust_bindings(header)
    assert "pub const FA_CAUSAL: u32 = 1;" in text
    assert "pub const FA_CUDA: fa_status = 5;" in text
    assert "pub const FA_BF16: i32 = 2;" in text


def test_comments_become_documentation(header: Header) -> None:
    text = rust_bindings(header)
    assert "/// (b, h, sq) contiguous, or (h, total_q) when packed; written. Rows of no sequence\n" in text
    assert "    /// Workspace in bytes and number of splits for these args, looked at as by fa_supports." in text
    seqlen = next(f for s in header.structs if s.name == "fa_fwd_args" for f in s.fields if f.name == "seqused_k")
    assert seqlen.doc.startswith("(b) packed")
    assert seqlen.type == CType("int32_t", pointer=True, const=True)


def test_padding_is_counted() -> None:
    header = parse_header("typedef struct a {\n  int32_t x;\n  double_ok y;\n} a;".replace("double_ok", "int64_t"))
    assert (header.structs[0].fields[1].offset, header.structs[0].size) == (8, 16)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("typedef struct a { double x; } a;", "'double'"),
        ("typedef struct a { int32_t x[4]; } a;", "'['"),
        ("typedef struct a { void x; } a;", "'void'"),
        ("typedef struct a { int32_t **x; } a;", "'*'"),
        ("typedef struct a { int32_t x; } b;", "'b'"),
        ("typedef struct a { } a;", "after a field"),
        ("typedef struct a { other *x; } a;", "'other'"),
        ("enum { A };", "'}'"),
        ("enum { A = -1 };", "'-'"),
        ("int32_t f(int32_t);", "')'"),
        ("int32_t (*f)(int32_t a);", "'('"),
        ("int32_t f(int32_t a", "ends within a declaration"),
        ("typedef long a;", "'long'"),
        ("int32_t f(void", "ends within a declaration"),
        ("enum { A = 1 << 99 };", "'99'"),
        ("@", "'@'"),
    ],
)
def test_what_is_not_known_is_refused_rather_than_guessed(text: str, said: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        parse_header(text)
    assert said in caught.value.message


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(TEXT)), st.integers(0, 60), st.sampled_from(["", "{", "*", "/*", "\0", " 1 << "]))
def test_a_header_that_was_tampered_with_is_read_or_refused(at: int, length: int, insertion: str) -> None:
    with contextlib.suppress(IntegrityError):
        rust_bindings(parse_header(TEXT[:at] + insertion + TEXT[at + length :]))


@pytest.mark.parametrize(
    ("version", "crate"),
    [("2.8.3.post2", "2.8.3"), ("2.7.4", "2.7.4"), ("2.8", "2.8.0"), ("0+unknown", "0.0.0"), ("2.8.3rc1", "2.8.3")],
)
def test_a_crate_has_three_numbers_as_cargo_wants(version: str, crate: str) -> None:
    assert crate_version(version) == crate
