"""Kernels for compute capability 10 and 11: upstream's for datacenter Blackwell, with what they leave out.

They copy by TMA and multiply by tcgen05.mma, into tensor memory.
"""

from typing import Any

import cutlass
import cutlass.cute as cute
import functions
import pages
from cutlass import Float32
from flash_attn.cute import flash_bwd_sm100, flash_fwd_sm100
from flash_attn.cute.bwd_accum_tile import AccumTileOrder
from flash_attn.cute.flash_bwd_postprocess import FlashAttentionBackwardPostprocess
from flash_attn.cute.flash_bwd_sm100 import FlashAttentionBackwardSm100
from flash_attn.cute.flash_fwd_sm100 import FlashAttentionForwardSm100
from functions import DTYPES, Entry
from ragged import block_at_least_0, places, ragged_cute, rows_apart
from traced import Instead, seeing
from walking import RowsThenHeads

pages.install()


class _Group:
    """How many query heads share a key head, by the tensors that a kernel loads: heads are divided by it.

    Upstream asks of its own constant whether it is above one.
    """

    def __init__(self):
        self.q = self.k = None

    def __gt__(self, other):
        return True

    def __eq__(self, other):
        return False

    __hash__ = None

    def __rfloordiv__(self, head):
        return head // (self.q.shape[2] // self.k.shape[2])


class _Lse:
    """Rows of lse, where a row that sees no key gets infinity: upstream's is less than nothing."""

    def __init__(self, rows):
        self._rows = rows

    @cute.jit
    def __setitem__(self, row, lse):
        self._rows[row] = Float32.inf if lse == -Float32.inf else lse

    def __extract_mlir_values__(self):
        return cutlass.extract_mlir_values(self._rows)

    def __new_from_mlir_values__(self, values):
        return _Lse(cutlass.new_from_mlir_values(self._rows, values))


def _local_tile(tensor, tiler, *rest, **named):
    """Lse is the only tile with one mode."""
    tile = cute.local_tile(tensor, tiler, *rest, **named)
    return _Lse(tile) if len(tiler) == 1 else tile


class _Forward(FlashAttentionForwardSm100):
    """Upstream's forward for any number of query heads per key head, with this library's lse for a row without keys."""

    seen = Instead(cute, local_tile=_local_tile)

    def __call__(self, *arguments, **named):
        with seeing(flash_fwd_sm100, cute=self.seen):
            super().__call__(*arguments, **named)

    def load(self, mma_qk, mma_pv, mQ, mK, *rest, **named):
        self.qhead_per_kvhead.q, self.qhead_per_kvhead.k = mQ, mK
        super().load(mma_qk, mma_pv, mQ, mK, *rest, **named)


class _Bounded(_Forward):
    """The same, with loads of k and v that end where a sequence does."""

    seen = ragged_cute(_Forward.seen, q_too=False)

    def load(self, mma_qk, mma_pv, mQ, mK, *rest, **named):
        apart = None if cute.rank(mQ) == 3 else rows_apart(mK, mQ.shape[3])
        rest = (places(argument, apart=apart, q_too=False) for argument in rest)
        super().load(mma_qk, mma_pv, mQ, mK, *rest, **named)

    def load_KV(self, *arguments, block, **named):
        super().load_KV(*arguments, block=block_at_least_0(block), **named)


def forward(job: dict[str, Any]) -> Entry:
    """functions.forward by this GPU's kernel, of any layout."""
    kind = _Bounded if job["layout"] in ("packed", "used") else _Forward
    kernel = kind(
        job["head_dim"],
        job["head_dim"],
        _Group(),
        is_causal=job["mask"] == "causal",
        is_local=job["mask"] == "local",
        paged_kv_non_tma=job["layout"] == "paged",
        m_block_size=job["tile_m"],
        n_block_size=job["tile_n"],
        q_stage=job["q_tiles"],
        is_static_persistent=job["walks"],
        **functions.score_mod(job),
        is_varlen_q=job["layout"] == "packed",
        use_s_ping_pong=job["s_in_turn"],
    )
    # Rows are stored up to the tensor's own head dim, not the kernel's.
    kernel.check_hdim_oob = kernel.check_hdim_v_oob = True
    if job["walks"]:
        kernel.TileScheduler = RowsThenHeads
    return functions.forward(job, kernel)


class _Backward(FlashAttentionBackwardSm100):
    """Upstream's backward for any number of query heads per key head, with gradients up to the tensor's own head dim."""

    def load(self, mma_s, mma_dp, mma_dv, mma_dk, mma_dq, mQ, mK, *rest, **named):
        if isinstance(self.qhead_per_kvhead, _Group):
            self.qhead_per_kvhead.q, self.qhead_per_kvhead.k = mQ, mK
        super().load(mma_s, mma_dp, mma_dv, mma_dk, mma_dq, mQ, mK, *rest, **named)

    def epilogue_dKV(self, *arguments):
        self.head_dim = self.head_dim_v = arguments[10].shape[1]
        return super().epilogue_dKV(*arguments)


class _BoundedBackward(_Backward):
    """The same, with loads of all tensors that end where a sequence does."""

    def __call__(self, *arguments, **named):
        with seeing(flash_bwd_sm100, cute=ragged_cute(cute, q_too=True)):
            super().__call__(*arguments, **named)

    def load(self, *rest, **named):
        super().load(*(places(argument, apart=None, q_too=True) for argument in rest), **named)


def backward(job: dict[str, Any]) -> Entry:
    """functions.backward by this GPU's kernel, dense or packed."""
    kind = _BoundedBackward if job["layout"] == "packed" else _Backward
    kernel = kind(
        job["head_dim"],
        job["head_dim"],
        job["mask"] == "causal",
        job["mask"] == "local",
        _Group() if job["several_heads"] else 1,
        tile_m=job["tile_m"],
        tile_n=job["tile_n"],
        **functions.score_mods(job),
    )
    kernel.check_hdim_oob = kernel.check_hdim_v_oob = True
    return functions.backward(job, kernel)


def after_backward(job: dict[str, Any]) -> Entry:
    """functions.after_backward by this GPU's kernel."""
    kernel = FlashAttentionBackwardPostprocess(
        DTYPES[job["dtype"]],
        job["head_dim"],
        100,
        job["tile"],
        128,
        1,
        accum_order=AccumTileOrder.TMEM_FRAG_1CTA,
    )
    kernel.check_hdim_oob = True
    return functions.after_backward(job, kernel)


KERNELS = {"fwd": forward, "bwd": backward, "pre": functions.before_backward, "post": after_backward}
