"""fa_xla_call, called as XLA calls a handler: with a frame of buffers and attributes."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

import pytest

from support.fa_abi import ForwardArgs, forward_args
from support.stub_library import Stub


def struct(name: str, **fields: Any) -> Any:
    return type(name, (Structure,), {"_fields_": list(fields.items())})


HEAD = {"size": c_size_t, "extensions": c_void_p}
Extension = struct("Extension", size=c_size_t, type=c_int, next=c_void_p)
Version = struct("Version", **HEAD, major=c_int, minor=c_int)
Metadata = struct("Metadata", size=c_size_t, version=Version, traits=c_uint32, state=c_int64)
Question = struct("Question", **HEAD, context=c_void_p, answer=c_void_p)
NewError = struct("NewError", **HEAD, message=c_char_p, code=c_int)
Ask = CFUNCTYPE(c_void_p, POINTER(Question))
Raise = CFUNCTYPE(c_void_p, POINTER(NewError))
Drop = CFUNCTYPE(None, c_void_p)
_MADE = {"internal": c_void_p, "create": Raise, "message": c_void_p, "destroy": Drop, "register": c_void_p}
Api = struct("Api", **HEAD, version=Version, **_MADE, stream=Ask, later=c_void_p * 12, ordinal=Ask)
Buffer = struct("Buffer", **HEAD, dtype=c_int, data=c_void_p, rank=c_int64, dims=c_void_p)
Values = struct("Values", **HEAD, count=c_int64, types=c_void_p, of=c_void_p)
Text = struct("Text", data=c_char_p, size=c_size_t)
Attributes = struct("Attributes", **HEAD, count=c_int64, types=c_void_p, names=c_void_p, of=c_void_p)
Array = struct("Array", dtype=c_int, count=c_size_t, data=c_void_p)
Scalar = struct("Scalar", dtype=c_int, value=c_void_p)
_LISTS = {"arguments": Values, "results": Values, "attributes": Attributes}
Frame = struct("Frame", **HEAD, api=POINTER(Api), context=c_void_p, stage=c_int, **_LISTS)

ARRAY, SCALAR = 1, 3
STREAM = 0x5EA


class Xla:
    """A runtime as far as a handler sees it: it makes frames, and keeps the errors that it is given."""

    def __init__(self, stub: Stub, *, ordinal: int | None = 2, has_stream: bool = True) -> None:
        self._handler = stub.c.fa_xla_call
        self._handler.restype = c_void_p
        self.errors: list[str] = []
        self.dropped: list[int] = []
        self._kept: list[object] = []
        self.api = Api(size=ctypes.sizeof(Api), version=Version(ctypes.sizeof(Version), None, 0, 3))
        if ordinal is None:
            self.api.size = Api.ordinal.offset
        self.api.create = Raise(self._create)
        self.api.destroy = Drop(lambda old: self.dropped.append(Question.from_address(old).context))
        self.api.stream = Ask(lambda asked: self._answer(asked, STREAM) if has_stream else 0xBAD)
        self.api.ordinal = Ask(lambda asked: self._answer(asked, ordinal or 0))

    def _create(self, error: ctypes._Pointer[NewError]) -> int:
        self.errors.append(error.contents.message.decode())
        return len(self.errors)

    def _answer(self, asked: ctypes._Pointer[Question], value: int) -> None:
        asked.contents.answer = value

    def describe(self) -> Metadata:
        """What the handler says of itself when it is registered."""
        found = Metadata(size=ctypes.sizeof(Metadata), state=7)
        asked = (ctypes.c_byte * 32).from_buffer(bytearray(32))
        Extension.from_buffer(asked).type = 1
        c_void_p.from_buffer(asked, ctypes.sizeof(Extension)).value = ctypes.addressof(found)
        frame = Frame(size=ctypes.sizeof(Frame), extensions=ctypes.addressof(asked), api=ctypes.pointer(self.api))
        assert not self._handler(byref(frame))
        return found

    def run(self, args: ForwardArgs, arrays: dict[str, int], *, places: list[int] | None = None, size: int = 0) -> bool:
        """Call the handler with arrays at addresses; whether it answered with no error."""
        packed = bytes(args)[: size or ctypes.sizeof(args)]
        offsets = places if places is not None else [place_of(name) for name in arrays]
        inputs = {name: address for name, address in arrays.items() if name in {"q", "k", "v"}}
        outputs = {name: address for name, address in arrays.items() if name not in inputs}
        attributes = {
            b"arguments": (ARRAY, Array(0, len(packed), self._keep(ctypes.create_string_buffer(packed)))),
            b"function": (SCALAR, Scalar(0, self._keep(c_int32(0)))),
            b"places": (ARRAY, Array(0, len(offsets), self._keep((c_int32 * len(offsets))(*offsets)))),
        }
        frame = Frame(
            size=ctypes.sizeof(Frame),
            api=ctypes.pointer(self.api),
            arguments=self._values(inputs),
            results=self._values(outputs),
            attributes=Attributes(
                count=len(attributes),
                types=self._keep((c_int * 3)(*(kind for kind, _ in attributes.values()))),
                names=self._list(Text(name, len(name)) for name in attributes),
                of=self._list(value for _, value in attributes.values()),
            ),
        )
        return not self._handler(byref(frame))

    def _values(self, arrays: dict[str, int]) -> Values:
        buffers = self._list(Buffer(ctypes.sizeof(Buffer), None, 16, address) for address in arrays.values())
        return Values(count=len(arrays), of=buffers)

    def _list(self, things: object) -> int:
        addresses = [self._keep(thing) for thing in things]  # type: ignore[attr-defined]
        return self._keep((c_void_p * len(addresses))(*addresses))

    def _keep(self, thing: object) -> int:
        self._kept.append(thing)
        return ctypes.addressof(thing)  # type: ignore[arg-type]


def place_of(name: str) -> int:
    return int(getattr(ForwardArgs, name).offset)


ADDRESSES = {"q": 0x1000, "k": 0x2000, "v": 0x3000, "o": 0x4000, "lse": 0x5000}


def problem(**fields: int) -> ForwardArgs:
    """A dense problem without buffers: those come in the frame."""
    args = forward_args(**fields)
    for name in ("q", "k", "v", "o"):
        getattr(args, name).data = None
    args.lse = None
    return args


def filled(args: ForwardArgs, device: int) -> ForwardArgs:
    """The same problem as a C program passes it."""
    filled = ForwardArgs.from_buffer_copy(args)
    for name in ("q", "k", "v", "o"):
        getattr(filled, name).data = ADDRESSES[name]
    filled.lse, filled.device, filled.stream = ADDRESSES["lse"], device, STREAM
    return filled


@pytest.mark.parametrize(("ordinal", "device"), [(2, 2), (1, 1), (None, 1)])
def test_a_frame_launches_what_the_c_function_launches(full, ordinal, device) -> None:
    """An older XLA names no device, and means the current one."""
    full.c.stub_set_current_device(1)
    args = problem(seqlen_q=77, head_dim=128)
    assert Xla(full, ordinal=ordinal).run(args, ADDRESSES)
    launched = full.launches()
    full.fwd(filled(args, device))
    assert launched
    assert launched == full.launches()


def test_a_handler_may_be_captured_and_has_the_version_of_its_caller(full) -> None:
    found = Xla(full).describe()
    assert (found.version.major, found.version.minor) == (0, 3)
    assert found.traits == 1
    assert found.state == 0


@pytest.mark.parametrize(
    ("fields", "wrong", "has_stream", "said"),
    [
        ({"head_dim": 63}, {}, True, "head_dim"),
        ({}, {}, False, "NVIDIA GPUs"),
        ({}, {"places": [0, 8, 16, 24, ctypes.sizeof(ForwardArgs) - 4]}, True, "another version"),
        ({}, {"places": [-8, 8, 16, 24, 32]}, True, "another version"),
        ({}, {"places": [88]}, True, "another version"),
        ({}, {"size": 2}, True, "another version"),
    ],
)
def test_what_cannot_be_called_launches_nothing_and_says_why(full, fields, wrong, has_stream, said) -> None:
    xla = Xla(full, has_stream=has_stream)
    assert not xla.run(problem(**fields), ADDRESSES, **wrong)
    assert said in xla.errors[0]
    assert xla.dropped == ([] if has_stream else [0xBAD])
    assert full.launches() == []
