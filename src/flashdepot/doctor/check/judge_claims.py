"""What a wheel's name claims of torch, CUDA and C++ ABI, compared with what its compiled files take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from flashdepot.doctor.check.evidence import Evidence, Outcome
from flashdepot.doctor.check.subject import Binary
from flashdepot.doctor.check.torch_side import abi_of, span_of
from flashdepot.model.target import Version

_TORCH = re.compile(r"torch(\d+\.\d+)")
_CUDA = re.compile(r"cu(\d\d)\d?(?!\d)")
_ABI = re.compile(r"cxx11abi(TRUE|FALSE)", re.IGNORECASE)
_CUDART = re.compile(r"libcudart\.so\.(\d+)|cudart64_(\d\d)\d*\.dll", re.IGNORECASE)
_FIX = "It is not what its name says: take it from where it was first published, or another build."


def judge_claims(file_name: str, binaries: Iterable[Binary]) -> list[Evidence]:
    """Contradictions between a wheel's file name (``+cu12torch2.8cxx11abiTRUE``) and its bytes; none is good news."""
    local = file_name.partition("+")[2].partition("-")[0]
    return [
        Evidence(Outcome.DAMAGED, "name", seen, has, binary.name, _FIX)
        for binary in binaries
        for seen, has in (*_torch(local, binary), *_cuda(local, binary), *_abi(local, binary))
    ]


def _torch(local: str, binary: Binary) -> Iterator[tuple[str, str]]:
    claim = _TORCH.search(local)
    if claim is None:
        return
    claimed = Version(claim[1])
    for symbol in sorted(binary.torch_symbols):
        span = span_of(symbol)
        if span is not None and not span[0] <= claimed <= span[1]:
            yield f"the name says torch {claimed}", f"it takes {symbol}, which torch {span[0]} to {span[1]} has"
            return


def _cuda(local: str, binary: Binary) -> Iterator[tuple[str, str]]:
    claim = _CUDA.search(local)
    for name in binary.needed if claim is not None else ():
        match = _CUDART.fullmatch(name)
        if match and claim and int(match[1] or match[2]) != int(claim[1]):
            yield f"the name says CUDA {int(claim[1])}", f"it needs {name}"


def _abi(local: str, binary: Binary) -> Iterator[tuple[str, str]]:
    claim = _ABI.search(local)
    taken = None if binary.is_windows else abi_of(binary.torch_symbols)
    if claim is not None and taken is not None and taken != (claim[1].upper() == "TRUE"):
        yield f"the name says {claim[0]}", f"its symbols are of the {'C++11' if taken else 'old C++'} ABI"
