"""A target: a system and a CPU that libraries run on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from flashdepot.model.library_names import LibraryNames
from flashdepot.model.target import Platform, Version

if TYPE_CHECKING:
    from flashdepot.targets.linked import Linked
    from flashdepot.toolchain.zig import Zig


class System(Protocol):
    """What is the same on every CPU of an operating system."""

    @property
    def names(self) -> LibraryNames:
        """What the files of a library are called."""

    @property
    def object_suffix(self) -> str:
        """The ending of object files."""

    @property
    def words(self) -> tuple[str, ...]:
        """What clang is told of the system."""

    @property
    def link_words(self) -> tuple[str, ...]:
        """What the linker is told; part of a library's key."""

    @property
    def static_needs(self) -> tuple[str, ...]:
        """The libraries of the system that the static library refers to."""

    def link(self, row: Row, zig: Zig, objects: Sequence[Path], native: Path, folder: Path) -> Linked:
        """Make the libraries in ``folder`` from objects in the order given, and look at what they export and need.

        :raises CompileError: when the linker or the archiver refuses.
        :raises FlashdepotError: when a library exports or needs something that it must not.
        """


class Row(msgspec.Struct, frozen=True):
    """One target.

    ``zig`` and ``clang`` are its names there, ``cpu`` the oldest processor. ``headers`` are the folders of zig's
    ``lib/libc/include`` that hold its C library. ``libc_floor`` is the GNU C library it promises to run on.
    """

    platform: Platform
    system: System
    zig: str
    clang: str
    cpu: str
    headers: tuple[str, ...]
    libc_floor: Version | None = None

    def __str__(self) -> str:
        return str(self.platform)
