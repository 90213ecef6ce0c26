"""A Cargo project that uses candle-flash-attn: which version, from where, and behind which feature."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.link.candle_sources import CRATE, find_crate
from flashdepot.link.candle_versions import CRATE_V3, line_of
from flashdepot.system.toml import read_toml

LOCK = "Cargo.lock"
_GIT = "git+"


class CandleProject(msgspec.Struct, frozen=True):
    """What a project's ``Cargo.lock`` says of candle-flash-attn.

    :param root: the folder with ``Cargo.lock``, absolute.
    :param source: where Cargo has it from, as it spells it; empty for a folder, such as one of ``[patch]``.
    :param features: those of the root package that a build must name to use it; none when it always does.
    """

    root: Path
    version: str
    source: str
    features: tuple[str, ...]

    def sources(self, cargo_home: Path) -> Path | None:
        """The folder of candle's own sources of that version; ``None`` when Cargo has not unpacked them."""
        if not self.source.startswith(_GIT):
            return find_crate(self.version, cargo_home)
        revision = self.source.rpartition("#")[2][:7]
        found = sorted((cargo_home / "git" / "checkouts").glob(f"*/{revision}/{CRATE}/Cargo.toml"))
        return found[0].parent if found else None

    def require_published(self) -> None:
        """Before a crate for ``[patch.crates-io]`` is written: that replaces no dependency from git.

        :raises IncompatibleError: when candle comes from git.
        """
        if self.source.startswith(_GIT):
            raise IncompatibleError(
                f"{CRATE} {self.version} of this project comes from git ({self.source.partition('#')[0]}), and its build "
                f"script takes no archive. [patch.crates-io] replaces published crates only.",
                hint=f'Take a published version in Cargo.toml: {CRATE} = "{self.version}"',
            )


def find_root(folder: Path) -> Path:
    """The nearest folder, this one or above it, with a ``Cargo.lock``.

    :raises UsageError: when there is none, with the command that makes one.
    """
    start = Path(os.path.abspath(folder))  # noqa: PTH100  (links stay as they were typed)
    for place in (start, *start.parents):
        if (place / LOCK).is_file():
            return place
    if any((place / "Cargo.toml").is_file() for place in (start, *start.parents)):
        raise UsageError(f"{start} has no {LOCK}, which says which candle the project uses.", hint="cargo fetch")
    raise UsageError(
        f"{start} is no Cargo project: it has no {LOCK}, and no folder above it has one.",
        hint="Go to the project's folder, or name the version and a folder: --candle-version X --build-dir DIR",
    )


def read_candle_project(folder: Path) -> CandleProject:
    """Read the project around a folder.

    :raises UsageError: when there is no ``Cargo.lock``, or none or several versions of candle-flash-attn are in it.
    :raises IncompatibleError: when only candle's FlashAttention-3 crate is in it.
    """
    root = find_root(folder)
    packages = [p for p in read_toml(root / LOCK).get("package", []) if isinstance(p, dict)]
    found = {str(p.get("version")): str(p.get("source", "")) for p in packages if p.get("name") == CRATE}
    if not found:
        for package in packages:
            if package.get("name") == CRATE_V3:
                line_of(str(package.get("version")), CRATE_V3)
        raise UsageError(
            f"{root / LOCK} has no {CRATE}: the project does not use it.", hint=f"cargo add --optional {CRATE}"
        )
    if len(found) > 1:
        raise UsageError(
            f"{root / LOCK} has {CRATE} {' and '.join(sorted(found))}: a program can link one of them.",
            hint=f"See who asks for which: cargo tree -i {CRATE}; or name one: --candle-version X --build-dir DIR",
        )
    ((version, source),) = found.items()
    return CandleProject(root, version, source, switches(_manifest(root), CRATE))


def require_sources(found: Path | None, version: str, cargo_home: Path) -> Path:
    """The sources of a version; :raises MissingToolError: when Cargo has not fetched them."""
    if found is None:
        raise MissingToolError(
            f"The sources of {CRATE} {version} are not on this machine: Cargo has not fetched them to {cargo_home}.",
            hint="Run 'cargo fetch' in a project that depends on it, or name their folder with --crate.",
        )
    return found


def switches(manifest: Mapping[str, Any], crate: str) -> tuple[str, ...]:
    """The features of a package that switch an optional dependency on, directly or through another feature."""
    dependency = manifest.get("dependencies", {}).get(crate)
    features = manifest.get("features", {})
    if not (isinstance(dependency, dict) and dependency.get("optional")):
        return ()
    asks = {f"dep:{crate}", crate, f"{crate}/"}
    names = [name for name, wants in features.items() if any(want in asks for want in wants)]
    if any(name in features.get("default", []) for name in names):
        return ()
    return tuple(names) or (crate,)


def _manifest(root: Path) -> Mapping[str, Any]:
    path = root / "Cargo.toml"
    return read_toml(path) if path.is_file() else {}
