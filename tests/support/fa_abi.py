"""flash_attention.h as ctypes: the one binding that tests/native and tests/gpu share."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import TypeVar


class Status(IntEnum):
    OK = 0
    INVALID = 1
    UNSUPPORTED = 2
    NO_KERNEL_FOR_ARCH = 3
    WORKSPACE_TOO_SMALL = 4
    CUDA = 5
    INTERNAL = 6


class Dtype(IntEnum):
    FP16 = 1
    BF16 = 2
    E4M3 = 3
    FP32 = 4


class Flag(IntFlag):
    CAUSAL = 1
    WINDOW_LEFT = 2
    WINDOW_RIGHT = 4
    ROTARY_INTERLEAVED = 8
    DETERMINISTIC = 16
    EMPTY_LSE_NEG_INF = 32


class Pass(IntEnum):
    FWD = 1
    SPLITKV = 2
    BWD = 3


class Feature(IntFlag):
    DROPOUT = 1
    ALIBI = 2
    SOFTCAP = 4
    LOCAL = 8
    UNEVEN_K = 16


class Family(IntEnum):
    FA2 = 2
    FA4 = 4


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("batch_stride", c_int64),
        ("row_stride", c_int64),
        ("head_stride", c_int64),
        ("reserved0", c_int64),
        ("reserved1", c_int64),
    ]


class ForwardArgs(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("device", c_int32),
        ("dtype", c_int32),
        ("stream", c_void_p),
        ("batch", c_int32),
        ("seqlen_q", c_int32),
        ("seqlen_k", c_int32),
        ("heads_q", c_int32),
        ("heads_k", c_int32),
        ("head_dim", c_int32),
        ("total_q", c_int64),
        ("total_k", c_int64),
        ("scale", c_float),
        ("softcap", c_float),
        ("dropout", c_float),
        ("num_splits", c_int32),
        ("window_left", c_int32),
        ("window_right", c_int32),
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("o", Tensor),
        ("lse", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_uint64),
        ("alibi_slopes", c_void_p),
        ("alibi_batch_stride", c_int64),
        ("cu_seqlens_q", c_void_p),
        ("cu_seqlens_k", c_void_p),
        ("seqused_k", c_void_p),
        ("leftpad_k", c_void_p),
        ("block_table", c_void_p),
        ("block_table_stride", c_int64),
        ("page_size", c_int32),
        ("seqlen_new", c_int32),
        ("k_new", Tensor),
        ("v_new", Tensor),
        ("cache_seqlens", c_void_p),
        ("cache_batch_idx", c_void_p),
        ("rotary_cos", c_void_p),
        ("rotary_sin", c_void_p),
        ("rotary_dim", c_int32),
        ("rotary_seqlen", c_int32),
        ("seed", c_uint64),
        ("offset", c_uint64),
        ("seed_ptr", c_void_p),
        ("offset_ptr", c_void_p),
        ("offset_intragraph", c_uint64),
        ("rng_state", c_void_p),
        ("p_debug", c_void_p),
        ("family", c_int32),
        ("head_dim_v", c_int32),
        ("sink", c_void_p),
        ("seqused_q", c_void_p),
        ("attention_chunk", c_int32),
        ("out_dtype", c_int32),
        ("qv", Tensor),
        ("q_descale", c_void_p),
        ("k_descale", c_void_p),
        ("v_descale", c_void_p),
        ("descale_batch_stride", c_int64),
        ("descale_head_stride", c_int64),
    ]


class BackwardArgs(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("device", c_int32),
        ("dtype", c_int32),
        ("stream", c_void_p),
        ("batch", c_int32),
        ("seqlen_q", c_int32),
        ("seqlen_k", c_int32),
        ("heads_q", c_int32),
        ("heads_k", c_int32),
        ("head_dim", c_int32),
        ("total_q", c_int64),
        ("total_k", c_int64),
        ("scale", c_float),
        ("softcap", c_float),
        ("dropout", c_float),
        ("family", c_int32),
        ("window_left", c_int32),
        ("window_right", c_int32),
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("o", Tensor),
        ("d_o", Tensor),
        ("dq", Tensor),
        ("dk", Tensor),
        ("dv", Tensor),
        ("lse", c_void_p),
        ("softmax_d", c_void_p),
        ("workspace", c_void_p),
        ("workspace_bytes", c_uint64),
        ("alibi_slopes", c_void_p),
        ("alibi_batch_stride", c_int64),
        ("cu_seqlens_q", c_void_p),
        ("cu_seqlens_k", c_void_p),
        ("rng_state", c_void_p),
        ("d_lse", c_void_p),
        ("sink", c_void_p),
        ("d_sink", c_void_p),
        ("head_dim_v", c_int32),
        ("reserved0", c_int32),
    ]


class CombineArgs(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("flags", c_uint32),
        ("device", c_int32),
        ("dtype", c_int32),
        ("stream", c_void_p),
        ("parts", c_int32),
        ("parts_dtype", c_int32),
        ("batch", c_int32),
        ("seqlen_q", c_int32),
        ("heads_q", c_int32),
        ("head_dim_v", c_int32),
        ("o_parts", Tensor),
        ("o_parts_stride", c_int64),
        ("lse_parts", Tensor),
        ("lse_parts_stride", c_int64),
        ("o", Tensor),
        ("lse", c_void_p),
    ]


class Unit(Structure):
    _fields_ = [("pass", c_int32), ("dtype", c_int32), ("head_dim", c_int32), ("causal", c_int32)]


class FamilyContents(Structure):
    _fields_ = [
        ("family", c_int32),
        ("features", c_uint32),
        ("name", c_char_p),
        ("upstream", c_char_p),
        ("sass", POINTER(c_int32)),
        ("head_dims", POINTER(c_int32)),
        ("units", POINTER(Unit)),
        ("sass_count", c_int32),
        ("head_dims_count", c_int32),
        ("units_count", c_int32),
        ("unit_size", c_int32),
    ]


class Info(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("version", c_int32),
        ("flashdepot", c_char_p),
        ("cuda", c_int32),
        ("families_count", c_int32),
        ("families", POINTER(FamilyContents)),
        ("family_size", c_int32),
        ("reserved0", c_int32),
    ]


class ChoiceAnswer(Structure):
    _fields_ = [("size", c_uint32), ("family", c_int32), ("name", c_char_p), ("why_not", c_char_p)]


STRUCTS: dict[str, type[Structure]] = {
    "fa_tensor": Tensor,
    "fa_const_tensor": Tensor,
    "fa_fwd_args": ForwardArgs,
    "fa_bwd_args": BackwardArgs,
    "fa_combine_args": CombineArgs,
    "fa_unit": Unit,
    "fa_family": FamilyContents,
    "fa_info": Info,
    "fa_choice": ChoiceAnswer,
}


@dataclass(frozen=True)
class Answer:
    """What a call returned, and fa_last_error if that was not OK."""

    status: Status
    text: str = ""


@dataclass(frozen=True)
class Choice:
    """Which family runs a call, and why no better one does."""

    family: Family | None
    name: str
    why_not: str


@dataclass(frozen=True)
class Contents:
    """fa_info and its fa2 (without one, its first family), read out. Units are (pass, dtype, head dim, causal)."""

    version: int
    families: tuple[Family, ...]
    upstream: str
    flashdepot: str
    cuda: int
    features: Feature
    sass: tuple[int, ...]
    head_dims: tuple[int, ...]
    units: frozenset[tuple[Pass, Dtype, int, bool]]


class Library:
    """A loaded libflashattention."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.c = ctypes.CDLL(str(path))
        self.c.fa_last_error.restype = c_char_p
        self.c.fa_status_string.restype = c_char_p
        self.c.fa_fwd.argtypes = [POINTER(ForwardArgs)]
        self.c.fa_supports.argtypes = [c_int32, POINTER(ForwardArgs), POINTER(ChoiceAnswer)]
        self.c.fa_fwd_workspace.argtypes = [POINTER(ForwardArgs), POINTER(c_uint64), POINTER(c_int32)]
        self.c.fa_bwd.argtypes = [POINTER(BackwardArgs)]
        self.c.fa_bwd_workspace.argtypes = [POINTER(BackwardArgs), POINTER(c_uint64)]
        self.c.fa_build_info.argtypes = [POINTER(Info)]
        self.c.fa_bwd_supports.argtypes = [c_int32, POINTER(BackwardArgs), POINTER(ChoiceAnswer)]
        self.c.fa_preload.argtypes = [POINTER(ForwardArgs), POINTER(BackwardArgs)]
        self.c.fa_combine.argtypes = [POINTER(CombineArgs)]

    def fwd(self, args: ForwardArgs) -> Answer:
        return self._answer(self.c.fa_fwd(args))

    def supports(self, device: int, args: ForwardArgs) -> Answer:
        return self._answer(self.c.fa_supports(device, args, None))

    def bwd_supports(self, device: int, args: BackwardArgs) -> Answer:
        return self._answer(self.c.fa_bwd_supports(device, args, None))

    def preload(self, forward: ForwardArgs | None, backward: BackwardArgs | None = None) -> Answer:
        return self._answer(self.c.fa_preload(forward, backward))

    def combine(self, args: CombineArgs) -> Answer:
        return self._answer(self.c.fa_combine(args))

    def choose(self, device: int, args: ForwardArgs) -> tuple[Answer, Choice]:
        """Return the answer of fa_supports, and the family."""
        choice = ChoiceAnswer(size=ctypes.sizeof(ChoiceAnswer), family=99)
        answer = self._answer(self.c.fa_supports(device, args, choice))
        family = Family(choice.family) if choice.family else None
        return answer, Choice(family, choice.name.decode(), choice.why_not.decode())

    def fwd_workspace(self, args: ForwardArgs) -> tuple[Answer, int, int]:
        """Return the answer, the bytes and the number of splits."""
        count = c_uint64(0)
        splits = c_int32(0)
        answer = self._answer(self.c.fa_fwd_workspace(args, ctypes.byref(count), ctypes.byref(splits)))
        return answer, count.value, splits.value

    def bwd(self, args: BackwardArgs) -> Answer:
        return self._answer(self.c.fa_bwd(args))

    def bwd_workspace(self, args: BackwardArgs) -> tuple[Answer, int]:
        """Return the answer and the bytes."""
        count = c_uint64(0)
        return self._answer(self.c.fa_bwd_workspace(args, ctypes.byref(count))), count.value

    def last_error(self) -> str:
        text: bytes = self.c.fa_last_error()
        return text.decode()

    def contents(self) -> Contents:
        info = Info(size=ctypes.sizeof(Info))
        answer = self._answer(self.c.fa_build_info(info))
        assert answer.status is Status.OK, answer
        families = [info.families[i] for i in range(info.families_count)]
        family = next((family for family in families if family.family == Family.FA2), families[0])
        assert (info.family_size, family.unit_size) == (ctypes.sizeof(FamilyContents), ctypes.sizeof(Unit))
        units = [family.units[i] for i in range(family.units_count)]
        return Contents(
            version=info.version,
            families=tuple(Family(one.family) for one in families),
            upstream=family.upstream.decode(),
            flashdepot=info.flashdepot.decode(),
            cuda=info.cuda,
            features=Feature(family.features),
            sass=tuple(family.sass[: family.sass_count]),
            head_dims=tuple(family.head_dims[: family.head_dims_count]),
            units=frozenset(
                (Pass(getattr(unit, "pass")), Dtype(unit.dtype), unit.head_dim, bool(unit.causal)) for unit in units
            ),
        )

    def _answer(self, status: int) -> Answer:
        return Answer(Status(status), "" if status == Status.OK else self.last_error())


