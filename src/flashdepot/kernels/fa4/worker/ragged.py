"""Sequences whose end is their tensor's, for kernels of datacenter Blackwell: what bounded.py says of Hopper's.

A ragged tensor's rows are one mode of three extents, as quack's ragged tensors have them in three modes, and where a sequence
is in it is one coordinate of that mode. So upstream's own offsets serve, which add to the rows of a tensor.
"""

from dataclasses import dataclass, fields
from functools import partial

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from flash_attn.cute.seqlen_info import SeqlenInfoQK
from quack.copy_utils import BIG_INT, BIG_INT_INV, MAX_INT
from traced import Instead


def ragged(tensor):
    """The rows of all sequences as one mode. A tensor with a mode for sequences has one more of them than there are."""
    mode = 1 if isinstance(tensor.stride[0], int) else 0  # of the rows: the head dim's stride is 1
    shape, stride = list(tensor.shape[:3]), list(tensor.stride[:3])
    row = stride[mode]
    rows = shape[mode] + 1 if cute.rank(tensor) == 3 else Int32(tensor.stride[3] // row) * tensor.shape[3]
    shape[mode] = (BIG_INT, MAX_INT, rows)
    stride[mode] = (row, BIG_INT_INV - row, row)
    return cute.make_tensor(tensor.iterator, cute.make_layout(tuple(shape), stride=tuple(stride)))


def is_ragged(extent):
    """Whether the extent of a mode is a ragged tensor's, of its rows."""
    return isinstance(extent, tuple) and extent[0] == BIG_INT


def rows_apart(tensor, sequences):
    """How many rows lie between the beginnings of two sequences of a tensor that had a mode for them."""
    return tensor.shape[0][2] // (sequences + 1)


def _place(offset, length):
    return (BIG_INT - length, BIG_INT, offset + length)


@dataclass(frozen=True)
class _Places(SeqlenInfoQK):
    """Where a sequence is, as its offsets in ragged tensors."""

    def offset_batch_Q(self, mQ, batch_idx, dim, padded=False, ragged=False):
        if not is_ragged(mQ.shape[0]):
            return super().offset_batch_Q(mQ, batch_idx, dim, padded, ragged)
        return cute.domain_offset((self.offset_q, 0, 0), mQ)

    def offset_batch_K(self, mK, batch_idx, dim, padded=False, ragged=False, multiple=1):
        return cute.domain_offset((self.offset_k, 0, 0), mK)


def places(argument, *, apart, q_too):
    """The argument, or where it makes a sequence's information the same with offsets in ragged tensors.

    apart: rows between two sequences of a tensor that has them one after the other; None: cu_seqlens_k says.
    """
    if not isinstance(argument, partial) or argument.func is not SeqlenInfoQK.create:
        return argument

    def create(batch_idx):
        info = argument(batch_idx)
        known = {field.name: getattr(info, field.name) for field in fields(info)}
        offset_k = info.offset_k if apart is None else batch_idx * apart
        known |= {"offset_k": _place(offset_k, info.seqlen_k), "has_cu_seqlens_k": True}
        if q_too:
            known["offset_q"] = _place(info.offset_q, info.seqlen_q)
        return _Places(**known)

    return create


def ragged_cute(outer, *, q_too):
    """The module cute, with ragged tensors behind the descriptors of loads: of k and v, and with q_too of all."""

    def of_q(operation, tensor, *rest):
        return cute.nvgpu.make_tiled_tma_atom_A(operation, ragged(tensor) if q_too else tensor, *rest)

    def of_keys(operation, tensor, *rest):
        return cute.nvgpu.make_tiled_tma_atom_B(operation, ragged(tensor), *rest)

    def size(extent, *rest, **named):
        return BIG_INT if is_ragged(extent) else cute.size(extent, *rest, **named)

    atoms = Instead(cute.nvgpu, make_tiled_tma_atom_A=of_q, make_tiled_tma_atom_B=of_keys)
    return Instead(outer, nvgpu=atoms, size=size)


def block_at_least_0(block):
    """A tile that sees no key has a block before the first: zeros of an ordinary tensor, other rows of a ragged one."""
    return cutlass.max(block, 0)
