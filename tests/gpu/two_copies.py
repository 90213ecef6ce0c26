"""torch's FlashAttention and ours in one process, by turns. Started by test_two_copies.py, once for each order.

    two_copies.py LIBRARY torch-alone|torch-first|ours-first

Prints one line of JSON: the largest error of each against float64, as a part of what upstream's own tests allow (twice
that of a plain computation in bfloat16, and 1e-5), and a digest of all that torch computed.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.fa_abi import Dtype, Flag, ForwardArgs, Status, Tensor

SHAPE = (2, 512, 8, 64)  # batch, length, heads, dim
ROUNDS = 8


def load_ours(path: str) -> ctypes.CDLL:
    """With its symbols visible to whatever is loaded afterwards: the worst that a program can do."""
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    library.fa_last_error.restype = ctypes.c_char_p
    return library


def main(path: str, order: str) -> int:
    ours = load_ours(path) if order == "ours-first" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch  # noqa: PLC0415  (the order of loading is what is tried)
        from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415
    if order == "torch-first":
        torch.zeros(1, device="cuda")  # its libraries are loaded and its context made
        ours = load_ours(path)

    def theirs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            heads_first = (t.transpose(1, 2) for t in (q, k, v))
            return torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=causal).transpose(1, 2)

    def own(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
        out = torch.empty_like(q)
        lse = torch.empty(SHAPE[0], SHAPE[2], SHAPE[1], device="cuda")
        args = ForwardArgs(size=ctypes.sizeof(ForwardArgs), flags=Flag.CAUSAL if causal else 0, dtype=Dtype.BF16)
        args.stream = torch.cuda.current_stream().cuda_stream
        args.batch, args.seqlen_q, args.heads_q, args.head_dim = SHAPE
        args.seqlen_k, args.heads_k = SHAPE[1], SHAPE[2]
        args.q, args.k, args.v, args.o = (Tensor(t.data_ptr(), *t.stride()[:3]) for t in (q, k, v, out))
        args.lse = lse.data_ptr()
        args.num_splits = 1  # more need a workspace
        if ours.fa_fwd(ctypes.byref(args)) != Status.OK:
            raise RuntimeError(ours.fa_last_error().decode())
        return out

    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
        """Attention step by step, in the precision of its inputs."""
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-1, -2) / SHAPE[3] ** 0.5
        if causal:
            scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2)

    generator = torch.Generator("cuda").manual_seed(0)
    streams = [torch.cuda.default_stream(), torch.cuda.Stream()]
    worst = {"theirs": 0.0, "ours": 0.0}
    digest = hashlib.sha256()
    for step in range(ROUNDS):
        q, k, v = (torch.randn(SHAPE, generator=generator, device="cuda").bfloat16() for _ in "qkv")
        torch.cuda.synchronize()
        causal = step % 2 == 1
        with torch.cuda.stream(streams[step // 2 % 2]):
            before = theirs(q, k, v, causal=causal)
            found = own(q, k, v, causal=causal) if ours else None
            after = theirs(q, k, v, causal=causal)
        torch.cuda.synchronize()
        expected = plain(q.double(), k.double(), v.double(), causal=causal)
        allowed = 2 * float((plain(q, k, v, causal=causal).double() - expected).abs().max()) + 1e-5
        for name, tensors in {"theirs": (before, after), "ours": (found,) if ours else ()}.items():
            for tensor in tensors:
                if not tensor.isfinite().all():
                    raise RuntimeError(f"{name} has numbers that are not finite")
                worst[name] = max(worst[name], float((tensor.double() - expected).abs().max()) / allowed)
        for tensor in (before, after):
            digest.update(tensor.contiguous().view(torch.int16).cpu().numpy().tobytes())
    print(json.dumps({**worst, "digest": digest.hexdigest(), "torch": torch.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
