"""The names that a library exports: one list serves every system."""

from __future__ import annotations

import re
from collections.abc import Iterable


def exported_names(version_script: str) -> tuple[str, ...]:
    """The names that the version script of the Linux library makes global, in order."""
    section = re.search(r"global:(.*?)local:", version_script, re.DOTALL)
    return tuple(sorted(re.findall(r"(\w+);", section[1]))) if section else ()


def definition_text(names: Iterable[str]) -> str:
    """A module-definition file that exports these names and no others."""
    return "\n".join(["LIBRARY flashattention", "EXPORTS", *(f"  {name}" for name in names), ""])
