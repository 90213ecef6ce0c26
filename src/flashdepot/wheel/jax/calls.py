"""fa_fwd and fa_bwd as operations of XLA: their arguments, their arrays, how they are batched and split over devices.

Every call is one custom call, ``fa_xla_call``. Its attributes hold the packed struct of the C function with all that is
known when a program is traced, and the offset of the pointer that each array goes to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from ctypes import CDLL, byref, c_char_p, c_int32, c_uint64, c_void_p
from struct import Struct
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

try:
    from jax import ffi
except ImportError:  # before jax 0.5
    from jax.extend import ffi

from .c_library import open_library, struct_of
from .layout import BACKWARD_FIELDS, BF16, DETERMINISTIC, FORWARD_FIELDS, FP16

TARGET = "flashdepot_attention"
"""The name of the custom call in compiled programs; ``jax.export`` needs it."""


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
        is_packed = values["total_q"] or values["total_k"]
        # Of optional pointers only the presence counts: any address says so.
        lengths = {"cu_seqlens_q": 1, "cu_seqlens_k": 1} if is_packed else {}
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


class Problem(NamedTuple):
    """What a call computes, apart from its arrays. ``longest``: the longest sequences of q and k, where they are packed."""

    flags: int
    window_left: int
    window_right: int
    scale: float
    softcap: float
    deterministic: bool
    longest: tuple[int, int] | None


def forward(problem: Problem, *arrays: Any) -> tuple[Any, ...]:
    """The output and its lse, of q, k, v, and of the lengths where sequences are packed."""
    return alike(_operation(FORWARD, problem, arrays), arrays)


def backward(problem: Problem, *arrays: Any) -> tuple[Any, ...]:
    """The gradients of q, k and v, of q, k, v, the output, its lse and its gradient, and of the lengths."""
    return alike(_operation(BACKWARD, problem, arrays), arrays)


def alike(some: Sequence[Any], arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Some arrays, as varying over a mesh as any of ``arrays``: within ``shard_map`` jax checks that, from 0.6 on."""
    axes = frozenset().union(*map(_varies_over, arrays))
    return tuple(_vary(array, axes - _varies_over(array)) for array in some)


def _varies_over(array: Any) -> frozenset[Any]:
    if not hasattr(jax, "typeof"):
        return frozenset()
    kind = jax.typeof(array)
    found = getattr(kind, "manual_axis_type", None)  # vma is its older name
    axes: frozenset[Any] = getattr(kind, "vma", frozenset()) if found is None else found.varying
    return axes


def _vary(array: Any, axes: frozenset[Any]) -> Any:
    if not axes:
        return array
    if hasattr(jax.lax, "pcast"):
        return jax.lax.pcast(array, tuple(axes), to="varying")
    return jax.lax.pvary(array, tuple(axes))


