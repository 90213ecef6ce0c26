"""What linking gives: files for a library's folder, and what they need of a system."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from flashdepot.errors import CompileError
from flashdepot.model.target import Version
from flashdepot.system.confinement import UNCONFINED
from flashdepot.system.disk_full import disk_full
from flashdepot.system.process import Finished, first_error


class Linked(msgspec.Struct, frozen=True):
    """The libraries of one recipe: ``files`` by their place in the library's folder, ``links`` from place to name.

    ``libc_floor`` is the oldest GNU C library that they run with, ``None`` where there is none.
    """

    files: Mapping[str, Path]
    links: Mapping[str, str] = msgspec.field(default_factory=dict)
    libc_floor: Version | None = None


def require(done: Finished, result: Path) -> None:
    """Check the program that was to make a library.

    :raises MissingToolError: when the disk filled up.
    :raises CompileError: when it refused, with its first error.
    """
    if done.status != 0:
        if (full := disk_full(result.name, "linked", done.output, result.parent)) is not None:
            raise full
        raise CompileError(
            f"{result.name} cannot be linked: {first_error(done.output)}",
            hint=f"Is it because the linker is confined? {UNCONFINED}=1 lifts that: see docs/security.md",
        )
