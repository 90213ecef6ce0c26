"""The installed flash_attn as its users meet it: compiled, captured, from several threads, over odd layouts."""

from __future__ import annotations

import threading

import pytest
from torch_with_gpu import torch

flash_attn = pytest.importorskip("flash_attn", reason="flash_attn is not installed; 'flashdepot install' does that")


def inputs(*, seqlen: int = 256, heads: int = 8, heads_k: int = 8, dim: int = 64, grad: bool = False) -> list:
    generator = torch.Generator(device="cuda").manual_seed(5)
    shapes = [(2, seqlen, n, dim) for n in (heads, heads_k, heads_k)]
    return [
        torch.randn(s, generator=generator, device="cuda", dtype=torch.bfloat16).requires_grad_(grad) for s in shapes
    ]


def plain(q, k, v, *, causal: bool) -> torch.Tensor:
    group = q.shape[2] // k.shape[2]
    turned = [t.double().repeat_interleave(n, 2).transpose(1, 2) for t, n in ((q, 1), (k, group), (v, group))]
    return torch.nn.functional.scaled_dot_product_attention(*turned, is_causal=causal).transpose(1, 2)


def assert_close(found: torch.Tensor, exact: torch.Tensor) -> None:
    """As far off as the last bit of bf16 at the largest value, as gradients of torch's own kernels are, or 0.03."""
    assert float((found.double() - exact).abs().max()) < max(3e-2, 2**-7 * float(exact.abs().max()))


def test_torch_compile_takes_it_whole_with_its_gradient() -> None:
    q, k, v = inputs(grad=True)

    @torch.compile(fullgraph=True)
    def step(q, k, v):
        return flash_attn.flash_attn_func(q * 1.0, k, v, causal=True) * 2.0

    out = step(q, k, v)
    assert_close(out / 2, plain(q, k, v, causal=True))
    gradient = torch.autograd.grad(out.float().sum(), q)[0]
    eager = flash_attn.flash_attn_func(q, k, v, causal=True) * 2.0
    assert_close(gradient, torch.autograd.grad(eager.float().sum(), q)[0].double())