def _operation(function: Function, problem: Problem, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """One call under any transformation: ``vmap`` joins its axis to the batch, devices split batch and heads."""

    def run(*arrays: Any) -> Any:
        return _split(function, problem, arrays)(*arrays)

    if problem.longest is not None:
        # Packs of different lengths cannot be joined without moving them: one after the other.
        return tuple(jax.custom_batching.sequential_vmap(run)(*arrays))
    batched = jax.custom_batching.custom_vmap(run)

    def join(size: int, are_batched: Sequence[bool], *arrays: Any) -> tuple[Any, Any]:
        whole = [a if b else jnp.broadcast_to(a, (size, *a.shape)) for a, b in zip(arrays, are_batched, strict=True)]
        results = _operation(function, problem, [a.reshape(-1, *a.shape[2:]) for a in whole])
        return tuple(r.reshape(size, -1, *r.shape[1:]) for r in results), (True,) * len(results)

    batched.def_vmap(join)
    return tuple(batched(*arrays))


_HAS_SHARDY = jax.__version_info__ >= (0, 7)
"""Whether rules of factors decide, as by default since then; before, the functions that look at shardings do."""

_LETTERS = {"batch": "b", "query": "s", "key": "t", "dim": "d", "lengths": "c"}
"""The factors of Shardy's rules. Query heads are added by :func:`_split`: with GQA each key head has a group, (g r)."""


def _axes(name: str, packed: bool) -> tuple[str, ...]:
    """What each axis of an array is."""
    if name.startswith("cu_seqlens"):
        return ("lengths",)
    if name == "lse":
        return ("heads", "query") if packed else ("batch", "heads", "query")
    of_keys = name in {"k", "v", "dk", "dv"}
    inner = ("key", "heads_k", "dim") if of_keys else ("query", "heads", "dim")
    return inner if packed else ("batch", *inner)


def _split(function: Function, problem: Problem, arrays: Sequence[Any]) -> Any:
    """The call, with the rules by which XLA splits it over devices: by batch and by heads, each device on its own."""
    packed = problem.longest is not None
    operands = [_axes(name, packed) for name in function.operands[: len(arrays)]]
    results = [_axes(name, packed) for name in function.results]
    groups, heads = arrays[1].shape[-2], arrays[0].shape[-2]

    def spec(axes: Sequence[str], batch: Any, head: Any) -> PartitionSpec:
        places = {"batch": batch, "heads": head, "heads_k": head}
        return PartitionSpec(*(places.get(axis) for axis in axes))

    def of_queries(mesh: Any, shapes: Sequence[Any]) -> tuple[Any, Any]:
        """The mesh axes that batch and heads of the queries are split over; heads only where each device gets whole groups."""
        given = tuple(shapes[0].sharding.spec) + (None,) * 4
        batch, head = (None, given[1]) if packed else (given[0], given[2])
        names = (head,) if isinstance(head, str) else head or ()
        return batch, head if groups % math.prod(mesh.shape[name] for name in names) == 0 else None

    def infer(mesh: Any, shapes: Sequence[Any], _results: Any) -> tuple[Any, ...]:
        place = of_queries(mesh, shapes)
        return tuple(NamedSharding(mesh, spec(axes, *place)) for axes in results)

    def partition(mesh: Any, shapes: Sequence[Any], given: Any) -> tuple[Any, ...]:
        place = of_queries(mesh, shapes)
        sharded = tuple(NamedSharding(mesh, spec(axes, *place)) for axes in operands)
        return mesh, call, infer(mesh, shapes, given), sharded

    def call(*arrays: Any) -> Sequence[Any]:
        return _call(function, problem, arrays)

    repeats = heads // groups
    grouped = "(g r)" if repeats > 1 and groups > 1 else "g" if repeats == 1 else "h"
    letters = {**_LETTERS, "heads_k": "g", "heads": grouped}
    rule = " -> ".join(
        ", ".join(" ".join(letters[axis] for axis in axes) for axes in side) for side in (operands, results)
    )
    sizes = {"r": repeats} if "r" in grouped else {}
    whole = custom_partitioning(call)
    of_shardy = {"sharding_rule": rule, **sizes} if _HAS_SHARDY else {}
    whole.def_partition(partition, infer_sharding_from_operands=infer, **of_shardy)
    return whole


def _call(function: Function, problem: Problem, arrays: Sequence[Any]) -> Sequence[Any]:
    """The custom call itself, on one device."""
    names = function.operands[: len(arrays)]
    q, k = arrays[:2]
    values = _sizes(problem, q, k, arrays[-1])
    made = {name: jax.ShapeDtypeStruct(*_result(name, problem, q, k)) for name in function.results}
    for name, array in (*zip(names, arrays, strict=True), *made.items()):
        if name not in _FLAT:
            values.update(_strides(name, array.shape))
    if need := function.workspace_of(values, devices=_devices()):
        values["workspace_bytes"] = need
        made["workspace"] = jax.ShapeDtypeStruct((need,), jnp.uint8)
    places = [function.place_of(name) for name in (*names, *made)]
    run = ffi.ffi_call(TARGET, tuple(made.values()))
    found = run(
        *arrays,
        function=np.int32(function.number),
        arguments=np.frombuffer(function.pack(values), np.uint8),
        places=np.array(places, np.int32),
    )
    return tuple(found[: len(function.results)])


_FLAT = {"lse", "cu_seqlens_q", "cu_seqlens_k"}
"""Arrays that are a plain pointer in the struct; the others have strides."""


def _sizes(problem: Problem, q: Any, k: Any, last: Any) -> dict[str, Any]:
    if problem.longest is None:
        batch, (seqlen_q, seqlen_k), totals = q.shape[0], (q.shape[1], k.shape[1]), (0, 0)
    else:
        batch, (seqlen_q, seqlen_k), totals = last.shape[0] - 1, problem.longest, (q.shape[0], k.shape[0])
    return {
        "flags": problem.flags | (DETERMINISTIC if problem.deterministic else 0),
        "dtype": BF16 if q.dtype == jnp.bfloat16 else FP16,
        "batch": batch,
        "seqlen_q": seqlen_q,
        "seqlen_k": seqlen_k,
        "heads_q": q.shape[-2],
        "heads_k": k.shape[-2],
        "head_dim": q.shape[-1],
        "total_q": totals[0],
        "total_k": totals[1],
        "scale": problem.scale,
        "softcap": problem.softcap,
        "window_left": problem.window_left,
        "window_right": problem.window_right,
    }


def _result(name: str, problem: Problem, q: Any, k: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and type of an array that a call writes."""
    heads, packed = q.shape[-2], problem.longest is not None
    if name == "lse":
        return ((heads, q.shape[0]) if packed else (q.shape[0], heads, q.shape[1])), jnp.float32
    return (k if name in {"dk", "dv"} else q).shape, q.dtype


def _strides(name: str, shape: Sequence[int]) -> dict[str, int]:
    rows, heads, dim = shape[-3:]
    return {f"{name}.batch_stride": rows * heads * dim, f"{name}.row_stride": heads * dim, f"{name}.head_stride": dim}


def _devices() -> Sequence[int]:
    """The ordinals of this process's GPUs: a workspace must be large enough on each."""
    try:
        return [device.local_hardware_id for device in jax.local_devices(backend="gpu")]
    except RuntimeError:
        return []
