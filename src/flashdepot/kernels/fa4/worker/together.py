"""Forward kernels of which a tile's rows are queries of all query heads that share a key head.

Queries of one head fill tiles badly where they are few. Upstream has such kernels for one number of heads each; here it is
an argument. Threads copy the rows of q and o, whose addresses have no single stride.
"""

from dataclasses import dataclass, replace
from functools import partial

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from cutlass.cutlass_dsl import T
from flash_attn.cute import tile_scheduler, utils
from flash_attn.cute.block_info import BlockInfo
from flash_attn.cute.mask import AttentionMask
from flash_attn.cute.pack_gqa import PackGQA

_load_q = PackGQA.load_Q


class _Several(Int32, metaclass=type(Int32), width=32, signed=True, mlir_type=T.i32):
    """A number of heads that upstream's code takes for more than one while it compiles."""

    def __eq__(self, _):
        return False

    def __ne__(self, _):
        return True

    def __gt__(self, _):
        return True

    __hash__ = None


@dataclass
class _Decoder(tile_scheduler.VarlenDecoder):
    qhead_per_kvhead_packgqa: Int32 = 1


@cute.jit
def _load_rows(self, mQ, sQ, gmem_tiled_copy, tidx, block, seqlen):
    """Upstream's leaves in shared memory what was there beyond the tensor's own head dim."""
    columns = gmem_tiled_copy.get_slice(tidx).partition_S(
        cute.make_identity_tensor((self.m_block_size, self.head_dim_padded))
    )
    inside = utils.predicate_k(columns, limit=mQ.shape[1])
    target = gmem_tiled_copy.get_slice(tidx).partition_D(sQ)
    for k in cutlass.range_constexpr(cute.size(target.shape[2])):
        if not inside[0, 0, k]:
            target[None, None, k].fill(0)
    cute.arch.fence_view_async_shared()
    _load_q(self, mQ, sQ, gmem_tiled_copy, tidx, block, seqlen)


PackGQA.load_Q = _load_rows
tile_scheduler.VarlenDecoder = _Decoder


def together(kernel_class):
    """kernel_class for several query heads a key head, any number of them."""

    class Together(kernel_class):
        use_tma_Q = property(lambda _: False, lambda *_: None)

        def __call__(self, q, k, *rest, **named):
            self.qhead_per_kvhead = _Several(q.shape[len(q.shape) - 2] // k.shape[len(k.shape) - 2])
            super().__call__(q, k, *rest, **named)

        @cute.jit
        def load(self, mQ, *rest):
            self.qhead_per_kvhead = _Several(mQ.shape[0][0])
            super(Together, self).load(mQ, *map(self._known, rest))

        @cute.jit
        def mma(self, tiled_mma_qk, tiled_mma_pv, mO, *rest):
            self.qhead_per_kvhead = _Several(mO.shape[0][0])
            super(Together, self).mma(tiled_mma_qk, tiled_mma_pv, mO, *map(self._known, rest))

        def _known(self, argument):
            """The same with this kernel's number of heads, where it has the launching function's."""
            if isinstance(argument, BlockInfo):
                return replace(argument, qhead_per_kvhead_packgqa=self.qhead_per_kvhead)
            if isinstance(argument, partial) and argument.func is AttentionMask:
                return partial(argument, qhead_per_kvhead_packgqa=self.qhead_per_kvhead)
            return argument

    return Together
