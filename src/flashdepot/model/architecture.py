"""GPU architectures: compute capabilities, and which machine code (SASS) runs on which GPU."""

from __future__ import annotations

import re

import msgspec

from flashdepot.errors import UsageError

_SPELLING = re.compile(r"(?:sm_|compute_)?(?:(\d{1,2})\.(\d)|(\d{1,2})(\d))([af]?)")


class Architecture(msgspec.Struct, frozen=True, order=True):
    """A compute capability, of a GPU or of machine code made for it.

    ``suffix`` is ``"a"`` (that GPU alone) or ``"f"`` (that family), as nvcc spells them; a GPU has none.
    """

    major: int
    minor: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Architecture:
        """Read ``90``, ``9.0``, ``sm_90``, ``compute_90`` or ``sm_90a``.

        :raises UsageError: for anything else.
        """
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


def parse_list(text: str) -> tuple[Architecture, ...]:
    """Read ``80,90,120`` into a sorted tuple without repeats.

    :raises UsageError: for an empty list or a part that is no architecture.
    """
    parts = [part for part in re.split(r"[,;\s]+", text.strip()) if part]
    if not parts:
        raise UsageError("The list of architectures is empty.", hint="Name some: --arch 80,90")
    return tuple(sorted({Architecture.parse(part) for part in parts}))


def spell(architectures: tuple[Architecture, ...]) -> str:
    """``80,90``: the list as the command line takes it."""
    return ",".join(str(a) for a in architectures)
