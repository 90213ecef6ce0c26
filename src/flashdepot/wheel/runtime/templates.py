"""Structs of earlier calls. One with the same shapes, strides, types and numbers is theirs but for the addresses.

To look at all that could be wrong with a call and to lay it out costs more than to launch it, so a call that was done once
leaves its struct, and the next one like it fills in where its tensors lie. Nothing else is left out: what the library
checks it checks in every call, the size of the workspace too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import starmap
from struct import Struct
from typing import Any, NamedTuple

import torch

from .layout import BACKWARD_FIELDS, FORWARD_FIELDS
from .library import backward_call, field_offset, forward_call

try:  # torch's compiled code allocates by it: 1 us, where torch.empty takes 3
    from torch._C import _cuda_getCurrentRawStream as _stream
    from torch._C import _cuda_getDevice as _current_device
    from torch._C._dynamo.guards import _empty_strided_cuda as _empty

    _address = torch.Tensor.data_ptr
    # What a key may have: a length or a scale may be a tensor too, whose value changes.
    _FIXED = frozenset({bool, int, float, type(None), tuple, torch.Size, torch.dtype, torch.device})
except ImportError:  # a torch without it, or without CUDA: every call is laid out
    _empty = None

_MOST = 4096
"""Templates that are kept: a decoding cache that grows makes one for each of its lengths."""

_POINTER, _COUNT = 8, Struct("=Q")


class Kind(NamedTuple):
    """A kind of call, and where its struct has the values that differ from call to call."""

    run: Callable[[bytes], int]
    offsets: tuple[int, ...]
    workspace_bytes: int


class _Template(NamedTuple):
    device: int
    results: list[tuple[Any, ...]]  # shape, strides and dtype of each
    workspace: tuple[Any, ...] | None
    workspace_bytes: int
    run: Callable[[bytes], int]
    pack: Callable[..., bytes]
    values: list[Any]


def _kind(run: Callable[[bytes], int], fields: Sequence[tuple[str, str]], names: str) -> Kind:
    offsets = tuple(field_offset(fields, name) for name in names.split())
    return Kind(run, offsets, field_offset(fields, "workspace_bytes"))


_FORWARD = "stream q.data k.data v.data o.data lse workspace workspace_bytes"
_BACKWARD = "stream q.data k.data v.data o.data d_o.data dq.data dk.data dv.data lse workspace workspace_bytes"
_LISTS = "cu_seqlens_q cu_seqlens_k"
DENSE = _kind(forward_call, FORWARD_FIELDS, _FORWARD)
PACKED = _kind(forward_call, FORWARD_FIELDS, f"{_FORWARD} {_LISTS}")
CACHE = _kind(forward_call, FORWARD_FIELDS, f"{_FORWARD} block_table k_new.data v_new.data cache_seqlens")
BACKWARD = _kind(backward_call, BACKWARD_FIELDS, f"{_BACKWARD} {_LISTS}")

_templates: dict[Any, _Template] = {}


def again(
    key: Any, given: tuple[int, ...], between: tuple[int, ...] = (), after: Iterable[int] = ()
) -> list[Any] | None:
    """Do a call like an earlier one and return its new tensors; None where there was none, or it fails now.

    :param key: all that tells such calls apart.
    :param given: the addresses before the results' in the struct, ``between`` those before the workspace's, and ``after``.
    """
    try:
        found = _templates.get(key)
    except TypeError:  # not a plain number
        return None
    if found is None:
        return None
    device, results, of_workspace, need, run, pack, values = found
    if _current_device() != device:
        return None
    made = list(starmap(_empty, results))
    if of_workspace is None:
        at = 0
    else:
        workspace = _empty(*of_workspace)  # torch gives the memory to nobody but later work on the same stream
        at = workspace.data_ptr()
    values = values[:]
    values[1::2] = (
        *(_stream(device), *given, *map(_address, made)),
        *(*between, at, need, *after),
    )
    if run(pack(*values)):
        _templates.pop(key, None)  # the whole way says what is wrong, or asks for another workspace
        return None
    return made


def keep(key: tuple[Any, ...], kind: Kind, arguments: bytes, device: int, results: Iterable[Any]) -> None:
    """Keep the struct of a call that was done, for :func:`again`, if this torch can allocate what it needs at less cost."""
    if _empty is None or not _FIXED.issuperset(map(type, key)):
        return
    if len(_templates) >= _MOST:
        _templates.clear()
    places = [0]
    for offset in kind.offsets:
        places += (offset, offset + _POINTER)
    values: list[Any] = [arguments[start:end] for start, end in zip(places, (*places[1:], len(arguments)))]
    (need,) = _COUNT.unpack_from(arguments, kind.workspace_bytes)
    workspace = ((need,), (1,), torch.uint8) if need else None
    kinds = [(tuple(made.shape), made.stride(), made.dtype) for made in results]
    _templates[key] = _Template(device, kinds, workspace, need, kind.run, _packer(kind.offsets, len(arguments)), values)


@lru_cache
def _packer(offsets: tuple[int, ...], size: int) -> Callable[..., bytes]:
    """What puts a struct of this size together, of the bytes between the values that differ and of those values."""
    ends = (0, *(offset + _POINTER for offset in offsets))
    lengths = [start - end for end, start in zip(ends, (*offsets, size))]
    return Struct("=" + "Q".join(f"{length}s" for length in lengths)).pack


def alike(q: Any, k: Any, v: Any, *others: Any) -> tuple[Any, ...]:
    """The part of a key that tensors are: what tells two of them apart but for their address."""
    first = (
        *(q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(), k.dtype, k.device),
        *(v.shape, v.stride(), v.dtype, v.device),
    )
    if not others:
        return first
    return (*first, *[o if o is None else (o.shape, o.stride(), o.dtype, o.device) for o in others])
