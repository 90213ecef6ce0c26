from __future__ import annotations

import pytest

from flashdepot.errors import UsageError
from flashdepot.kernels.fa2.units import make_unit
from flashdepot.model import selection as s
from flashdepot.model.codec import read
from flashdepot.model.selection import Feature, Pass, Selection, Unit, select


def tree(head_dims: tuple[int, ...] = (32, 64, 96, 128, 192, 256)) -> frozenset[Unit]:
    return frozenset(
        make_unit(p, d, t, causal=c) for p in Pass for d in head_dims for t in s.HALVES for c in (False, True)
    )


def test_profiles_choose_what_their_documentation_says() -> None:
    count = {name: len(select(profile, tree()).units) for name, profile in s.PROFILES.items()}
    assert count == {"full": 72, "training": 48, "inference": 48, "quick": 2}
    assert select(s.PROFILES["quick"], tree()).features == frozenset()
    assert Feature.DROPOUT not in select(s.PROFILES["inference"], tree()).features


def test_a_head_dim_that_upstream_lacks_is_refused_with_the_one_that_serves_it() -> None:
    profile = s.Profile(None, s.parse_head_dims("64,80"), None, frozenset())
    with pytest.raises(UsageError, match="no kernels of head dim 80: there are 32, 64") as caught:
        select(profile, tree())
    assert "--head-dims 96 --features uneven_k" in caught.value.hint


def test_a_selection_covers_another_only_with_all_its_units_and_features() -> None:
    full = select(s.PROFILES["full"], tree())
    quick = select(s.PROFILES["quick"], tree())
    assert full.covers(quick)
    assert not quick.covers(full)
    assert not quick.covers(Selection(quick.units, frozenset({Feature.ALIBI})))


def test_a_selection_survives_its_json() -> None:
    full = select(s.PROFILES["inference"], tree())
    assert read(full.to_json(), Selection) == full


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (s.parse_passes, "fwd,sideways", "'sideways' is not a pass: there are fwd, splitkv, bwd"),
        (s.parse_dtypes, "fp8", "'fp8' is not a dtype: there are bf16, fp16"),
        (s.parse_features, "dropout,rotary", "'rotary' is not a feature"),
        (s.parse_profile, "fast", "'fast' is not a profile: there are full"),
        (s.parse_head_dims, "64,big", "'big' is not a head dim"),
        (s.parse_head_dims, "0", "'0' is not a head dim"),
        (s.parse_passes, "", "empty"),
    ],
)
def test_unknown_words_are_refused_with_the_known_ones(parse: object, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        parse(text)  # type: ignore[operator]


def test_features_can_be_none_or_all() -> None:
    assert s.parse_features("none") == frozenset()
    assert s.parse_features("all") == frozenset(Feature)
    assert s.parse_features("softcap, local") == {Feature.SOFTCAP, Feature.LOCAL}
