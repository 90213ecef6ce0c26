from __future__ import annotations

import pytest

from flashdepot.errors import UsageError
from flashdepot.model.target import Architecture, parse_list


@pytest.mark.parametrize("text", ["90", "9.0", "sm_90", "compute_90", " SM_90 "])
def test_a_compute_capability_reads_in_every_spelling_of_the_field(text: str) -> None:
    assert Architecture.parse(text) == Architecture(9, 0)


def test_two_digit_generations_are_not_mistaken_for_one_digit_ones() -> None:
    assert Architecture.parse("120") == Architecture(12, 0)
    assert Architecture.parse("12.1").sm == "sm_121"
    assert Architecture.parse("90a") == Architecture(9, 0, "a")


@pytest.mark.parametrize("text", ["", "9", "hopper", "9.0.1", "sm_", "-90", "90b"])
def test_what_is_no_architecture_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="expected a compute capability such as"):
        Architecture.parse(text)


@pytest.mark.parametrize(
    ("sass", "gpu", "runs"),
    [
        ("80", "8.0", True),
        ("80", "8.6", True),
        ("80", "8.9", True),
        ("86", "8.0", False),
        ("89", "8.6", False),
        ("80", "9.0", False),
        ("90", "9.0", True),
        ("90", "10.0", False),
        ("100", "10.3", True),
        ("103", "10.0", False),
        ("120", "12.1", True),
        ("100", "12.0", False),
        ("90a", "9.0", True),
        ("100a", "10.3", False),
        ("100f", "10.3", True),
    ],
)
def test_machine_code_runs_on_its_own_generation_from_its_minor_version_on(sass: str, gpu: str, runs: bool) -> None:
    assert Architecture.parse(sass).runs_on(Architecture.parse(gpu)) is runs


def test_a_list_is_sorted_and_has_no_repeats() -> None:
    assert [str(a) for a in parse_list("120, 80;9.0 80")] == ["80", "90", "120"]


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(UsageError, match="empty"):
        parse_list(" , ")
