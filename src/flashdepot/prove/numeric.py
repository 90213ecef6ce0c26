"""Run inside the environment under test: compare flash_attn with float64 on this machine's GPU.

It imports torch and flash_attn and nothing of flashdepot, and prints one JSON document.
The bound is that of upstream's own tests: twice the error of a plain half-precision computation, plus 1e-5, for the
output; three times and 1e-4 for gradients.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

Row = dict[str, Any]


def mask(sq: int, sk: int, causal: bool, window: tuple[int, int]) -> torch.Tensor:
    """Which keys each query sees, (sq, sk), aligned to the bottom right."""
    left, right = window
    if causal:
        right = 0
    row = torch.arange(sq, device="cuda")[:, None] + sk - sq
    column = torch.arange(sk, device="cuda")[None, :]
    seen = torch.ones((sq, sk), dtype=torch.bool, device="cuda")
    if right >= 0:
        seen &= column <= row + right
    if left >= 0:
        seen &= column >= row - left
    return seen


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    slopes: torch.Tensor | None = None,
    upcast: bool = True,
) -> torch.Tensor:
    """Plain attention over (batch, length, heads, dim): in float64, or in the inputs' own type."""
    kind = torch.float64 if upcast else q.dtype
    group = q.shape[2] // k.shape[2]
    q, k, v = q.to(kind), *(t.to(kind).repeat_interleave(group, dim=2) for t in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q / math.sqrt(q.shape[-1]), k)
    if softcap:
        scores = (scores / softcap).tanh() * softcap
    sq, sk = q.shape[1], k.shape[1]
    if slopes is not None:
        distance = (torch.arange(sq, device="cuda")[:, None] + sk - sq - torch.arange(sk, device="cuda")[None, :]).abs()
        scores = scores - slopes.to(scores.dtype)[None, :, None, None] * distance
    seen = mask(sq, sk, causal, window)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1).masked_fill(~seen.any(-1)[None, None, :, None], 0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights.to(v.dtype), v)


def error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest absolute difference."""
    return float((value.double() - exact.double()).abs().max()) if value.numel() else 0.0


def judge(name: str, found: float, plain: float, factor: float = 2.0, slack: float = 1e-5) -> Row:
    """A row of the table: the error, its bound, and whether it holds."""
    bound = factor * plain + slack
    return {"what": name, "error": found, "bound": bound, "ok": bool(found <= bound)}


def tensors(generator: torch.Generator, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Random tensors."""
    return [torch.randn(s, generator=generator, device="cuda", dtype=torch.float32).to(dtype) for s in shapes]


FORWARD: list[tuple[str, dict[str, Any]]] = [
    ("forward, head dim 64", {"d": 64}),
    ("forward, head dim 128, causal", {"d": 128, "causal": True}),
    ("forward, head dim 96, causal, unequal lengths", {"d": 96, "sq": 113, "sk": 203, "causal": True}),
    ("forward, head dim 40, odd lengths", {"d": 40, "sq": 97, "sk": 151}),
    ("forward, head dim 256, 4 queries a key head", {"d": 256, "hk": 2}),
    ("forward, head dim 128, one key head, window", {"d": 128, "hk": 1, "window": (40, 7)}),
    ("forward, head dim 64, softcap", {"d": 64, "softcap": 30.0}),
    ("forward, head dim 64, ALiBi, causal", {"d": 64, "alibi": True, "causal": True}),
    ("decode, head dim 128, 4 queries a key head", {"d": 128, "sq": 1, "sk": 3000, "hk": 2}),
]


def forward(generator: torch.Generator, dtype: torch.dtype) -> Iterator[Callable[[], list[Row]]]:
    """Dense forward problems."""
    for name, case in FORWARD:

        def run(name: str = name, case: dict[str, Any] = case) -> list[Row]:
            sq, sk, h, hk, d = (
                case.get(n, default) for n, default in (("sq", 512), ("sk", 512), ("h", 8), ("hk", 8), ("d", 64))
            )
            q, k, v = tensors(generator, dtype, (2, sq, h, d), (2, sk, hk, d), (2, sk, hk, d))
            slopes = torch.rand(h, device="cuda") * 0.3 if case.get("alibi") else None
            options = {"causal": case.get("causal", False), "softcap": case.get("softcap", 0.0)}
            window = case.get("window", (-1, -1))
            out = flash_attn_func(q, k, v, window_size=window, alibi_slopes=slopes, **options)
            exact = attention(q, k, v, window=window, slopes=slopes, **options)
            plain = attention(q, k, v, window=window, slopes=slopes, upcast=False, **options)
            return [judge(name, error(out, exact), error(plain, exact))]

        yield run


