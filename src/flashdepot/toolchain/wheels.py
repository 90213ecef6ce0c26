"""Compilers and headers from pinned wheels of PyPI, put into the depot and never into the user's environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flashdepot.errors import IncompatibleError
from flashdepot.facts import read_table
from flashdepot.model.codec import digest_of
from flashdepot.model.target import Platform, Version

if TYPE_CHECKING:
    from flashdepot.events import OnFile

_TOOLKIT = "nvidia/cu13/"

_CUTLASS_INCLUDE = "cutlass_library/source/include/"
_CUTLASS_TREE = "91ad8e9a366d7c7ed0171f6962023632c1aa0b2cd4b7b81d7bcff935fc2e616b"


class PinnedWheel(msgspec.Struct, frozen=True):
    """A pinned wheel of a project on a package index, and the platform and the Python that it is for."""

    filename: str
    sha256: str
    project: str = "ziglang"
    platform: str = "any"
    python: str = "any"
    version: str = ""


_CUTLASS = PinnedWheel(
    "nvidia_cutlass-3.5.0.0-py3-none-any.whl",
    "4ec3ab4820dd4ae3ebc2c5ddf23352b0dc90f779435284e7dce822006adc51f6",
    "nvidia-cutlass",
)
"""CUTLASS 3.5.0. Git's digest of each of the 631 files of its ``include`` at 7d49e6c7e2f8896c47f586706e67e1fb215529dc, which
candle-flash-attn 0.9.2 to 0.11.1 clone (``build.rs``), was compared with the wheel's on 2026-11-22: they are the same."""


def provide_wheels(
    root: Path,
    wheels: Sequence[PinnedWheel],
    on_file: OnFile,
    *,
    keep: Callable[[str], bool],
    inside: str = "",
    tree: str | None = None,
    finish: Callable[[Path], None] = lambda _folder: None,
) -> Path:
    """The folder ``root``, filled from wheels on first use. Every byte of it is compared each time.

    :param on_file: called with the name of each wheel before it is fetched.
    :param keep: which files of the wheels are unpacked, by their names with ``/``.
    :param inside: the folder of the wheels that becomes the root.
    :param tree: the digest of what they unpack to; ``None``: what is there is compared with what it was.
    :param finish: called with the folder before it takes its name.
    :returns: the folder; another one next to it where another user has the name.
    """
    from flashdepot.files.folders import make_whole  # noqa: PLC0415  (foreseeing a toolchain provides nothing)

    def fill(folder: Path) -> None:
        unpack_wheels(wheels, folder, on_file, keep=keep, inside=inside)
        finish(folder)

    return make_whole(root, fill, tree)


def unpack_wheels(
    wheels: Sequence[PinnedWheel], folder: Path, on_file: OnFile, *, keep: Callable[[str], bool], inside: str
) -> None:
    """Fetch wheels and unpack them together into ``folder``; as :func:`provide_wheels`."""
    from flashdepot.net.fetch import fetch  # noqa: PLC0415  (as above)

    def fetched() -> Iterator[Path]:
        for wheel in wheels:
            place, progress = _beside(folder) / wheel.filename, on_file(wheel.filename)
            yield fetch(wheel.project, wheel.filename, wheel.sha256, place, on_progress=progress)
            place.unlink()

    unpack_together(fetched(), folder, keep=keep, inside=inside)


def unpack_together(
    archives: Iterable[Path],
    folder: Path,
    *,
    keep: Callable[[str], bool],
    inside: str = "",
    pass_over_links: bool = False,
) -> None:
    """Unpack one archive after the other into ``folder``, as :func:`flashdepot.files.archive.unpack` does.

    :param inside: the folder of the archives that becomes ``folder``; ``*``: the folders at their top.
    """
    import shutil  # noqa: PLC0415  (as above)

    from flashdepot.files.archive import unpack  # noqa: PLC0415

    unpacked = _beside(folder) / "unpacked"
    try:
        for archive in archives:
            unpack(archive, unpacked, keep=keep, pass_over_links=pass_over_links)
            for top in unpacked.iterdir() if inside == "*" else (unpacked / inside,):
                shutil.copytree(top, folder, dirs_exist_ok=True, copy_function=shutil.move)
            shutil.rmtree(unpacked)
    finally:
        shutil.rmtree(_beside(folder), ignore_errors=True)


def _beside(folder: Path) -> Path:
    """Where what goes into a folder is made ready; as much its own: another process may be doing the same."""
    return folder.with_name(f"{folder.name}.part")


def pinned(wheels: Iterable[PinnedWheel]) -> str:
    """What tells sets of wheels apart in the names of folders."""
    return digest_of(sorted(wheel.sha256 for wheel in wheels))[:12]


def provide_cutlass(folder: Path, on_file: OnFile) -> Path:
    """CUTLASS's headers (4 MB), for kernels whose own source lacks them; as :func:`provide_wheels`."""
    root = folder / f"cutlass-3.5.0-{_CUTLASS.sha256[:12]}"
    return provide_wheels(
        root,
        [_CUTLASS],
        on_file,
        keep=lambda name: name.startswith(_CUTLASS_INCLUDE),
        inside=_CUTLASS_INCLUDE,
        tree=_CUTLASS_TREE,
    )


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
    """The root of the pinned toolkit inside ``folder`` (about 100 MB of wheels); as :func:`provide_wheels`."""
    if not provides(platform):
        raise IncompatibleError(
            f"PyPI has no nvcc for {platform}.", hint="Install a CUDA toolkit and name its folder: --cuda DIR"
        )
    root, tree = _root(platform, folder), _data()["tree"][_made_for(platform)]
    return provide_wheels(root, _wheels(platform), on_file, keep=_of_toolkit, inside=_TOOLKIT, tree=tree)


def unpack_toolkit(wheels: Sequence[PinnedWheel], folder: Path, on_file: OnFile) -> None:
    """Fetch wheels and unpack what they hold of a toolkit, together, into ``folder``."""
    unpack_wheels(wheels, folder, on_file, keep=_of_toolkit, inside=_TOOLKIT)


def is_provided(platform: Platform, folder: Path) -> bool:
    """Whether :func:`provide` finds it in ``folder``; its bytes are not read for that."""
    return _root(platform, folder).is_dir()


def known_trees() -> Mapping[str, str]:
    """The digest of every toolkit that can be provided, by the name of its folder."""
    return {_root(Platform.parse(name), Path()).name: tree for name, tree in _data()["tree"].items()}


def _root(platform: Platform, folder: Path) -> Path:
    return folder / f"cuda-{provided_version()}-{pinned(_wheels(platform))}"


def _of_toolkit(name: str) -> bool:
    return name.startswith(_TOOLKIT)


def _wheels(platform: Platform) -> list[PinnedWheel]:
    name = _made_for(platform)
    return [wheel for wheel in msgspec.convert(_data()["wheel"], list[PinnedWheel]) if wheel.platform == name]


def _made_for(platform: Platform) -> str:
    """Windows has Linux's toolkit: its headers, and the programs by whose bytes device code of a remote is known."""
    return "linux-x86_64" if platform.system == "windows" else str(platform)
