"""Hopper's kernels: upstream's, with what they leave out."""

from typing import Any

import cutlass
import cutlass.cute as cute
import functions
import pages
from adding import adding
from bounded import bounded
from cutlass import Float32, const_expr
from early import followed, following
from falling import falling
from flash_attn.cute import flash_bwd_postprocess, flash_bwd_sm90, flash_fwd_sm90
from flash_attn.cute.flash_bwd_postprocess import FlashAttentionBackwardPostprocess
from flash_attn.cute.flash_bwd_sm90 import FlashAttentionBackwardSm90
from flash_attn.cute.flash_fwd_sm90 import FlashAttentionForwardSm90
from functions import DTYPES, Entry
from grouped import grouped
from quack.sm90_utils import make_tiled_mma
from searching import searching
from together import together
from traced import Launched
from walking import walking
from whole import ROWS, Whole

pages.install()


class _Sinks:
    """A sink of each head, which is none where there are no heads."""

    def __init__(self, sinks):
        self.sinks = sinks

    def __getitem__(self, head):
        return _sink_of(self.sinks, head)


@cute.jit
def _sink_of(sinks, head):
    sink = -Float32.inf
    if head < sinks.shape[0]:
        sink = sinks[head]
    return sink


class _Forward(FlashAttentionForwardSm90):
    """Upstream's forward for any number of query heads per key head, with this library's lse for a row without keys."""

    @cute.jit
    def load(self, mQ, mK, *rest):
        if const_expr(not self.pack_gqa):
            self.qhead_per_kvhead = mQ.shape[2] // mK.shape[2]
        super(_Forward, self).load(mQ, mK, *rest)

    @cute.jit
    def mma(self, tiled_mma_qk, tiled_mma_pv, mO, mLSE, sQ, sK, sVt, sP, sO, sink, *rest):
        super(_Forward, self).mma(tiled_mma_qk, tiled_mma_pv, mO, mLSE, sQ, sK, sVt, sP, sO, _Sinks(sink), *rest)

    @cute.jit
    def epilogue(self, acc_O, lse, *rest):
        for row in cutlass.range(cute.size(lse), unroll_full=True):
            lse[row] = Float32.inf if lse[row] == -Float32.inf else lse[row]
        super(_Forward, self).epilogue(acc_O, lse, *rest)


class _Backward(FlashAttentionBackwardSm90):
    """Upstream's backward for any number of query heads per key head above one (upstream's several stands for two)."""

    @cute.jit
    def __call__(self, q, k, *rest):
        self.heads_per_key_head = q.shape[len(q.shape) - 2] // k.shape[len(k.shape) - 2]
        super(_Backward, self).__call__(q, k, *rest)

    def kernel(self, *arguments):
        return super().kernel(
            *(
                cute.FastDivmodDivisorV2(self.heads_per_key_head)
                if isinstance(argument, cute.FastDivmodDivisorV2)
                else argument
                for argument in arguments
            )
        )


_REGISTERS = {(64, 2): (216, 40), (64, 3): (136, 24), (128, 2): (104, 24)}
"""By the tile's rows, 64 a warp group, and the blocks on an SM: registers of a thread that computes and of one that loads."""
_COMPUTING_ROWS = 128
"""Of the two warp groups that compute in a backward kernel, whatever its tile has."""


def _crowded(kernel_class, rows, blocks):
    """kernel_class, of which several blocks share an SM."""
    of_computing, of_loading = _REGISTERS[rows, blocks]

    class Crowded(kernel_class):
        # What upstream would give them goes nowhere.
        num_mma_regs = num_mma_regs_wg0 = num_mma_regs_wg1 = property(lambda _: of_computing, lambda *_: None)
        num_producer_regs = property(lambda _: of_loading, lambda *_: None)

        def kernel(self, *arguments):
            # All of an SM's memory for them, which CuTe would otherwise ask a GPU for.
            return Launched(super().kernel(*arguments), min_blocks_per_mp=blocks, preferred_smem_carveout=100)

    return Crowded


