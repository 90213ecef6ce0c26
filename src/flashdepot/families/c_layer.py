"""The sources of our own in every library: header, C layer, stand-ins for torch's headers, templates."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from flashdepot.model.canonical import digest_of
from flashdepot.system.files import sha256_file

NATIVE = Path(__file__).parents[1] / "native"
"""Their folder."""


def c_layer_sources(family: str, suffix: str) -> list[Path]:
    """The sources of the C layer with that suffix: what all families share, then the folder of one."""
    folders = [NATIVE / "src", NATIVE / "src" / family]
    return [path for folder in folders for path in sorted(folder.glob(f"*{suffix}"))]


def own_name(source: Path) -> str:
    """``native-device``, ``native-fa2-units``: what a source of the C layer is called in logs and archives."""
    return "-".join(("native", *source.relative_to(NATIVE / "src").with_suffix("").parts))


@cache
def c_layer_digest() -> str:
    """One SHA-256 for all of them, by name and bytes."""
    files = sorted(path for path in NATIVE.rglob("*") if path.is_file())
    return digest_of({path.relative_to(NATIVE).as_posix(): sha256_file(path) for path in files})
