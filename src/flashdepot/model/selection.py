"""What to build: translation units, features, and the profiles that name common choices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from flashdepot.errors import UsageError, not_one_of
from flashdepot.model.codec import FixedWord, Natural

DEFAULT_FAMILY = "fa2"
"""The family that a unit is of where nobody says otherwise. Texts need not name it."""


class Pass(FixedWord):
    """A direction of attention, or a way to split one; its value is our name for it."""

    FWD = "fwd"
    SPLITKV = "splitkv"
    BWD = "bwd"


class Dtype(FixedWord):
    """An element type of Q, K, V and O; of E4M3, eight bits that have factors, O is BF16."""

    BF16 = "bf16"
    FP16 = "fp16"
    E4M3 = "e4m3"


HALVES = (Dtype.BF16, Dtype.FP16)
"""The types of 16 bits: a whole build has both, and eight bits only where somebody names their family."""


class Feature(FixedWord):
    """An optional capability of kernels, which a selection may leave out."""

    DROPOUT = "dropout"
    ALIBI = "alibi"
    SOFTCAP = "softcap"
    LOCAL = "local"
    UNEVEN_K = "uneven_k"


class Unit(msgspec.Struct, frozen=True, order=True, rename={"pass_": "pass"}):
    """What a family compiles at once, and the part of attention that its kernels do.

    ``name`` is the family's own for it, the same in no other unit. ``causal`` kernels have the mask built in.
    ``features`` are those that it is there for: a selection without one of them leaves it out. Empty where a unit has
    its features in it, as those of fa2 do.
    """

    family: str
    pass_: Pass
    head_dim: Natural
    dtype: Dtype
    causal: bool
    name: str
    features: frozenset[Feature] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """All fields, so that who reads them need not know the family."""
        features = {"features": sorted(f.value for f in self.features)} if self.features else {}
        return {
            "family": self.family,
            "name": self.name,
            "pass": self.pass_.value,
            "head_dim": self.head_dim,
            "dtype": self.dtype.value,
            "causal": self.causal,
            **features,
        }

    def __str__(self) -> str:
        family = "" if self.family == DEFAULT_FAMILY else f"{self.family} "
        return f"{family}{self.pass_}_hdim{self.head_dim}_{self.dtype}{'_causal' if self.causal else ''}"


class Selection(msgspec.Struct, frozen=True):
    """The units and features of one library."""

    units: frozenset[Unit]
    features: frozenset[Feature]

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the families that its units are of, sorted."""
        return tuple(sorted({u.family for u in self.units}))

    def to_json(self) -> dict[str, Any]:
        """Units and features, sorted."""
        return {"units": [u.to_json() for u in sorted(self.units)], "features": sorted(f.value for f in self.features)}

    def __str__(self) -> str:
        def values(items: Iterable[object]) -> str:
            return ",".join(str(i) for i in items) or "none"

        dims = sorted({u.head_dim for u in self.units})
        passes = [p for p in Pass if any(u.pass_ is p for u in self.units)]
        dtypes = [d for d in Dtype if any(u.dtype is d for u in self.units)]
        features = [f for f in Feature if f in self.features]
        others = [f for f in self.families if f != DEFAULT_FAMILY]
        named = f"{'+'.join(self.families)}: " if others else ""
        return f"{named}{values(passes)}; head dims {values(dims)}; {values(dtypes)}; features {values(features)}"


class Profile(msgspec.Struct, frozen=True):
    """A named choice of passes, head dims, dtypes and features. ``None`` stands for all that upstream has."""

    passes: frozenset[Pass] | None
    head_dims: frozenset[int] | None
    dtypes: frozenset[Dtype] | None
    features: frozenset[Feature]


ALL_FEATURES = frozenset(Feature)

