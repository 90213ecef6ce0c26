"""Which torch a binary was built for, told from one symbol of torch that it needs. The data has its own dates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from flashdepot.doctor.explain.pattern import Pattern
from flashdepot.facts.torch_symbols import patterns
from flashdepot.model.target import Version


class TorchRange(msgspec.Struct, frozen=True):
    """The torch minor releases that export a symbol, and the C++ ABI that it belongs to; ``None``: not told."""

    first: Version | None = None
    last: Version | None = None
    cxx11_abi: bool | None = None

    def holds(self, torch: Version) -> bool:
        """Whether that torch, as far as versions go, exports the symbol."""
        minor = torch.numbers[:2]
        after = self.first is None or self.first.numbers[:2] <= minor
        return after and (self.last is None or minor <= self.last.numbers[:2])

    def __str__(self) -> str:
        if self.first and self.last:
            return f"torch {self.first} to {self.last}"
        if self.first:
            return f"torch {self.first} or newer"
        if self.last:
            return f"torch {self.last} or older"
        return (
            f"a torch with the {'C++11' if self.cxx11_abi else 'old'} ABI (_GLIBCXX_USE_CXX11_ABI={self.cxx11_abi:d})"
        )


def built_for(symbol: str) -> TorchRange | None:
    """What the symbol tells, or ``None`` for one that tells nothing."""
    return next((torch for pattern, torch in _table() if pattern.search(symbol.encode())), None)


@cache
def _table() -> tuple[tuple[Pattern, TorchRange], ...]:
    return tuple((Pattern.parse(row["pattern"]), _range(row)) for row in patterns())


def _range(row: Mapping[str, object]) -> TorchRange:
    first, last, abi = row.get("first"), row.get("last"), row.get("cxx11_abi")
    return TorchRange(
        Version.parse(str(first)) if first else None,
        Version.parse(str(last)) if last else None,
        bool(abi) if abi is not None else None,
    )
