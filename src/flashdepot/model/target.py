"""What a result must run on: versions, GPU architectures, platforms; and what a library's files are called there."""

from __future__ import annotations

import re

import msgspec

from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.model.codec import Spelled

_SPELLING = re.compile(r"(?:sm_|compute_)?(?:(\d{1,2})\.(\d)|(\d{1,2})(\d))([af]?)")


class Architecture(Spelled):
    """A compute capability, of a GPU or of machine code made for it.

    ``suffix`` is ``"a"`` (only that GPU) or ``"f"`` (that family), as nvcc spells them; a GPU has none.
    """

    __slots__ = ("major", "minor", "suffix")

    def __init__(self, major: int, minor: int, suffix: str = "") -> None:
        self.major, self.minor, self.suffix = major, minor, suffix

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Read ``90``, ``9.0``, ``sm_90``, ``compute_90`` or ``sm_90a``; :raises UsageError: for anything else."""
        match = _SPELLING.fullmatch(text.strip().lower())
        if match is None:
            message = f"'{text}' is not a GPU architecture: expected a compute capability such as 80, 9.0 or sm_120."
            raise UsageError(message, hint="flashdepot get --arch list shows the architectures that can be built.")
        major = match[1] or match[3]
        minor = match[2] or match[4]
        return cls(int(major), int(minor), match[5])

    @property
    def sm(self) -> str:
        """nvcc's name for the machine code: ``sm_90``."""
        return f"sm_{self}"

    @property
    def dotted(self) -> str:
        """The compute capability as NVIDIA's tables print it: ``9.0``."""
        return f"{self.major}.{self.minor}{self.suffix}"

    def runs_on(self, gpu: Architecture) -> bool:
        """Whether SASS made for this architecture runs on a GPU of that compute capability.

        The rule is the CUDA C++ Programming Guide's, "Binary Compatibility": the same major version, and a minor
        version that is not newer than the GPU's. Code with the suffix ``a`` runs on exactly its own capability.
        """
        if self.suffix == "a":
            return (self.major, self.minor) == (gpu.major, gpu.minor)
        return self.major == gpu.major and self.minor <= gpu.minor

    def __str__(self) -> str:
        return f"{self.major}{self.minor}{self.suffix}"


def spell(architectures: tuple[Architecture, ...]) -> str:
    """``80,90``: the list as the command line takes it."""
    return ",".join(str(a) for a in architectures)


class Version(Spelled):
    """A dotted number of a driver, a toolkit, a compiler or a C library: ``13.0``, ``580.65.06``, ``2.36``.

    Compared number by number; a missing part counts as 0, so 2.36 equals 2.36.0.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

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

    def reaches(self, floor: Version) -> bool:
        """Whether a driver is as new; one that is named by only its branch, 525, stands for any driver of that branch."""
        return self >= floor or self.text == str(floor.major)

    @property
    def _key(self) -> tuple[int, ...]:
        return self.numbers

    def __str__(self) -> str:
        return self.text


class Platform(Spelled):
    """Operating system and CPU: ``linux-x86_64``."""

    __slots__ = ("machine", "system")

    def __init__(self, system: str, machine: str) -> None:
        self.system, self.machine = system, machine

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read ``linux-x86_64``; :raises UsageError: where there is no dash."""
        system, dash, machine = text.partition("-")
        if not dash:
            raise UsageError(
                f"'{text}' is not a platform: expected one such as linux-x86_64, windows-x86_64 or darwin-arm64."
            )
        return cls(system, machine)

    @classmethod
    def of(cls, system: str, machine: str) -> Platform:
        """With the CPU as Linux and wheels name it, which Windows and macOS call AMD64 and ARM64."""
        name = machine.lower()
        return cls(system, {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name))

    @property
    def label(self) -> str:
        """``Linux x86-64``."""
        return f"{self.system.capitalize()} {self.machine.replace('_', '-')}"

    def __str__(self) -> str:
        return f"{self.system}-{self.machine}"


class Target(msgspec.Struct, frozen=True):
    """Where a library is to run: platform, CUDA major version, the architectures it has SASS for, and the oldest driver."""

    platform: Platform
    cuda_major: int
    sass: tuple[Architecture, ...]
    driver_floor: Version


class LibraryNames(msgspec.Struct, frozen=True):
    """The file names of one system, in ``lib/shared`` and ``lib/static``."""

    shared: str
    """The shared library, as a program loads it."""
    shared_linked: str
    """What a linker reads for it: a link to it, or on Windows its import library."""
    static: tuple[str, ...]
    """The static library, by each of its names; the linkers of the system look for the first."""


LINUX = LibraryNames(
    shared="libflashattention.so.1", shared_linked="libflashattention.so", static=("libflashattention.a",)
)
WINDOWS = LibraryNames(
    shared="flashattention.dll",
    shared_linked="flashattention.lib",
    # link.exe looks for the first, build scripts in Rust that know Linux for the second.
    static=("flashattention.lib", "libflashattention.a"),
)
_NAMES = {"linux": LINUX, "windows": WINDOWS}


def names_of(system: str) -> LibraryNames:
    """The names of a system; :raises IncompatibleError: for one that no library is made for."""
    if system not in _NAMES:
        raise IncompatibleError(
            f"This is a library for '{system}', and how those are linked is not known.",
            hint=f"Name a library for {' or '.join(_NAMES)}: --library DIR",
        )
    return _NAMES[system]
