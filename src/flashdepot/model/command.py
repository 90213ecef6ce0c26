"""A command of flashdepot as data: what is advised is made, printed and tried from the same value."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class Command(msgspec.Struct, frozen=True):
    """A verb of flashdepot and its options, by the names of the fields that they fill.

    An option that is ``None``, false or empty is left out; ``True`` is a flag, and a tuple is repeated.
    """

    verb: str
    options: Mapping[str, Any] = {}
    arguments: tuple[str, ...] = ()

    def but(self, **options: Any) -> Command:
        """The same with some options changed."""
        return Command(self.verb, {**self.options, **options}, self.arguments)

    @property
    def words(self) -> list[str]:
        """What stands behind ``flashdepot`` on a command line."""
        return [*self.verb.split(), *self.arguments, *self._spelled()]

    def _spelled(self) -> Iterator[str]:
        for name, value in self.options.items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                yield option
                continue
            for one in value if isinstance(value, (tuple, list)) else (value,):
                if one not in {None, False, ""}:
                    yield from (option, str(one))

    def __str__(self) -> str:
        return shlex.join(["flashdepot", *self.words])
