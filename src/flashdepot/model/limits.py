"""What a build may use of its machine."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """``jobs`` compilers at once, ``None``: one a core. ``memory`` in bytes, ``None``: the machine's, less a reserve.

    With ``keep_going`` a failure does not keep the other units from being compiled.
    """

    jobs: int | None = None
    memory: int | None = None
    keep_going: bool = False
