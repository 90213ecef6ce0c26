"""Copies of a page of keys or values: zeros beyond a sequence's last key and the tensor's own head dim.

Upstream's read up to the kernel's head dim, and leave what was in shared memory where there is no key. There a probability is 0,
and its product with what is not a number is not one either.
"""

import cutlass
import cutlass.cute as cute
from flash_attn.cute.paged_kv import PagedKVManager

_load = PagedKVManager.load_KV


@cute.jit
def _load_pages(self, n_block, sX, K_or_V: cutlass.Constexpr):
    if cutlass.const_expr(K_or_V == "K"):
        self.width = self.mK_paged.shape[1]
    else:
        self.width = self.mV_paged.shape[0 if self.v_gmem_transposed else 1]
    _load(self, n_block, sX, K_or_V)
    # The products read shared memory by another way than the zeros were written.
    cute.arch.fence_view_async_shared()


@cute.jit
def _copy_row_of_head(self, tXsX, tXcX, row_of_head, m, should_load):
    inside = cute.make_fragment_like(should_load)
    for k in cutlass.range_constexpr(cute.size(tXsX, mode=[2])):
        column = tXcX[0, 0, k][1]
        inside.fill(should_load[0] and column < self.width)
        target = tXsX[None, m, k]
        source = row_of_head[None, column // self.async_copy_elems]
        cute.copy(self.gmem_tiled_copy_KV, cute.make_tensor(source.iterator, target.layout), target, pred=inside)
        if not inside[0]:
            target.fill(0)


def install() -> None:
    """Every kernel that is compiled after it copies so."""
    PagedKVManager.load_KV = _load_pages
    PagedKVManager._copy_row_async = _copy_row_of_head
