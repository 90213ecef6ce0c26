"""flash_attention.h as ctypes: the one binding that tests/native and tests/gpu share."""

import ctypes
import runpy
from collections.abc import Iterable
from ctypes import POINTER, Structure, c_char, c_char_p, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any


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
    FA3 = 3
    FA4 = 4


ABI = runpy.run_path(str(Path(__file__).parents[2] / "scripts/renew_abi.py"))
_TYPES: dict[str, Any] = {
    "uint32_t": c_uint32, "int32_t": c_int32, "int64_t": c_int64, "uint64_t": c_uint64, "float": c_float, "char": c_char,
}  # fmt: skip
STRUCTS: dict[str, type[Structure]] = {}


def _struct(name: str, fields: Iterable[Any]) -> type[Structure]:
    """A struct of the header. In arguments a pointer is an address; what the library fills in can be followed."""

    def kind(field: Any) -> Any:
        if field.pointer and name.endswith(("_args", "_tensor")):
            return c_void_p
        of = _TYPES[field.type]
        return c_char_p if of is c_char else POINTER(of) if field.pointer else of

    return type(name, (Structure,), {"_fields_": [(field.name, kind(field)) for field in fields]})


for _name, _fields in ABI["read_fields"](ABI["HEADER"].read_text(encoding="utf-8")).items():
    # Both kinds of tensors are one here, so that one can be put in place of the other.
    _TYPES[_name] = STRUCTS[_name] = STRUCTS.get("fa_tensor") if "_const_" in _name else _struct(_name, _fields)
Tensor, ForwardArgs, BackwardArgs = (STRUCTS[f"fa_{name}"] for name in ("tensor", "fwd_args", "bwd_args"))
CombineArgs, Info, ChoiceAnswer = (STRUCTS[f"fa_{name}"] for name in ("combine_args", "info", "choice"))
FamilyContents, Unit = STRUCTS["fa_family"], STRUCTS["fa_unit"]


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


class OneFamily(Library):
    """A loaded libflashattention that is asked for one family of its kernels."""

    def __init__(self, path: Path, family: Family) -> None:
        super().__init__(path)
        self.family = family

    def _asked(self, args: Structure) -> Structure:
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


def _over_packed_inputs(kind: type[Structure], fields: dict[str, object]) -> Structure:
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
