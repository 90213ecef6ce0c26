"""The translation units of FlashAttention-2 and their names: upstream has a file for each."""

from __future__ import annotations

import re

from flashdepot.model.selection import Dtype, Pass, Unit

NAME = "fa2"

NAMESPACE = "flashdepot_fa2"
"""The C++ namespace of the kernels: ours, so that another FlashAttention in the same process never meets them."""

NAMESPACE_MACRO = f"-DFLASH_NAMESPACE={NAMESPACE}"

_FILE_PASS = {"fwd": Pass.FWD, "fwd_split": Pass.SPLITKV, "bwd": Pass.BWD}
_PASS_FILE = {p: name for name, p in _FILE_PASS.items()}
_FILE = r"flash_(fwd_split|fwd|bwd)_hdim(\d+)_(bf16|fp16)(_causal)?_sm80"


def make_unit(pass_: Pass, head_dim: int, dtype: Dtype, *, causal: bool) -> Unit:
    """The unit with all kernels of one pass, head dim, dtype and causality, under the name of upstream's file."""
    name = f"flash_{_PASS_FILE[pass_]}_hdim{head_dim}_{dtype}{'_causal' if causal else ''}_sm80"
    return Unit(NAME, pass_, head_dim, dtype, causal, name)


def parse_unit(name: str) -> Unit | None:
    """Read an upstream file name without its ending, such as ``flash_fwd_hdim64_bf16_causal_sm80``.

    :returns: the unit, or ``None`` for a name that is not a unit's.
    """
    match = re.fullmatch(_FILE, name)
    if match is None:
        return None
    return make_unit(_FILE_PASS[match[1]], int(match[2]), Dtype(match[3]), causal=bool(match[4]))
