"""The C library beside this file: its functions, as far as they are needed while a program is traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import CDLL, byref, c_char_p, c_int32, c_uint64, c_void_p
from struct import Struct
from typing import Any

try:
    from jax import ffi
except ImportError:  # before jax 0.5
    from jax.extend import ffi

from .c_library import open_library, struct_of
from .layout import BACKWARD_FIELDS, FORWARD_FIELDS

ffi_call = ffi.ffi_call

TARGET = "flashdepot_attention"
"""The name of the custom call in compiled programs; ``jax.export`` wants to be told of it."""


def _open() -> CDLL:
    library: CDLL = open_library("")
    handler = ffi.pycapsule(library.fa_xla_call)
    for platform in ("CUDA", "cpu"):  # on a CPU it answers with what is wrong
        ffi.register_ffi_target(TARGET, handler, platform=platform)
    return library


class Function:
    """One function of the library.

    ``operands`` and ``results`` name the arrays that go in and come out, by the fields that point to them.
    """

    def __init__(
        self,
        number: int,
        fields: Sequence[tuple[str, str]],
        workspace: str,
        operands: Sequence[str],
        results: Sequence[str],
    ) -> None:
        self.number, self.operands, self.results = number, operands, results
        self._names = [name for name, code in fields if not code.endswith("x")]
        self._struct = struct_of(fields)
        self._places = {
            name: Struct("@" + "".join(c for _, c in fields[:n]) + "0P").size
            for n, (name, code) in enumerate(fields)
            if code == "P"
        }
        self._workspace = _c[workspace]
        self._workspace.argtypes = (c_char_p, c_void_p, c_void_p)[: 3 if number == 0 else 2]
        self._workspace.restype = c_int32

    def place_of(self, array: str) -> int:
        """The offset of the pointer to an array."""
        return self._places.get(array, self._places.get(f"{array}.data", -1))

    def pack(self, values: Mapping[str, Any]) -> bytes:
        """The struct, 0 where there is no value."""
        given = {"size": self._struct.size, **values}
        packed: bytes = self._struct.pack(*(given.get(name, 0) for name in self._names))
        return packed

    def workspace_of(self, values: Mapping[str, Any], devices: Sequence[int]) -> int:
        """Bytes of workspace, the most that any device needs.

        :raises ValueError: for what the library cannot do, with its own text.
        """
        most = 0
        packed = (
            values["total_q"] or values["total_k"]
        )  # optional pointers are looked at for being there: any address says so
        lengths = {"cu_seqlens_q": 1, "cu_seqlens_k": 1} if packed else {}
        for device in devices or (0,):
            need = c_uint64()
            arguments = self.pack({**values, "device": device, **lengths})
            status = self._workspace(arguments, byref(need), *((None,) if self.number == 0 else ()))
            if status and (devices or status not in _NO_DEVICE):
                raise ValueError(_last_error().decode("utf-8", "replace"))
            most = max(most, need.value)
        return most


_NO_DEVICE = {3, 5}
"""FA_NO_KERNEL_FOR_ARCH and FA_CUDA: a program may be traced where there is no GPU, to look at it or to export it."""

_c = _open()
_last_error = _c.fa_last_error
_last_error.restype = c_char_p

FORWARD = Function(0, FORWARD_FIELDS, "fa_fwd_workspace", ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k"), ("o", "lse"))
BACKWARD = Function(
    1,
    BACKWARD_FIELDS,
    "fa_bwd_workspace",
    ("q", "k", "v", "o", "lse", "d_o", "cu_seqlens_q", "cu_seqlens_k"),
    ("dq", "dk", "dv"),
)
