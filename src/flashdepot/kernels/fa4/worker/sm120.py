"""Kernels for compute capability 12: upstream's for older GPUs, with what they leave out.

They copy by cp.async and multiply by mma.sync, as on Ampere, within 99 KB of shared memory.
"""

from typing import Any

import cutlass
import cutlass.cute as cute
import functions
from cutlass import Float32, Uint32
from flash_attn.cute.flash_fwd_sm120 import FlashAttentionForwardSm120
from functions import DTYPES, Entry

_THREADS = 128


class _Forward(FlashAttentionForwardSm120):
    """Upstream's forward for any number of query heads per key head, with this library's lse for a row without keys."""

    def kernel(self, mQ, mK, mV, *rest):
        # A key head is found by a query head: the layout divides, and upstream's division by its constant is by one.
        group = mQ.shape[2] // mK.shape[2]

        def by_query_head(tensor):
            rows, dims, heads, *sequences = tensor.shape
            row_stride, dim_stride, head_stride, *sequence_stride = tensor.stride
            layout = cute.make_layout(
                (rows, dims, (group, heads), *sequences),
                stride=(row_stride, dim_stride, (0, head_stride), *sequence_stride),
            )
            return cute.make_tensor(tensor.iterator, layout)

        return super().kernel(mQ, by_query_head(mK), by_query_head(mV), *rest)

    @cute.jit
    def load_Q(self, gmem_thr_copy, gQ, sQ, block, seqlen, headdim):
        # Copies leave what lies outside of a tensor as it was in shared memory, where zero times that may be no number.
        elements_v, elements_k = self.tile_n * self.tile_hdimv, self.tile_n * self.tile_hdim
        words = (elements_v + self.tile_m * self.tile_hdim + elements_k) // 2  # v, q and k lie in this order
        begin = cute.recast_ptr(sQ.iterator - elements_v, dtype=Uint32)
        everything = cute.make_tensor(begin, cute.make_layout(words))
        cute.local_partition(everything, cute.make_layout(self.num_threads), cute.arch.thread_idx()[0]).fill(0)
        cute.arch.barrier()
        super(_Forward, self).load_Q(gmem_thr_copy, gQ, sQ, block, seqlen, headdim)

    @cute.jit
    def epilogue(self, acc_O, lse, *rest):
        for row in cutlass.range(cute.size(lse), unroll_full=True):
            lse[row] = Float32.inf if lse[row] == -Float32.inf else lse[row]
        super(_Forward, self).epilogue(acc_O, lse, *rest)


def forward(job: dict[str, Any]) -> Entry:
    """functions.forward by this GPU's kernel, of any layout but paged."""
    kernel = _Forward(
        DTYPES[job["dtype"]],
        job["head_dim"],
        job["head_dim"],
        1,
        is_causal=job["mask"] == "causal",
        is_local=job["mask"] == "local",
        pack_gqa=False,
        tile_m=job["tile_m"],
        tile_n=job["tile_n"],
        num_stages=1,
        num_threads=_THREADS,
        Q_in_regs=False,
        **functions.score_mod(job),
    )
    kernel.check_hdim_oob = kernel.check_hdim_v_oob = True
    return functions.forward(job, kernel)


KERNELS = {"fwd": forward}
