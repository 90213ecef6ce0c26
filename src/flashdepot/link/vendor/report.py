"""What a check of vendored libraries found."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from flashdepot.model.codec import plain


class Status(str, Enum):
    """A verdict; its value is the word for people and documents."""

    FITS = "fits"
    OTHER_PLATFORM = "for another platform"
    DOES_NOT_FIT = "does not fit"
    DAMAGED = "damaged"

    @property
    def exit_code(self) -> int:
        """As of the whole command line: 4 nothing compatible, 6 bytes are not what they should be."""
        return {Status.FITS: 0, Status.OTHER_PLATFORM: 4, Status.DOES_NOT_FIT: 4, Status.DAMAGED: 6}[self]


class FaultKind(str, Enum):
    """What is wrong with a file."""

    POINTER = "Git LFS pointer"
    MISSING = "missing"
    CHANGED = "changed"
    LINE_ENDINGS = "line endings"


class Fault(msgspec.Struct, frozen=True):
    """A file that is not what the manifest says: its path in the target's folder, and what was found."""

    path: str
    kind: FaultKind = msgspec.field(name="fault")
    seen: str


class Change(msgspec.Struct, frozen=True):
    """Something that is not as it was when the library was made, and whether that asks for a new one."""

    topic: str
    made_with: str
    here: str
    rebuild: bool
    why: str


class TargetReport(msgspec.Struct, frozen=True):
    """One target: faults of its files, files that nobody listed, changes, and why it does not serve this host."""

    folder: str
    faults: tuple[Fault, ...] = ()
    extra: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    reasons: tuple[str, ...] = ()
    other_platform: bool = False
    fix: str = ""

    @property
    def status(self) -> Status:
        """Damage comes before all: bytes that are not there fit nothing."""
        if self.faults:
            return Status.DAMAGED
        if self.other_platform:
            return Status.OTHER_PLATFORM
        return Status.DOES_NOT_FIT if self.reasons else Status.FITS

    @property
    def rebuild(self) -> bool:
        """Whether the host needs another library."""
        return bool(self.reasons) and not self.other_platform

    def to_json(self) -> dict[str, Any]:
        """All fields and what follows from them."""
        return {
            "folder": self.folder,
            "status": self.status.value,
            "rebuild": self.rebuild,
            "reasons": list(self.reasons),
            "changes": plain(self.changes),
            "faults": plain(self.faults),
            "extra": list(self.extra),
            "fix": self.fix,
        }


class VendorReport(msgspec.Struct, frozen=True):
    """All targets of a folder."""

    directory: str
    targets: tuple[TargetReport, ...]

    @property
    def status(self) -> Status:
        """Damaged when any target is; else fits when any does; else that of the targets for this platform, if any."""
        found = [target.status for target in self.targets]
        order = (Status.DAMAGED, Status.FITS, Status.DOES_NOT_FIT, Status.OTHER_PLATFORM)
        return next((status for status in order if status in found), Status.DOES_NOT_FIT)

    @property
    def rebuild(self) -> bool:
        """Whether this host needs a library that is not among them."""
        return bool(self.targets) and all(t.status is not Status.DAMAGED and t.reasons for t in self.targets)

    def to_json(self) -> dict[str, Any]:
        """The one document of ``vendor --check --json``."""
        return {
            "status": self.status.value,
            "exit_code": self.status.exit_code,
            "rebuild": self.rebuild,
            "directory": self.directory,
            "targets": [target.to_json() for target in self.targets],
        }