Args = TypeVar("Args", ForwardArgs, BackwardArgs)


class OneFamily(Library):
    """A loaded libflashattention that is asked for one family of its kernels."""

    def __init__(self, path: Path, family: Family) -> None:
        super().__init__(path)
        self.family = family

    def _asked(self, args: Args) -> Args:
        args.family = self.family
        return args

    def fwd(self, args: ForwardArgs) -> Answer:
        return super().fwd(self._asked(args))

    def supports(self, device: int, args: ForwardArgs) -> Answer:
        return super().supports(device, self._asked(args))

    def fwd_workspace(self, args: ForwardArgs) -> tuple[Answer, int, int]:
        return super().fwd_workspace(self._asked(args))

    def bwd(self, args: BackwardArgs) -> Answer:
        return super().bwd(self._asked(args))

    def bwd_workspace(self, args: BackwardArgs) -> tuple[Answer, int]:
        return super().bwd_workspace(self._asked(args))


def packed(address: int, rows: int, heads: int, head_dim: int) -> Tensor:
    """Make a contiguous (batch, rows, heads, head_dim) tensor at an address."""
    return Tensor(address, rows * heads * head_dim, heads * head_dim, head_dim)


_SIZES = {"batch": 2, "seqlen_q": 128, "seqlen_k": 128, "heads_q": 4, "heads_k": 4, "head_dim": 64}


