from __future__ import annotations

import pytest
from fake_torch import CPU, Tensor


@pytest.mark.parametrize("operator", ["forward", "varlen_forward", "backward", "varlen_backward"])
def test_upstreams_operators_answer_tensors_on_the_cpu_with_one_sentence(runtime, operator) -> None:
    kernel = runtime.torch.kernels[f"flash_attn::_flash_attn_{operator}", "CPU"]
    with pytest.raises(RuntimeError, match=r"runs on CUDA tensors.* on the CPU. torch 2.9.1 finds no CUDA GPU here"):
        kernel(Tensor((2, 8, 4, 64), device=CPU), softmax_scale=1.0)
