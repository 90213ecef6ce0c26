"""What a build may use of its machine."""

from __future__ import annotations

import msgspec


class Farm(msgspec.Struct, frozen=True):
    """A Dask cluster that compiles: the address of its scheduler (``tcp://HOST:8786``) or the path of a scheduler file.

    ``slots`` and ``memory``, in bytes, are what its workers had together when somebody looked, 0 before.
    """

    address: str
    slots: int = 0
    memory: int = 0


class Limits(msgspec.Struct, frozen=True):
    """``jobs`` compilers at once, ``None``: one a core. ``memory`` in bytes, ``None``: the machine's, less a reserve.

    With ``keep_going`` a failure does not keep the other units from being compiled. With a ``farm`` its workers compile,
    and ``memory`` says nothing: they know theirs.
    """

    jobs: int | None = None
    memory: int | None = None
    keep_going: bool = False
    farm: Farm | None = None
