from __future__ import annotations

import pytest

from flashdepot.errors import UsageError
from flashdepot.facts.gpus import known_architectures, parse_architecture, parse_architectures
from flashdepot.model.target import Architecture, spell


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("90", "9.0"),
        ("9.0", "9.0"),
        ("sm_90", "9.0"),
        ("sm_90a", "9.0a"),
        ("RTX 4090", "8.9"),
        ("rtx4090", "8.9"),
        ("NVIDIA GeForce RTX 3080 Ti", "8.6"),
        ("3080ti", "8.6"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("RTX 4000 SFF Ada Generation", "8.9"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"),
        ("L40S", "8.9"),
        ("A10G", "8.6"),
        ("GB10", "12.1"),
    ],
)
def test_an_architecture_is_a_number_or_the_name_of_a_gpu(text: str, capability: str) -> None:
    assert parse_architecture(text) == Architecture.parse(capability)


def test_a_list_mixes_numbers_and_names() -> None:
    assert spell(parse_architectures("RTX 4090, 9.0;sm_80")) == "80,89,90"
    assert spell(parse_architectures("80 90")) == "80,90"


@pytest.mark.parametrize("text", ["RTX 4000", "RTX", "A1000000", "GTX 1080", "", "8", "sm_"])
def test_a_name_that_is_not_known_is_refused_with_what_is_expected(text: str) -> None:
    with pytest.raises(UsageError, match="expected a compute capability such as 80"):
        parse_architecture(text)


def test_no_two_architectures_share_a_name() -> None:
    for known in known_architectures():
        for name in known.names:
            assert parse_architecture(name) == known.architecture