def test_a_captured_call_replays_over_new_inputs() -> None:
    q, k, v = inputs(heads_k=2)
    flash_attn.flash_attn_func(q, k, v, causal=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = flash_attn.flash_attn_func(q, k, v, causal=True)
    for seed in (1, 2):
        q.copy_(torch.randn(q.shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda"))
        graph.replay()
        assert_close(out, plain(q, k, v, causal=True))


def inputs_to_drop_from() -> list:
    try:
        flash_attn.flash_attn_func(*inputs(), dropout_p=0.3)
    except RuntimeError as problem:
        pytest.skip(str(problem))
    return inputs()


def test_dropout_under_capture_works_or_says_why_not() -> None:
    q, k, v = inputs_to_drop_from()
    flash_attn.flash_attn_func(q, k, v, dropout_p=0.3)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    refused = ""
    try:
        with torch.cuda.graph(graph):
            out = flash_attn.flash_attn_func(q, k, v, dropout_p=0.3)
    except RuntimeError as problem:
        refused = str(problem)
    if refused:
        assert "CUDA graph" in refused
        return
    graph.replay()
    first = out.clone()
    graph.replay()
    assert not torch.equal(first, out), "each replay draws again"


def test_dropout_follows_torchs_generator() -> None:
    q, k, v = inputs_to_drop_from()
    torch.cuda.manual_seed(3)
    first = flash_attn.flash_attn_func(q, k, v, dropout_p=0.2)
    second = flash_attn.flash_attn_func(q, k, v, dropout_p=0.2)
    torch.cuda.manual_seed(3)
    assert torch.equal(flash_attn.flash_attn_func(q, k, v, dropout_p=0.2), first)
    assert not torch.equal(first, second)


def test_several_threads_each_on_its_stream_get_their_own_results() -> None:
    q, k, v = inputs()
    exact = plain(q, k, v, causal=False)
    results: dict[int, torch.Tensor] = {}
    streams = [torch.cuda.Stream() for _ in range(8)]

    def work(number: int) -> None:
        with torch.cuda.stream(streams[number]):
            for _ in range(20):
                out = flash_attn.flash_attn_func(q * (1 if number % 2 else 0), k, v)
            torch.cuda.current_stream().synchronize()
            results[number] = out

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    uniform = plain(q * 0, k, v, causal=False)
    for number, out in results.items():
        assert_close(out, exact if number % 2 else uniform)
    assert len(results) == 8


def test_inputs_that_are_not_contiguous_need_no_copy_of_the_user() -> None:
    packed = torch.randn(2, 200, 3, 8, 64, device="cuda", dtype=torch.bfloat16)
    q, k, v = packed.unbind(2)
    assert not q.is_contiguous()
    assert_close(flash_attn.flash_attn_func(q, k, v), plain(q, k, v, causal=False))
    turned = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    assert_close(flash_attn.flash_attn_func(*turned), plain(q, k, v, causal=False))


@pytest.mark.parametrize("scale", [0.0, -0.25])
def test_a_scale_that_is_not_positive_means_what_it_says(scale: float) -> None:
    q, k, v = inputs(grad=True)
    exact_inputs = [t.detach().double().requires_grad_() for t in (q, k, v)]
    turned = [t.transpose(1, 2) for t in exact_inputs]
    exact = torch.nn.functional.scaled_dot_product_attention(*turned, scale=scale).transpose(1, 2)
    found = flash_attn.flash_attn_func(q, k, v, softmax_scale=scale)
    assert_close(found, exact)
    ours = torch.autograd.grad(found.sum(), (q, k, v))
    for gradient, theirs in zip(ours, torch.autograd.grad(exact.sum(), exact_inputs), strict=True):
        assert_close(gradient, theirs)


@pytest.mark.parametrize("dim", [60, 52])
def test_a_cache_of_a_head_dim_that_8_does_not_divide_is_padded_and_written_back(dim: int) -> None:
    q, keys, values = inputs(seqlen=64, heads=4, heads_k=2, dim=dim)
    k_cache, v_cache = torch.zeros_like(keys), torch.zeros_like(values)
    k_cache[:, :40], v_cache[:, :40] = keys[:, :40], values[:, :40]
    lengths = torch.full((2,), 40, dtype=torch.int32, device="cuda")
    out = flash_attn.flash_attn_with_kvcache(
        q[:, :24], k_cache, v_cache, keys[:, 40:], values[:, 40:], cache_seqlens=lengths, causal=False
    )
    assert torch.equal(k_cache, keys)
    assert torch.equal(v_cache, values)
    assert_close(out, plain(q[:, :24], keys, values, causal=False))


def test_packed_gradients_over_grouped_heads_leave_zeros_where_no_sequence_is() -> None:
    from flash_attn.flash_attn_interface import _flash_attn_varlen_backward, _flash_attn_varlen_forward  # noqa: PLC0415

    q, k, v = (t.reshape(-1, *t.shape[2:]) for t in inputs(seqlen=128, heads=8, heads_k=2))
    bounds = torch.tensor([0, 100, 200], dtype=torch.int32, device="cuda")  # the last 56 rows belong to nobody
    settings = (bounds, bounds, 100, 100, 0.0, 0.125, True)
    out, lse, _, rng = _flash_attn_varlen_forward(q, k, v, *settings, zero_tensors=True)
    dq, dk, dv = (torch.full_like(t, 7.0) for t in (q, k, v))
    _flash_attn_varlen_backward(
        torch.ones_like(out), q, k, v, out, lse, dq, dk, dv, *settings, -1, -1, 0.0, None, False, rng, zero_tensors=True
    )
    for gradient in (dq, dk, dv, out):
        assert not gradient[200:].any()
    for first in (0, 100):
        rows = slice(first, first + 100)
        exact_inputs = [t[rows].double().requires_grad_() for t in (q, k, v)]
        exact = plain(*(t[None] for t in exact_inputs), causal=True)
        expected = torch.autograd.grad(exact.sum(), exact_inputs)
        for gradient, theirs in zip((dq, dk, dv), expected, strict=True):
            assert float((gradient[rows].double() - theirs).abs().max()) < 0.05 * float(theirs.abs().max()) + 1e-2


@pytest.mark.skipif(isinstance(torch, str) or torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_of_another_device_run_there() -> None:
    q, k, v = (t.to("cuda:1") for t in inputs())
    out = flash_attn.flash_attn_func(q, k, v)
    assert out.device.index == 1
    assert torch.cuda.current_device() == 0
    assert_close(out, plain(q, k, v, causal=False))
