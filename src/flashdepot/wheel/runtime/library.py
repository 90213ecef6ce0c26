"""The C library next to this file: its structs as packed bytes, and its calls."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int32, c_uint64, c_void_p
from struct import Struct
from typing import Any

import torch

from .c_library import open_library, struct_of
from .layout import BACKWARD_FIELDS, FORWARD_FIELDS


def _through(fields: Sequence[tuple[str, str]], last: str) -> Sequence[tuple[str, str]]:
    """Leave out all after a field: a shorter struct reads as zeros beyond its end."""
    return fields[: [name for name, _ in fields].index(last) + 1]


def field_offset(fields: Sequence[tuple[str, str]], name: str) -> int:
    """Where a field of 8 bytes is in a struct."""
    before = struct_of(_through(fields, name)[:-1])
    return before.size  # it is aligned as "0Q" is


FORWARD = struct_of(_through(FORWARD_FIELDS, "p_debug"))  # which family runs it is left to the library
WHOLE_FORWARD = struct_of(FORWARD_FIELDS)
DENSE_FORWARD = struct_of(_through(FORWARD_FIELDS, "alibi_batch_stride"))
PACKED_FORWARD = struct_of(_through(FORWARD_FIELDS, "page_size"))
CACHE_FORWARD = struct_of(_through(FORWARD_FIELDS, "rotary_seqlen"))
BACKWARD = struct_of(_through(BACKWARD_FIELDS, "rng_state"))

_SIZE = Struct("@I")
_FORWARD_MORE = Struct("@iiP")
"""family, head_dim_v and sink, which come after FORWARD's fields."""

BACKWARD_MORE = Struct("@PPPi4x")
"""d_lse, sink, d_sink and head_dim_v, which come after BACKWARD's fields."""

_WORKSPACE = Struct("@PQ")
_FORWARD_WORKSPACE = field_offset(FORWARD_FIELDS, "workspace")
_BACKWARD_WORKSPACE = field_offset(BACKWARD_FIELDS, "workspace")
_empty, _uint8 = torch.empty, torch.uint8

FAMILY = "FLASH_ATTENTION_FAMILY"
"""The variable that names the family of kernels for every call; without it each call gets the best that can."""

_FAMILIES = {"": 0, "fa2": 2, "fa3": 3, "fa4": 4}  # FA_FAMILY_* of flash_attention.h


def _forced() -> int:
    name = os.environ.get(FAMILY, "").strip().lower()
    if name not in _FAMILIES:
        raise ImportError(
            f"{FAMILY} is '{name}': expected fa2, fa3 or fa4, or nothing for the best of what the library has",
            name=__package__,
        )
    return _FAMILIES[name]


_family = _forced()

_c = open_library(", with 'flashdepot install --source ours' on this machine")
forward_call, _fwd_workspace = _c.fa_fwd, _c.fa_fwd_workspace
backward_call, _bwd_workspace = _c.fa_bwd, _c.fa_bwd_workspace
_last_error = _c.fa_last_error
for _function, _arguments in (
    (forward_call, (c_char_p,)),
    (backward_call, (c_char_p,)),
    (_fwd_workspace, (c_char_p, c_void_p, c_void_p)),
    (_bwd_workspace, (c_char_p, c_void_p)),
    (_last_error, ()),
):
    _function.argtypes = _arguments
    _function.restype = c_int32
_last_error.restype = c_char_p


def run_forward(arguments: bytes, q: Any, head_dim_v: int = 0, sink: Any = None) -> bytes:
    """Call fa_fwd with the workspace that it wants, on the device of ``q``, and return the struct that it got.

    :param arguments: one of the structs above; ``head_dim_v`` and ``sink`` (heads, float32) are added to it, unless it is
        the whole one, which has them.
    :raises RuntimeError: with the library's own text, for every status but FA_STATUS_OK.
    """
    if (_family or head_dim_v or sink is not None) and len(arguments) < WHOLE_FORWARD.size:
        more = _FORWARD_MORE.pack(_family, head_dim_v, 0 if sink is None else sink.data_ptr())
        arguments = with_more(arguments.ljust(FORWARD.size, b"\0"), more)
    need = c_uint64()
    if _fwd_workspace(arguments, byref(need), None):
        raise _error()
    if need:
        workspace = _empty(need.value, dtype=_uint8, device=q.device)
        arguments = _with_workspace(arguments, _FORWARD_WORKSPACE, workspace)
    if forward_call(arguments):
        raise _error()
    return arguments


def run_backward(arguments: bytes, q: Any, *, zero: bool = False) -> bytes:
    """Call fa_bwd with the workspace that it wants, on the device of ``q``, and return the struct that it got.

    :param zero: clear the workspace first, so that rows which no sequence covers come out as zeros.
    :raises RuntimeError: with the library's own text, for every status but FA_STATUS_OK.
    """
    need = c_uint64()
    if _bwd_workspace(arguments, byref(need)):
        raise _error()
    if need:
        workspace = (torch.zeros if zero else _empty)(need.value, dtype=_uint8, device=q.device)
        arguments = _with_workspace(arguments, _BACKWARD_WORKSPACE, workspace)
    if backward_call(arguments):
        raise _error()
    return arguments


def with_more(arguments: bytes, more: bytes) -> bytes:
    """A struct with the fields that come after it."""
    return _SIZE.pack(len(arguments) + len(more)) + arguments[_SIZE.size :] + more


def _with_workspace(arguments: bytes, offset: int, workspace: Any) -> bytes:
    """Freed as soon as the call returns: torch gives the memory to nobody but later work on the same stream."""
    field = _WORKSPACE.pack(workspace.data_ptr(), workspace.numel())
    return arguments[:offset] + field + arguments[offset + _WORKSPACE.size :]


def forced_family() -> int:
    """The number of FLASH_ATTENTION_FAMILY, 0 for the best."""
    return _family


def _error() -> RuntimeError:
    text: bytes = _last_error()
    return RuntimeError(text.decode("utf-8", "replace"))
