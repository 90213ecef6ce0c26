"""Versions are ordered as packaging orders them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from flashdepot.catalog import load_catalog
from flashdepot.model.wheel import version_key

PARTS = st.tuples(
    st.sampled_from(["", "1!"]),
    st.sampled_from(["2", "2.8", "2.8.0", "2.8.3", "2.10", "3.0.0"]),
    st.sampled_from(["", "a1", "b1", "b2", "rc1"]),
    st.sampled_from(["", ".post1", ".post2", ".post10"]),
    st.sampled_from(["", ".dev0", ".dev3"]),
)


@settings(max_examples=400, deadline=None)
@given(PARTS.map("".join), PARTS.map("".join))
def test_two_versions_are_ordered_as_packaging_orders_them(one: str, other: str) -> None:
    assert (version_key(one) < version_key(other)) == (Version(one) < Version(other))
    assert (version_key(one) == version_key(other)) == (Version(one) == Version(other))


def test_so_are_all_of_the_catalog() -> None:
    versions = {wheel.version for wheel in load_catalog().wheels}
    assert sorted(versions, key=version_key) == sorted(versions, key=Version)
    assert len(versions) > 50


def test_what_is_no_version_comes_first() -> None:
    assert version_key("main") < version_key("0.dev0")
