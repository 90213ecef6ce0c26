from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from flashdepot.errors import UsageError
from flashdepot.model.request import AnyCuda, Gpus, LibraryRequest
from flashdepot.model.selection import ALL_FEATURES, PROFILES, Dtype, Feature, Pass
from flashdepot.model.target import Architecture, Version
from flashdepot.resolve.project import library_request


def some(values: object) -> st.SearchStrategy[frozenset[object]]:
    return st.frozensets(st.sampled_from(list(values)), min_size=1)  # type: ignore[call-overload]


requests = st.builds(
    LibraryRequest,
    upstream=st.none() | st.sampled_from(["2.8.3", "git+https://host/repo@main", "/home/me/flash"]),
    profile=st.none() | st.sampled_from(list(PROFILES.values())),
    arch=st.none()
    | st.sampled_from(list(Gpus))
    | some([Architecture(8, 0), Architecture(9, 0, "a"), Architecture(12, 0)]).map(lambda s: tuple(sorted(s))),
    passes=st.none() | some(Pass),
    head_dims=st.none() | some([32, 64, 256]),
    dtypes=st.none() | some(Dtype),
    features=st.none() | st.frozensets(st.sampled_from(list(Feature))),
    cuda=st.none() | st.sampled_from([AnyCuda.AUTO, Version("12.8"), Path("/opt/cuda")]),
)


@given(requests)
def test_a_request_is_read_again_from_its_words(request: LibraryRequest) -> None:
    assert library_request(**request.words()) == request


@given(requests, requests)
def test_gaps_are_filled_and_what_was_said_stays(request: LibraryRequest, other: LibraryRequest) -> None:
    filled = request.or_else(other)
    for name, value in asdict(request).items():
        assert getattr(filled, name) == (getattr(other, name) if value is None else value)


def test_named_passes_replace_those_of_the_profile() -> None:
    selected = library_request(profile="inference", passes="bwd", features="all").selected
    assert selected.passes == {Pass.BWD}
    assert selected.features == ALL_FEATURES
    assert selected.dtypes == PROFILES["inference"].dtypes


@pytest.mark.parametrize(
    ("option", "word", "said"),
    [
        ("arch", "hopper", "not a GPU architecture"),
        ("cuda", "toolkit", "not a choice of CUDA"),
        ("profile", "huge", "not a profile"),
        ("head_dims", "64,x", "not a head dim"),
    ],
)
def test_a_word_that_means_nothing_is_named(option: str, word: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        library_request(**{option: word})