def _over_packed_inputs(kind: type[Args], fields: dict[str, object]) -> Args:
    """Make a struct of the dtype and sizes among the fields, which are taken out, over packed q, k, v and o."""
    sizes = {name: fields.pop(name, default) for name, default in _SIZES.items()}
    args = kind(size=ctypes.sizeof(kind), dtype=fields.pop("dtype", Dtype.BF16), **sizes)
    rows = {"q": args.seqlen_q, "k": args.seqlen_k, "v": args.seqlen_k, "o": args.seqlen_q}
    for number, (name, count) in enumerate(rows.items(), start=1):
        heads = args.heads_q if name in {"q", "o"} else args.heads_k
        setattr(args, name, packed(number << 16, count, heads, args.head_dim))
    return args


PACKED = {"cu_seqlens_q": 0x60000, "cu_seqlens_k": 0x60000, "total_q": 9, "total_k": 9}
"""What makes a problem of sequences that lie one after the other."""


def forward_args(**fields: object) -> ForwardArgs:
    """Correct arguments over packed tensors at addresses that nobody follows; `fields` are set last.

    Without a workspace the keys are not split.
    """
    args = _over_packed_inputs(ForwardArgs, fields)
    args.lse = 0x50000
    args.num_splits = 0 if "workspace" in fields else 1
    set_fields(args, fields)
    return args


def backward_args(**fields: object) -> BackwardArgs:
    """Correct arguments as those of forward_args, with a workspace that is large enough."""
    args = _over_packed_inputs(BackwardArgs, fields)
    args.d_o = packed(0x50000, args.seqlen_q, args.heads_q, args.head_dim)
    args.dq = packed(0x60000, args.seqlen_q, args.heads_q, args.head_dim)
    args.dk = packed(0x70000, args.seqlen_k, args.heads_k, args.head_dim)
    args.dv = packed(0x80000, args.seqlen_k, args.heads_k, args.head_dim)
    args.lse, args.softmax_d = 0x90000, 0xA0000
    args.workspace, args.workspace_bytes = 0x7000_0000, 1 << 50
    set_fields(args, fields)
    return args


def set_fields(args: Structure, fields: dict[str, object]) -> None:
    """Set fields by name; `tensor__member` is one of a tensor."""
    for path, value in fields.items():
        target: Structure = args
        *parents, name = path.split("__")
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, value)