def backward(generator: torch.Generator, dtype: torch.dtype) -> Iterator[Callable[[], list[Row]]]:
    """Gradients, plain and with grouped heads."""
    for d, hk, causal in ((64, 8, False), (128, 8, True), (128, 2, True), (96, 1, False)):

        def run(d: int = d, hk: int = hk, causal: bool = causal) -> list[Row]:
            shapes = ((2, 300, 8, d), (2, 300, hk, d), (2, 300, hk, d))
            inputs = [t.requires_grad_() for t in tensors(generator, dtype, *shapes)]
            (g,) = tensors(generator, dtype, shapes[0])
            found = torch.autograd.grad(flash_attn_func(*inputs, causal=causal), inputs, g)
            exact = torch.autograd.grad(attention(*inputs, causal=causal), inputs, g.double())
            plain = torch.autograd.grad(attention(*inputs, causal=causal, upcast=False), inputs, g)
            name = f"backward, head dim {d}, {8 // hk} queries a key head{', causal' if causal else ''}"
            worst = max(
                (
                    judge(f"{name}: d{n}", error(f, e), error(p, e), 3.0, 1e-4)
                    for n, f, e, p in zip("qkv", found, exact, plain, strict=True)
                ),
                key=lambda row: row["error"] / row["bound"],
            )
            return [worst]

        yield run


def varlen(generator: torch.Generator, dtype: torch.dtype) -> Iterator[Callable[[], list[Row]]]:
    """Sequences of different lengths, packed; one of them empty."""

    def run() -> list[Row]:
        lengths = [130, 1, 0, 257]
        ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
        q, k, v = tensors(generator, dtype, *[(sum(lengths), 4, 128)] * 3)
        out = flash_attn_varlen_func(q, k, v, ends, ends, max(lengths), max(lengths), causal=True)
        errors = []
        for begin, end in zip(ends.tolist(), ends.tolist()[1:], strict=False):
            if begin < end:
                one = [t[None, begin:end] for t in (q, k, v)]
                exact = attention(*one, causal=True)
                plain = attention(*one, causal=True, upcast=False)
                errors.append((error(out[None, begin:end], exact), error(plain, exact)))
        return [judge("variable length, head dim 128, causal", max(e for e, _ in errors), max(p for _, p in errors))]

    yield run


def kv_cache(generator: torch.Generator, dtype: torch.dtype) -> Iterator[Callable[[], list[Row]]]:
    """Decoding with a cache: new keys appended, in place and in pages."""

    def check(
        name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, ends: list[int]
    ) -> list[Row]:
        errors = []
        for i, end in enumerate(ends):
            one = (q[i : i + 1], k[i : i + 1, :end], v[i : i + 1, :end])
            exact, plain = attention(*one, causal=True), attention(*one, causal=True, upcast=False)
            errors.append((error(out[i : i + 1], exact), error(plain, exact)))
        return [judge(name, max(e for e, _ in errors), max(p for _, p in errors))]

    def appended() -> list[Row]:
        q, kc, vc, kn, vn = tensors(
            generator, dtype, (3, 2, 8, 128), (3, 900, 2, 128), (3, 900, 2, 128), (3, 2, 2, 128), (3, 2, 2, 128)
        )
        used = [5, 512, 777]
        lengths = torch.tensor(used, dtype=torch.int32, device="cuda")
        out = flash_attn_with_kvcache(q, kc, vc, kn, vn, cache_seqlens=lengths, causal=True)
        for i, end in enumerate(used):
            if not torch.equal(kc[i, end : end + 2], kn[i]):
                raise RuntimeError("the new keys are not in the cache")
        return check("KV cache, 2 tokens appended, head dim 128", q, kc, vc, out, [end + 2 for end in used])

    def paged() -> list[Row]:
        q, k, v = tensors(generator, dtype, (2, 1, 4, 64), (2, 1024, 4, 64), (2, 1024, 4, 64))
        table = torch.randperm(8, generator=generator, device="cuda").to(torch.int32).view(2, 4)
        pages_k, pages_v = torch.empty_like(k).view(8, 256, 4, 64), torch.empty_like(v).view(8, 256, 4, 64)
        pages_k[table.flatten().long()] = k.view(8, 256, 4, 64)
        pages_v[table.flatten().long()] = v.view(8, 256, 4, 64)
        lengths = torch.tensor([1000, 300], dtype=torch.int32, device="cuda")
        out = flash_attn_with_kvcache(q, pages_k, pages_v, cache_seqlens=lengths, block_table=table, causal=True)
        return check("KV cache in pages of 256, head dim 64", q, k, v, out, [1000, 300])

    yield appended
    yield paged


def is_left_out(refusal: str) -> bool:
    """Whether our library refused a call because it was built without the kernel, or its only family has none."""
    return any(words in refusal for words in ("is not in this library", "this library was built without", "it has no "))


def main() -> int:
    """Run everything; a case that the build left out is skipped with its reason."""
    if not torch.cuda.is_available():
        sys.stderr.write(f"torch {torch.__version__} finds no CUDA GPU\n")
        return 1
    begun = time.monotonic()
    rows: list[Row] = []
    for dtype in (torch.float16, torch.bfloat16):
        generator = torch.Generator(device="cuda").manual_seed(20260)
        label = {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
        for cases in (forward, backward, varlen, kv_cache):
            for run in cases(generator, dtype):
                try:
                    found = run()
                except RuntimeError as problem:
                    text = str(problem)
                    ok = None if is_left_out(text) else False
                    found = [{"what": cases.__name__, "ok": ok, "reason": text[:400]}]
                rows += [{"dtype": label, **row} for row in found]
    import flash_attn  # noqa: PLC0415

    document = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "flash_attn": flash_attn.__version__,
        "file": flash_attn.__file__,
        "seconds": round(time.monotonic() - begun, 2),
        "rows": rows,
    }
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
