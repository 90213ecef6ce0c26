"""Mangled names read back: what is declared from them must mangle to them again."""

import random
from pathlib import Path

import pytest

from flashdepot.link.published_wheel import UnreadableNameError, parse_function
from support.tools import posix, run_program

pytestmark = posix("GNU C++ library, which reads the names")

# As the extension of vllm-flash-attn 2.6.2 exports them; c++filt agrees.
PUBLISHED = {
    "_Z7mha_fwdRN2at6TensorERKS0_S3_RSt8optionalIS0_ES6_ffbiifbS4_INS_9GeneratorEE": (
        "at::Tensor&, at::Tensor const&, at::Tensor const&, std::optional<at::Tensor>&, std::optional<at::Tensor>&, "
        "float, float, bool, int, int, float, bool, std::optional<at::Generator>"
    ),
    "_Z15mha_fwd_kvcacheRN2at6TensorERKS0_S3_RSt8optionalIS2_ES6_S6_S6_S6_S6_RS4_IS0_ES8_S8_fbiifbi": (
        "at::Tensor&, at::Tensor const&, at::Tensor const&, "
        + "std::optional<at::Tensor const>&, " * 6
        + "std::optional<at::Tensor>&, " * 3
        + "float, bool, int, int, float, bool, int"
    ),
}

TYPES = """
namespace at { struct Tensor; struct Generator; }
namespace c10 { template <typename T> struct optional {}; template <typename T> struct ArrayRef {}; }
namespace std { template <typename T> struct optional {}; }
"""
# The shapes that upstream's signatures have had from 2.0 to 2.8.
SIGNATURES = [
    "void mha_fwd(at::Tensor &, const at::Tensor &, c10::optional<at::Tensor> &, float, bool)",
    "void mha_bwd(const at::Tensor &, const at::Tensor &, c10::optional<at::Tensor> &, c10::optional<at::Generator>)",
    "namespace flash { void mha_fwd(at::Tensor &, const at::Tensor &, std::optional<at::Tensor> &, long, double); }",
    "namespace flash { void mha_varlen_fwd(at::Tensor &, std::optional<const at::Tensor> &, std::optional<at::Tensor> &); }",
    "void mha_varlen_bwd(const std::optional<at::Tensor> &, std::optional<at::Tensor> &, std::optional<at::Generator>)",
    "namespace a { namespace b { void mha_bwd(at::Tensor *, const at::Tensor *, unsigned long, long long, char); } }",
    "void mha_fwd_kvcache(c10::ArrayRef<c10::optional<at::Tensor>>, const c10::ArrayRef<long> &, std::optional<long>)",
    "void mha_fwd()",
]


def mangled(source: str, folder: Path) -> list[str]:
    """The names that a compiler calls for in a source."""
    (folder / "unit.cc").write_text(source)
    command = ["g++", "-std=c++17", "-S", str(folder / "unit.cc"), "-o", str(folder / "unit.s")]
    run_program(command)
    lines = (folder / "unit.s").read_text().splitlines()
    return [line.removeprefix("\t.globl\t") for line in lines if line.startswith("\t.globl\t_Z")]


def defined(declaration: str) -> str:
    """The same with a body."""
    return declaration.replace("; }", " {} }") if "; }" in declaration else declaration.rstrip(";") + " {}"


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_a_published_name_is_read_as_it_was_declared(name, parameters) -> None:
    assert ", ".join(parse_function(name).parameters) == parameters


@pytest.mark.parametrize("signature", SIGNATURES)
def test_a_declaration_made_from_a_name_mangles_to_that_name(signature, tmp_path) -> None:
    (name,) = mangled(TYPES + defined(signature), tmp_path)
    function = parse_function(name)
    declaration = function.declaration.replace("std::vector<at::Tensor>", "void", 1)
    assert mangled(TYPES + declaration.replace(";", " {}"), tmp_path) == [name]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_Z",
        "_Z7mha_fwd",  # data
        "_Z7mha_fwdSs",  # std::string
        "_Z7mha_fwdPKFvvE",
        "_Z7mha_fwdIiEvT_",
        "_Z7mha_fwdRS0_",
        "_Z99mha_fwdi",
        "_Z7mha_fwdRN2at6Tensor",
        "_Z7mha_fwdN2atELi3EE",
        "_Z7mha_fwd" + "R" * 5000 + "i",
        "mha_fwd",
    ],
)
def test_what_the_decoder_does_not_know_is_refused(name) -> None:
    with pytest.raises(UnreadableNameError):
        parse_function(name)


def test_no_text_makes_the_decoder_fail_in_another_way() -> None:
    rng = random.Random(7)
    pieces = [*"NEIRPKbiZ9S_", "S_", "S0_", "St", "2at", "6Tensor", "8optional"]
    for _ in range(20_000):
        text = "_Z7mha_fwd" + "".join(rng.choices(pieces, k=rng.randint(0, 12)))
        try:
            parse_function(text)
        except UnreadableNameError:
            continue
