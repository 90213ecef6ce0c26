"""Copies of a page of keys or values up to the tensor's own head dim; upstream's read up to the kernel's."""

import cutlass
import cutlass.cute as cute
from flash_attn.cute.paged_kv import PagedKVManager


@cute.jit
def _copy_row_of_head(self, tXsX, tXcX, row_of_head, m, should_load):
    head_dim = self.mK_paged.shape[1]
    inside = cute.make_fragment_like(should_load)
    for k in cutlass.range_constexpr(cute.size(tXsX, mode=[2])):
        column = tXcX[0, 0, k][1]
        inside.fill(should_load[0] and column < head_dim)
        target = tXsX[None, m, k]
        source = row_of_head[None, column // self.async_copy_elems]
        cute.copy(self.gmem_tiled_copy_KV, cute.make_tensor(source.iterator, target.layout), target, pred=inside)


def install() -> None:
    """Every kernel that is compiled after it copies so."""
    PagedKVManager._copy_row_async = _copy_row_of_head
