"""What the C side cannot see of tensors: their device, dtype, shape and strides. Texts are upstream's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from .layout import BF16, FP16

DTYPES = {torch.float16: FP16, torch.bfloat16: BF16}

Address = tuple[int, int, int, int]
"""A fa_tensor: data pointer, and strides of batch, row and head."""

_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # noqa: SLF001  (a Stream object costs 2 us)


def current_stream(device: int) -> int:
    """The cudaStream_t that torch launches on now."""
    stream: int = _raw_stream(device) if _raw_stream else torch.cuda.current_stream(device).cuda_stream
    return stream


def read_kind(q: Any, k: Any, v: Any, k_name: str = "k", v_name: str = "v") -> tuple[int, int]:
    """The device ordinal and the FA_ dtype that three tensors share.

    :raises RuntimeError: when they share none, or it is one that the kernels do not run on.
    """
    dtype = q.dtype
    device: int = q.get_device()
    code = DTYPES.get(dtype)
    if (
        code is None
        or k.dtype != dtype
        or v.dtype != dtype
        or not q.is_cuda
        or k.get_device() != device
        or v.get_device() != device
    ):
        if code is None:
            raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
        for tensor, word in ((k, "key"), (v, "value")):
            if tensor.dtype != dtype:
                raise RuntimeError(f"query and {word} must have the same dtype")
        for tensor, name in ((q, "q"), (k, k_name), (v, v_name)):
            require_device(tensor, name, device)
    return device, code


def require_device(tensor: Any, name: str, device: int) -> None:
    """Refuse a tensor that is not on this CUDA device."""
    if not tensor.is_cuda:
        raise RuntimeError(f"{name} must be on CUDA, and is on {tensor.device}")
    if tensor.get_device() != device:
        raise RuntimeError(f"{name} is on {tensor.device} and q on cuda:{device}; all must be on the same device")


def require_same(tensor: Any, q: Any, device: int, text: str, name: str) -> None:
    """Refuse a tensor of another dtype than q's, with that text, or on another device."""
    if tensor.dtype != q.dtype:
        raise RuntimeError(text)
    require_device(tensor, name, device)


def require_shape(tensor: Any, shape: tuple[int, ...], name: str, words: str) -> None:
    """Refuse another shape; ``words`` are the dimensions' names."""
    if tensor.shape != shape:
        refuse_shape(tensor, name, words, shape)


def refuse_shape(tensor: Any, name: str, words: str, shape: tuple[int, ...] = ()) -> NoReturn:
    """Raise the error of a shape that is not as it must be."""
    wanted = f" = {shape}" if shape else ""
    raise RuntimeError(f"{name} must have shape ({words}){wanted}, and has {tuple(tensor.shape)}")


class NotContiguousError(RuntimeError):
    """The last dimension of a tensor is not contiguous."""


def dense(tensor: Any, name: str = "Input tensor") -> Address:
    """The address of a (batch, rows, heads, head_dim) tensor."""
    batch, row, head, last = tensor.stride()
    if last != 1:
        raise NotContiguousError(f"{name} must have contiguous last dimension")
    return tensor.data_ptr(), batch, row, head


def packed(tensor: Any, name: str = "Input tensor") -> Address:
    """The address of a (total rows, heads, head_dim) tensor."""
    row, head, last = tensor.stride()
    if last != 1:
        raise NotContiguousError(f"{name} must have contiguous last dimension")
    return tensor.data_ptr(), 0, row, head


def laid_out(
    tensor: Any, strides: tuple[int, int, int], other: Callable[..., Address] = dense, name: str = "Input tensor"
) -> Address:
    """The address of a tensor that has these strides if it is contiguous, which costs less to ask than its strides."""
    return (tensor.data_ptr(), *strides) if tensor.is_contiguous() else other(tensor, name)


def int32(tensor: Any, name: str, device: int, length: int, words: str) -> int:
    """The data pointer of a contiguous int32 vector; 0 for None."""
    if tensor is None:
        return 0
    if tensor.dtype != torch.int32:
        raise RuntimeError(f"{name} must have dtype int32")
    require_device(tensor, name, device)
    if not tensor.is_contiguous():
        raise RuntimeError(f"{name} must be contiguous")
    require_shape(tensor, (length,), name, words)
    pointer: int = tensor.data_ptr()
    return pointer


def pages(block_table: Any, device: int, batch: int) -> tuple[int, int]:
    """The data pointer and batch stride of a block table."""
    require_device(block_table, "block_table", device)
    if block_table.dtype != torch.int32:
        raise RuntimeError("block_table must have dtype torch.int32")
    if block_table.dim() != 2 or block_table.shape[0] != batch:  # noqa: PLR2004
        refuse_shape(block_table, "block_table", "batch_size, max_num_blocks_per_seq")
    if block_table.stride(-1) != 1:
        raise RuntimeError("block_table must have contiguous last dimension")
    return block_table.data_ptr(), block_table.stride(0)


def alibi(slopes: Any, device: int, batch: int, heads: int) -> tuple[int, int]:
    """The data pointer and batch stride of ALiBi slopes; zeros for None."""
    if slopes is None:
        return 0, 0
    if slopes.dtype != torch.float32:
        raise RuntimeError("ALiBi slopes must have dtype fp32")
    require_device(slopes, "alibi_slopes", device)
    if slopes.stride(-1) != 1:
        raise RuntimeError("ALiBi slopes tensor must have contiguous last dimension")
    if slopes.shape == (heads,):
        return slopes.data_ptr(), 0
    if slopes.shape != (batch, heads):
        refuse_shape(slopes, "alibi_slopes", "num_heads) or (batch_size, num_heads")
    return slopes.data_ptr(), slopes.stride(0)
