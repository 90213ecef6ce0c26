"""nvcc of other CUDA releases, from NVIDIA's redistributable archives, put into the depot.

A release is a manifest, with the address and the SHA-256 of an archive for each component.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.events import OnFile
from flashdepot.facts import table
from flashdepot.files.folders import make_whole
from flashdepot.files.locks import lock_file
from flashdepot.model.codec import Digest
from flashdepot.model.target import Platform, Version
from flashdepot.net.fetch import fetch_url
from flashdepot.toolchain.wheels import unpack_together

BASE = "FLASHDEPOT_CUDA_ARCHIVES"
"""The variable with the address of a mirror in place of NVIDIA's server; empty to use no such archives at all."""

_KEPT = re.compile(r"[^/]+/(include/.+|bin/.+|nvvm/(bin|libdevice)/.+|lib(64)?/nvcc\.profile)")
"""What a compile reads. What else is in an archive, libraries with their links among it, is not unpacked."""

_PATH = r"^([A-Za-z0-9_-][A-Za-z0-9_.-]*/)+[A-Za-z0-9_-][A-Za-z0-9_.-]*\.tar\.xz\Z"
_LARGEST_MANIFEST = 4 << 20
_DOTS_OF_A_LABEL = 2
_ELSEWHERE = f"name a mirror ({BASE}=URL), or a toolkit's folder: --cuda DIR"


class Archive(msgspec.Struct, frozen=True):
    """A component of a release for one platform, as the manifest has it: its place below the base address and bytes."""

    relative_path: Annotated[str, msgspec.Meta(pattern=_PATH)]
    sha256: Digest
    size: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}\Z")]


def base_address() -> str:
    """Where the archives are; empty when they are not to be used."""
    ours: str = table("cuda_archives")["base"]
    return os.environ.get(BASE, ours).rstrip("/")


def release_of(asked: Version, platform: Platform) -> str | None:
    """The label of the release that a version means, ``12.8.1`` of ``12.8``.

    ``None`` where there are no archives for the platform, none are to be used, or nobody knows the newest of that minor
    version.
    """
    if not base_address() or str(platform) not in table("cuda_archives")["platform"]:
        return None
    if asked.text.count(".") == _DOTS_OF_A_LABEL:
        return asked.text
    fitting = [label for label in table("cuda_archives")["newest"] if f"{label}.".startswith(f"{asked}.")]
    return fitting[-1] if fitting else None


def is_release_provided(label: str, platform: Platform, folder: Path) -> bool:
    """Whether :func:`provide_release` finds it in ``folder``; its bytes are not read for that."""
    return _root(label, platform, folder).is_dir()


def provide_release(label: str, platform: Platform, folder: Path, on_file: OnFile) -> Path:
    """The root of a release's toolkit inside ``folder``, fetched and unpacked on first use (about 80 MB).

    What a stopped call had fetched is not fetched again. The manifest is trusted because of the server's certificate,
    the archives because of their SHA-256 in it; what was unpacked is compared with what it was each time.

    :param on_file: called with the name of each archive before it is fetched.
    """
    root = _root(label, platform, folder)

    def fill(temporary: Path) -> None:
        from flashdepot.net.download import Remote  # noqa: PLC0415  (foreseeing a toolchain fetches and unpacks nothing)

        fetched = root.with_name(f".{root.name}.archives")

        def arriving() -> Iterator[Path]:
            for archive in _archives(label, platform, fetched):
                place = fetched / archive.relative_path.rpartition("/")[2]
                remote = Remote(f"{base_address()}/{archive.relative_path}", archive.sha256, int(archive.size))
                yield fetch_url(remote, place, elsewhere=_ELSEWHERE, on_progress=on_file(place.name)).path

        fetched.parent.mkdir(parents=True, exist_ok=True)
        with lock_file(root.with_name(f".{root.name}.lock.tmp")) as held:
            unpack_together(
                arriving(), temporary, keep=lambda name: _KEPT.fullmatch(name) is not None, inside="*", skip_links=True
            )
            shutil.rmtree(fetched, ignore_errors=True)
            held.discard()

    return make_whole(root, fill)


def _root(label: str, platform: Platform, folder: Path) -> Path:
    return folder / f"cuda-{label}-of-nvidia-{platform}"


def _archives(label: str, platform: Platform, folder: Path) -> list[Archive]:
    """What the manifest of a release lists of it for a platform; it is fetched into ``folder``."""
    from flashdepot.net.download import Remote  # noqa: PLC0415

    name = f"redistrib_{label}.json"
    place = folder / name
    place.unlink(missing_ok=True)  # a file of this name has no digest to be known by
    fetch_url(Remote(f"{base_address()}/{name}"), place, elsewhere=_ELSEWHERE)
    if place.stat().st_size > _LARGEST_MANIFEST:
        raise IntegrityError(f"{name} has {place.stat().st_size} bytes, which no manifest of a CUDA release has.")
    facts = table("cuda_archives")
    theirs = facts["platform"][str(platform)]
    found: dict[str, Archive] = {}
    try:
        manifest = msgspec.json.decode(place.read_bytes(), type=dict[str, msgspec.Raw])
        for component in filter(manifest.__contains__, facts["components"]):
            platforms = msgspec.json.decode(manifest[component], type=dict[str, msgspec.Raw])
            if theirs in platforms:
                found[component] = msgspec.json.decode(platforms[theirs], type=Archive)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(
            f"{base_address()}/{name} is not the manifest of a CUDA release: {error}.", hint=_ELSEWHERE
        ) from error
    if lacking := [component for component in facts["required"] if component not in found]:
        raise NetworkError(
            f"CUDA {label} of {base_address()} has no {', '.join(lacking)} for {platform}.", hint=_ELSEWHERE
        )
    return list(found.values())
