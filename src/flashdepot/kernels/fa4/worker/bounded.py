"""Kernels whose loads end where a sequence does: what lies behind its last row never reaches a product.

Upstream loads whole tiles, and takes care of rows beyond a sequence by a probability of zero. Zero times what a cache
holds behind the keys that are used is zero only where that is a number. A copy by TMA fills with zeros what lies outside
of its tensor; a ragged tensor, of quack's, makes each sequence's end its tensor's.
"""

from dataclasses import dataclass, fields
from functools import partial

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from cutlass.cute.nvgpu import cpasync
from flash_attn.cute.seqlen_info import SeqlenInfoQK
from quack import copy_utils
from traced import Instead, seeing

_RAGGED_RANK = 5  # rows, head dim, heads, and two that quack adds


def _ragged(tensor):
    """The rows of all sequences as one list of them, (rows, head dim, heads) beside what quack adds.

    A tensor with a dimension for sequences must have them a whole number of rows apart, and an extent of one sequence more
    than there are, since its last one's end is a coordinate too. The number of rows is to be had in the kernel from the
    last extent, see _rows_apart.
    """
    if cute.rank(tensor) == 3:
        return copy_utils.create_ragged_tensor_for_tma(tensor, ragged_dim=0)
    apart = Int32(tensor.stride[3] // tensor.stride[0])
    layout = cute.make_layout(tensor.shape[:3], stride=tensor.stride[:3])
    listed = copy_utils.create_ragged_tensor_for_tma(cute.make_tensor(tensor.iterator, layout), ragged_dim=0)
    shape = (*listed.shape[:4], apart * tensor.shape[3])
    return cute.make_tensor(listed.iterator, cute.make_layout(shape, stride=listed.stride))


def _rows_apart(ragged, sequences):
    return ragged.shape[4] // (sequences + 1)


def _copies(is_bounded):
    """cpasync, with ragged tensors behind the descriptors of the loads that ``is_bounded(rest)`` names."""

    def make_tiled_tma_atom(operation, tensor, *rest):
        if isinstance(operation, cpasync.CopyBulkTensorTileG2SOp) and is_bounded(rest):
            tensor = _ragged(tensor)
        return cpasync.make_tiled_tma_atom(operation, tensor, *rest)

    return Instead(cpasync, make_tiled_tma_atom=make_tiled_tma_atom)


@dataclass(frozen=True)
class _Bounds(SeqlenInfoQK):
    """Where a sequence is, and where ragged tensors have it."""

    rows_apart: Int32 = 0

    def offset_batch_Q(self, mQ, batch_idx, dim, padded=False, ragged=False):
        if cute.rank(mQ) < _RAGGED_RANK:
            return super().offset_batch_Q(mQ, batch_idx, dim, padded, ragged)
        return copy_utils.offset_ragged_tensor(mQ, self.offset_q, self.seqlen_q, ragged_dim=0)

    def offset_batch_K(self, mK, batch_idx, dim, padded=False, ragged=False, multiple=1):
        if cute.rank(mK) < _RAGGED_RANK:
            return super().offset_batch_K(mK, batch_idx, dim, padded, ragged, multiple)
        offset = self.offset_k if self.has_cu_seqlens_k else batch_idx * self.rows_apart
        return copy_utils.offset_ragged_tensor(mK, offset, self.seqlen_k, ragged_dim=0)


def _bounds_instead(argument, rows_apart):
    if not isinstance(argument, partial) or argument.func is not SeqlenInfoQK.create:
        return argument

    def create(batch_idx):
        info = argument(batch_idx)
        return _Bounds(**{field.name: getattr(info, field.name) for field in fields(info)}, rows_apart=rows_apart)

    return create


def bounded(kernel_class, module, *, q_too):
    """kernel_class of upstream's module, which loads k and v, and with q_too q and its gradient, up to a sequence's end."""

    class Bounded(kernel_class):
        def __call__(self, *arguments, **named):
            # Upstream's forward asks for no multicast of k and v by a fourth argument, and says nothing of q.
            with seeing(module, cpasync=_copies(lambda rest: q_too or len(rest) == 3)):
                super().__call__(*arguments, **named)

        def load(self, mQ, mK, *rest):
            rows_apart = 0 if cute.rank(mQ) != 4 else _rows_apart(mK, mQ.shape[3])
            super().load(mQ, mK, *(_bounds_instead(argument, rows_apart) for argument in rest))

        @cute.jit
        def load_KV(self, load, paged, sX, block: Int32, pipeline_kv, producer_state, K_or_V, page_idx=None):
            # A tile that sees no key has a block before the first: zeros of an ordinary tensor, other rows of this one.
            super(Bounded, self).load_KV(
                load, paged, sX, cutlass.max(block, 0), pipeline_kv, producer_state, K_or_V, page_idx
            )

    return Bounded
