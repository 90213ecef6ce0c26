"""Backward kernels whose threads add dq to its sum themselves.

Upstream puts dq into shared memory, from where a copy adds it. At head dim 256 that takes 64 KB, and leaves room for tiles of
48 keys. Each tile adds all of dq once, so that fewer and larger ones have less to add. A thread has one half of its part of dq
after the other, so that tiles of 80 keys have registers for their sums.
"""

import cutlass.cute as cute
from cutlass import Float32
from cutlass.cute.nvgpu import warpgroup
from flash_attn.cute import copy_utils, flash_bwd_sm90
from quack.sm90_utils import make_tiled_mma
from traced import Instead, seeing

_WARP_GROUP = 128  # threads
_HALVES = 2  # of dq, each in both warp groups
_AT_A_TIME = 4  # numbers that a thread adds with one instruction


def _nothing(*, barrier_id, number_of_threads):
    """Stands for the barriers around the shared memory that is not there."""


def part_of_dq(product, number, parts, stage):
    """Issue one of so many parts of upstream's product of ds and k, by columns: the registers that will hold it."""
    tiled_mma, (rows, columns), ds, k = product
    part = cute.make_rmem_tensor(tiled_mma.partition_shape_C((rows, columns // parts)), Float32)
    warpgroup.fence()
    atom = cute.make_mma_atom(tiled_mma.op)
    for step in range(cute.size(ds.shape[2])):
        atom.set(warpgroup.Field.ACCUMULATE, step > 0)
        keys = cute.append_ones(k[None, number, step], up_to_rank=2)
        cute.gemm(atom, part, ds[None, None, step, stage], keys, part)
    warpgroup.commit_group()
    return part


def unstaged(kernel_class):
    """kernel_class without shared memory for dq, of which a thread has ``parts``, one after the other."""

    class Unstaged(kernel_class):
        parts = 1

        def _get_shared_storage_cls(self):
            layout, self.sdQaccum_layout = self.sdQaccum_layout, cute.make_layout(_AT_A_TIME)
            made = super()._get_shared_storage_cls()
            self.sdQaccum_layout = layout
            return made

        def dQaccum_store(self, *arguments):
            """Upstream's warp that has the copies made has nothing to do."""

        def _get_tiled_mma(self):
            *others, _ = super()._get_tiled_mma()
            columns = self.tile_hdim // self.parts // self.num_wg_dQ
            return *others, make_tiled_mma(self.dtype, "K", "MN", columns, atom_layout_mnk=(1, self.num_wg_dQ, 1))

    return Unstaged


def adding(kernel_class):
    """kernel_class without shared memory for dq. The sum lies as upstream's copy would have it."""

    class Adding(unstaged(kernel_class)):
        parts = _HALVES
        in_block = False

        def __call__(self, *arguments, **named):
            arch = Instead(cute.arch, barrier=_nothing, barrier_arrive=_nothing)
            with seeing(flash_bwd_sm90, cute=Instead(cute, arch=arch, autovec_copy=self._add)):
                super().__call__(*arguments, **named)

        def mma(self, *arguments, **named):
            cute.arch.griddepcontrol_wait()  # for the zeros that are added to
            self.dq_sum, self.thread = arguments[8], arguments[20]
            super().mma(*arguments, **named)

        def mma_one_m_block(self, m_block, *states, **named):
            of = named["score_mod_fn"].keywords
            start = m_block * (self.tile_m * self.tile_hdim)
            if cute.rank(self.dq_sum) == 2:  # packed
                start += of["seqlen_info"].padded_offset_q * self.tile_hdim
                rows = self.dq_sum[None, of["head_idx"]]
            else:
                rows = self.dq_sum[None, of["head_idx"], of["batch_idx"]]
            # The kernel that turns the sum into dq reads it as if a warp group had had the columns that are a half here.
            start += self.thread // _WARP_GROUP * (self.tile_m * self.tile_hdim // _HALVES // self.num_wg_dQ)
            self.own_part = rows.iterator + start + self.thread % _WARP_GROUP * _AT_A_TIME
            self.dq_product = named["mma_dsk_fn"].args
            self.in_block = True
            states = super().mma_one_m_block(m_block, *states, **{**named, "mma_dsk_fn": self._first_half})
            self.in_block = False
            return states

        def _first_half(self, *, A_idx, wg_wait):
            self.stage = A_idx
            self.half = self._half(0)
            warpgroup.wait_group(wg_wait)
            return self.half

        def _half(self, number):
            return part_of_dq(self.dq_product, number, _HALVES, self.stage)

        def _add(self, source, target):
            if not self.in_block or target.memspace != cute.AddressSpace.smem:
                cute.autovec_copy(source, target)
                return
            self._add_half(self.half, 0)
            cute.arch.sync_warp()
            half = self._half(1)
            warpgroup.wait_group(0)
            self._add_half(half, 1)

        def _add_half(self, half, number):
            part = self.own_part + number * (self.tile_m * self.tile_hdim // _HALVES)
            for i in range(0, cute.size(half), _AT_A_TIME):
                copy_utils.atomic_add_fp32x4(*(half[i + j] for j in range(_AT_A_TIME)), part + i * _WARP_GROUP)

    return Adding
