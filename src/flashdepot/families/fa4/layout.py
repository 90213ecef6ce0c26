"""A source tree of FlashAttention-4: Python modules, whatever they are compiled for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from flashdepot.errors import UsageError
from flashdepot.model.selection import Feature, Unit
from flashdepot.upstream.layout import UNKNOWN_VERSION

KERNELS = "flash_fwd_sm90.py"
"""A module that every tree has."""

_VERSION = r"(?m)^Version: (\S+)$"


class Fa4Layout:
    """The tree of the sdist, and the folder ``flash_attn/cute`` of upstream's repository."""

    project = "flash-attn-4"
    kept: tuple[str, ...] = (".",)
    """All of it: 60 files."""
    submodules: tuple[str, ...] = ()

    def require_complete(self, root: Path) -> None:
        """Check that a folder holds the modules of the kernels; :raises UsageError: when it does not."""
        if not (root / KERNELS).is_file():
            raise UsageError(
                f"{root} is not a source tree of FlashAttention-4: it has no {KERNELS}.",
                hint="Name the folder flash_attn/cute of a clone, or use the published version.",
            )

    def units(self, root: Path) -> frozenset[Unit]:  # noqa: ARG002  (each version that is known has them all)
        """Every kernel that the compile worker knows."""
        from flashdepot.families.fa4.units import units  # noqa: PLC0415  (who asks for fa2 alone needs none of them)

        return units()

    def features(self, root: Path) -> frozenset[Feature]:  # noqa: ARG002
        """What kernels are there for; head dims between the units' are in all of them."""
        return frozenset({Feature.SOFTCAP, Feature.LOCAL, Feature.UNEVEN_K})

    def version(self, root: Path) -> str:
        """Read the version from the sdist's ``PKG-INFO``; ``unknown`` for another tree."""
        info = root / "PKG-INFO"
        match = re.search(_VERSION, info.read_text(encoding="utf-8")) if info.is_file() else None
        return match[1] if match else UNKNOWN_VERSION

    def sources(self, root: Path) -> Iterator[Path]:
        """Yield every module."""
        yield from root.glob("*.py")
