"""What a result must run on."""

from __future__ import annotations

import re

import msgspec

from flashdepot.errors import UsageError
from flashdepot.model.architecture import Architecture


class Version(msgspec.Struct, frozen=True):
    """A dotted number of a driver, a toolkit, a compiler or a C library: ``13.0``, ``580.65.06``, ``2.36``.

    Compared number by number; a missing part counts as 0, so 2.36 equals 2.36.0.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read a dotted number; :raises UsageError: for anything else."""
        if re.fullmatch(r"\d+(\.\d+)*", text.strip()) is None:
            raise UsageError(f"'{text}' is not a version number: expected digits and dots, such as 13.0.")
        return cls(text.strip())

    @property
    def numbers(self) -> tuple[int, ...]:
        """The parts, without zeros at the end."""
        numbers = [int(part) for part in self.text.split(".")]
        while len(numbers) > 1 and numbers[-1] == 0:
            numbers.pop()
        return tuple(numbers)

    @property
    def major(self) -> int:
        """The first number."""
        return int(self.text.split(".", 1)[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.numbers == other.numbers

    def __lt__(self, other: Version) -> bool:
        return self.numbers < other.numbers

    def __le__(self, other: Version) -> bool:
        return self.numbers <= other.numbers

    def __gt__(self, other: Version) -> bool:
        return self.numbers > other.numbers

    def __ge__(self, other: Version) -> bool:
        return self.numbers >= other.numbers

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __str__(self) -> str:
        return self.text


class Platform(msgspec.Struct, frozen=True):
    """Operating system and CPU: ``linux-x86_64``."""

    system: str
    machine: str

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read ``linux-x86_64``; :raises UsageError: where there is no dash."""
        system, dash, machine = text.partition("-")
        if not dash:
            raise UsageError(f"'{text}' is not a platform: expected one such as linux-x86_64.")
        return cls(system, machine)

    def __str__(self) -> str:
        return f"{self.system}-{self.machine}"


class Target(msgspec.Struct, frozen=True):
    """Where a library is to run: platform, CUDA major version, the architectures it has SASS for, and the oldest driver."""

    platform: Platform
    cuda_major: int
    sass: tuple[Architecture, ...]
    driver_floor: Version