PROFILES: Mapping[str, Profile] = {
    "full": Profile(None, None, None, ALL_FEATURES),
    "training": Profile(frozenset({Pass.FWD, Pass.BWD}), None, None, ALL_FEATURES),
    "inference": Profile(
        frozenset({Pass.FWD, Pass.SPLITKV}), None, None, frozenset({Feature.SOFTCAP, Feature.LOCAL, Feature.UNEVEN_K})
    ),
    "quick": Profile(frozenset({Pass.FWD}), frozenset({64}), frozenset({Dtype.BF16}), frozenset()),
}
"""``full`` is upstream's own wheel; ``quick`` compiles in about a minute and is for trying things out."""

_E = TypeVar("_E", bound=FixedWord)


def _choose(text: str, kind: type[_E], what: str) -> frozenset[_E]:
    known = {str(member.value): member for member in kind}
    words = [w for w in re.split(r"[,\s]+", text.strip().lower()) if w]
    for word in words:
        if word not in known:
            raise not_one_of(word, f"a {what}", known)
    return frozenset(known[w] for w in words)


def parse_profile(text: str) -> Profile:
    """Look a profile up by name; :raises UsageError: for a name that is not in :data:`PROFILES`."""
    if text not in PROFILES:
        raise not_one_of(text, "a profile", PROFILES)
    return PROFILES[text]


def parse_passes(text: str) -> frozenset[Pass]:
    """Read ``fwd,splitkv``; :raises UsageError: for an unknown or empty name."""
    return _choose(text, Pass, "pass") or _refuse_none("passes", "fwd,bwd")


def parse_dtypes(text: str) -> frozenset[Dtype]:
    """Read ``bf16,fp16``; :raises UsageError: for an unknown or empty name."""
    return _choose(text, Dtype, "dtype") or _refuse_none("dtypes", "bf16")


def _refuse_none(what: str, example: str) -> NoReturn:
    raise UsageError(f"The list of {what.replace('-', ' ')} is empty.", hint=f"Name some: --{what} {example}")


def parse_features(text: str) -> frozenset[Feature]:
    """Read ``softcap,local``, ``none`` or ``all``; :raises UsageError: for an unknown name."""
    word = text.strip().lower()
    if word == "all":
        return ALL_FEATURES
    if word in {"none", ""}:
        return frozenset()
    return _choose(text, Feature, "feature")


_MOST_DIGITS = 9
"""Of a number that somebody wrote: Python refuses to read one of thousands."""


def parse_head_dims(text: str) -> frozenset[int]:
    """Read ``64,128``; :raises UsageError: for something that is not a positive number, or an empty list."""
    words = [w for w in re.split(r"[,\s]+", text.strip()) if w]
    if not words:
        _refuse_none("head-dims", "64,128")
    for word in words:
        if not word.isdecimal() or len(word) > _MOST_DIGITS or int(word) == 0:
            raise UsageError(f"'{word}' is not a head dim: expected a number of elements such as 64 or 128.")
    return frozenset(int(w) for w in words)


def select(profile: Profile, available: frozenset[Unit]) -> Selection:
    """The units of a profile that an upstream tree has; :raises UsageError: for none, or a head dim without kernels."""
    dims = sorted({u.head_dim for u in available})
    for dim in sorted(profile.head_dims or ()):
        if dim not in dims:
            serving = next((d for d in dims if d >= dim), None)
            hint = f"Head dim {dim} runs on the kernels of {serving}: --head-dims {serving} --features uneven_k"
            hint = hint if serving else ""
            message = f"Upstream compiles no kernels of head dim {dim}: there are {', '.join(map(str, dims))}."
            raise UsageError(message, hint=hint)
    units = frozenset(
        u
        for u in available
        if (profile.passes is None or u.pass_ in profile.passes)
        and (profile.head_dims is None or u.head_dim in profile.head_dims)
        and (profile.dtypes is None or u.dtype in profile.dtypes)
        and u.features <= profile.features
    )
    if not units:
        raise UsageError("The selection is empty: upstream has no translation unit that fits all of it.")
    return Selection(units, profile.features)
