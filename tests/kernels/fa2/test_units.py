from __future__ import annotations

import pytest

from flashdepot.kernels.fa2 import make_unit, parse_unit
from flashdepot.model.selection import Dtype, Pass, Unit


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("flash_fwd_hdim64_bf16_sm80", make_unit(Pass.FWD, 64, Dtype.BF16, causal=False)),
        ("flash_fwd_split_hdim256_fp16_causal_sm80", make_unit(Pass.SPLITKV, 256, Dtype.FP16, causal=True)),
        ("flash_bwd_hdim160_bf16_causal_sm80", make_unit(Pass.BWD, 160, Dtype.BF16, causal=True)),
    ],
)
def test_a_unit_is_read_from_upstreams_file_name_and_written_back(name: str, unit: Unit) -> None:
    assert parse_unit(name) == unit
    assert unit.name == name


@pytest.mark.parametrize("name", ["flash_api", "flash_fwd_hdim64_fp8_sm80", "flash_fwd_hdim64_bf16_sm90", "generate"])
def test_other_file_names_are_no_units(name: str) -> None:
    assert parse_unit(name) is None
