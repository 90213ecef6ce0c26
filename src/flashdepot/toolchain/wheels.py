"""nvcc from its PyPI wheels, put into the depot and never into the user's environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashdepot.errors import IncompatibleError
from flashdepot.facts import read_table
from flashdepot.model.codec import digest_of
from flashdepot.model.target import Platform, Version

if TYPE_CHECKING:
    from flashdepot.events import OnFile

_INSIDE = "nvidia/cu13/"


@cache
def _data() -> dict[str, Any]:
    return read_table(Path(__file__).with_name("nvcc_wheels.toml"))


def provided_version() -> Version:
    """The version of the nvcc that :func:`provide` gives."""
    return Version.parse(_data()["cuda"])


def provides(platform: Platform) -> bool:
    """Whether PyPI has nvcc for a platform."""
    return bool(_wheels(platform))


def provide(platform: Platform, folder: Path, on_file: OnFile) -> Path:
    """The root of the pinned toolkit inside ``folder``, fetched and unpacked on first use (about 100 MB of wheels).

    Every byte of it is compared with what is pinned, each time: its programs are run and its headers compiled.

    :param on_file: called with the name of each wheel before it is fetched.
    :raises IncompatibleError: for a platform that PyPI has no nvcc for.
    :raises NetworkError: when it must be fetched and cannot be.
    :raises IntegrityError: when what was fetched is not what is pinned.
    """
    if not provides(platform):
        raise IncompatibleError(
            f"PyPI has no nvcc for {platform}.", hint="Install a CUDA toolkit and name its folder: --cuda DIR"
        )
    from flashdepot.files.folders import make_whole  # noqa: PLC0415  (foreseeing a toolchain provides nothing)

    root = folder / _folder_name(platform)
    return make_whole(root, lambda temporary: unpack_toolkit(_wheels(platform), temporary, on_file), _tree(platform))


def is_provided(platform: Platform, folder: Path) -> bool:
    """Whether :func:`provide` finds it in ``folder``; its bytes are not read for that."""
    return (folder / _folder_name(platform)).is_dir()


def provided_nvcc(platform: Platform, folder: Path) -> Path | None:
    """The nvcc that :func:`provide` has put into ``folder``, or ``None``; its bytes are not read."""
    nvcc = folder / _folder_name(platform) / "bin" / "nvcc"
    return nvcc if provides(platform) and nvcc.is_file() else None


def unpack_toolkit(wheels: Sequence[Mapping[str, str]], folder: Path, on_file: OnFile) -> None:
    """Fetch wheels and unpack what they hold of a toolkit, together, into ``folder``; raises as :func:`provide`."""
    import shutil  # noqa: PLC0415  (as above)

    from flashdepot.files.archive import unpack  # noqa: PLC0415
    from flashdepot.net.fetch import fetch  # noqa: PLC0415

    # Beside the folder that is filled, and as much its own: another process may be doing the same.
    work = folder.with_name(f"{folder.name}.work")
    try:
        for wheel in wheels:
            progress = on_file(wheel["filename"])
            place = work / wheel["filename"]
            archive = fetch(wheel["project"], wheel["filename"], wheel["sha256"], place, on_progress=progress)
            unpack(archive, work / wheel["project"], keep=lambda name: name.startswith(_INSIDE))
            shutil.copytree(work / wheel["project"] / _INSIDE, folder, dirs_exist_ok=True, copy_function=shutil.move)
            archive.unlink()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def known_trees() -> Mapping[str, str]:
    """The digest of every toolkit that can be provided, by the name of its folder."""
    platforms = {Platform.parse(wheel["platform"]) for wheel in _data()["wheel"]}
    return {_folder_name(platform): _tree(platform) for platform in platforms}


def _folder_name(platform: Platform) -> str:
    pinned = digest_of(sorted(w["sha256"] for w in _wheels(platform)))
    return f"cuda-{provided_version()}-{pinned[:12]}"


def _tree(platform: Platform) -> str:
    tree: str = _data()["tree"][str(platform)]
    return tree


def _wheels(platform: Platform) -> list[dict[str, str]]:
    return [w for w in _data()["wheel"] if w["platform"] == str(platform)]