def _in_two_products(kernel_class):
    """kernel_class, whose product with v has half of the columns at a time: no instruction takes all registers of a thread."""

    class InTwoProducts(kernel_class):
        def _get_tiled_mma(self):
            of_k, _ = super()._get_tiled_mma()
            source = "RS" if self.mma_pv_is_rs else "SS"
            atoms = (self.tile_m // 64, 1, 1)
            return of_k, make_tiled_mma(self.dtype, "K", "MN", self.tile_hdimv // 2, source, atoms)

    return InTwoProducts


def forward(job: dict[str, Any]) -> Entry:
    """functions.forward by this GPU's kernel, of any layout."""
    kind = together(_Forward) if job["several_heads"] else _Forward
    if job["walks"]:
        kind = walking(kind, falling=job["falling"], o_apart=job["o_apart"])
    elif job["layout"] in ("packed", "paged_packed"):
        kind = searching(kind, flash_fwd_sm90)
    if job["layout"] in ("packed", "used"):
        kind = bounded(kind, flash_fwd_sm90, q_too=False)
    if job["blocks"] > 1:
        kind = _crowded(kind, job["tile_m"], job["blocks"])
        if job["head_dim_v"] == 256:
            kind = _in_two_products(kind)
    kernel = kind(
        DTYPES[job["dtype"]],
        job["head_dim"],
        job["head_dim_v"],
        1,
        is_causal=job["mask"] == "causal",
        is_local=job["mask"] == "local",
        pack_gqa=job["several_heads"],
        tile_m=job["tile_m"],
        tile_n=job["tile_n"],
        num_stages=job["stages"],
        num_threads=384,
        Q_in_regs=False,
        intra_wg_overlap=job["overlap"],
        mma_pv_is_rs=job["p_in_registers"],
        **functions.score_mod(job),
        paged_kv_non_tma=job["layout"] in ("paged", "paged_packed"),
    )
    # An epilogue without TMA stores a row up to the tensor's own head dim, not the kernel's.
    kernel.check_hdim_oob = kernel.check_hdim_v_oob = True
    return functions.forward(job, kernel, has_sink=True)


def backward(job: dict[str, Any]) -> Entry:
    """functions.backward by this GPU's kernel, dense or packed."""
    kind = falling(_Backward if job["several_heads"] else FlashAttentionBackwardSm90)
    if job["dq_at_once"]:
        kind = adding(kind)
    if job["grouped"]:
        kind = grouped(kind)
    if job["layout"] == "packed":
        kind = bounded(kind, flash_bwd_sm90, q_too=True)
    if job["blocks"] > 1:
        kind = _crowded(kind, _COMPUTING_ROWS, job["blocks"])
    kernel = followed(kind)(
        DTYPES[job["dtype"]],
        job["head_dim"],
        job["head_dim"],
        2 if job["several_heads"] else 1,
        job["mask"] == "causal",
        is_local=job["mask"] == "local",
        deterministic=False,
        tile_m=job["tile_m"],
        tile_n=job["tile_n"],
        Q_stage=job["stages_q"],
        dO_stage=job["stages_do"],
        PdS_stage=job["stages_pds"],
        SdP_swapAB=job["swap_sdp"],
        dKV_swapAB=job["swap_dkv"],
        dQ_swapAB=job["swap_dq"],
        AtomLayoutMSdP=job["atoms_sdp"],
        AtomLayoutNdKV=job["atoms_dkv"],
        AtomLayoutMdQ=job["atoms_dq"],
        num_threads=384,
        V_in_regs=False,
        **functions.score_mods(job),
        dQ_single_wg=job["dq_in_one_warp_group"],
    )
    return functions.backward(job, kernel)


def whole(job: dict[str, Any]) -> Entry:
    """functions.backward by this GPU's kernel for sequences whose keys are one tile, dense or packed."""
    kind = grouped(Whole, has_statistics=False)
    if job["layout"] == "packed":
        kind = bounded(kind, flash_bwd_sm90, q_too=True)
    if job["blocks"] > 1:
        kind = _crowded(kind, _COMPUTING_ROWS, job["blocks"])
    kernel = kind(
        DTYPES[job["dtype"]],
        job["head_dim"],
        job["head_dim"],
        1,
        job["mask"] == "causal",
        tile_m=ROWS,
        tile_n=job["tile_n"],
        Q_stage=2,
        dO_stage=job["stages_do"],
        PdS_stage=1,
        dKV_swapAB=job["swap_dkv"],
        AtomLayoutNdKV=job["atoms_dkv"],
    )
    kernel.parts = job["parts"]
    return functions.backward(job, kernel)


def after_backward(job: dict[str, Any]) -> Entry:
    """functions.after_backward by this GPU's kernel."""
    kernel = following(searching(FlashAttentionBackwardPostprocess, flash_bwd_postprocess))(
        DTYPES[job["dtype"]],
        job["head_dim"],
        90,
        job["tile"],
        job["threads"],
        job["atoms"],
        job["swap"],
        hdim_multiple_of=job["hdim_multiple"],
    )
    kernel.check_hdim_oob = True
    return functions.after_backward(job, kernel)


KERNELS = {
    "fwd": forward,
    "bwd": backward,
    "pre": functions.before_backward,
    "post": after_backward,
    "whole": whole,
}
