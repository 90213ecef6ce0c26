"""Compilers and headers from pinned wheels of PyPI, put into the depot and never into the user's environment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flashdepot.errors import IncompatibleError
from flashdepot.facts import read_table
from flashdepot.model.codec import digest_of
from flashdepot.model.target import Platform, Version
from flashdepot.model.wheel import WheelName, platform_of

if TYPE_CHECKING:
    from flashdepot.events import OnFile


class PinnedWheel(msgspec.Struct, frozen=True):
    """A pinned wheel on a package index; its name says of which project it is, and for which machine and Python."""

    filename: str
    sha256: str

    @property
    def name(self) -> WheelName:
        """The parts of its name."""
        return WheelName.parse(self.filename)

    @property
    def platform(self) -> Platform | None:
        """What it is for; ``None`` for every machine and Python."""
        return platform_of(self.name.platform.partition(".")[0])

    def runs_on(self, platform: Platform, python: str | None = None) -> bool:
        """Whether it is for a machine, and for a Python such as ``cp312`` where one is named."""
        return self.platform is None or (self.platform == platform and python in {None, self.name.python})


def pinned_wheels(digests: Mapping[str, str]) -> list[PinnedWheel]:
    """The wheels of a table, which has the SHA-256 of each by its name."""
    return [PinnedWheel(*row) for row in digests.items()]


class Pinned(msgspec.Struct, frozen=True):
    """Wheels that are unpacked together into one folder of a depot's ``toolchains``.

    :param folder: its name.
    :param keep: which files of the wheels are unpacked, by their names with ``/``.
    :param inside: the folder of the wheels that becomes the root.
    :param tree: the digest of what they unpack to; ``None``: what is there is compared with what it was.
    :param finish: called with the folder before it takes its name.
    """

    folder: str
    wheels: tuple[PinnedWheel, ...]
    keep: Callable[[str], bool]
    inside: str = ""
    tree: str | None = None
    finish: Callable[[Path], None] = lambda _folder: None

    def is_there(self, toolchains: Path) -> bool:
        """Whether :meth:`provide` finds it; its bytes are not read for that."""
        return (toolchains / self.folder).is_dir()

    def provide(self, toolchains: Path, on_file: OnFile) -> Path:
        """The folder, filled on first use. Every byte of it is compared each time.

        :param on_file: called with the name of each wheel before it is fetched.
        """
        from flashdepot.files.folders import make_whole  # noqa: PLC0415  (foreseeing a toolchain provides nothing)

        return make_whole(toolchains / self.folder, lambda folder: self.unpack(folder, on_file), self.tree)

    def unpack(self, folder: Path, on_file: OnFile) -> None:
        """Fetch the wheels and unpack them into ``folder``."""
        from flashdepot.net.fetch import fetch  # noqa: PLC0415  (as above)

        def fetched() -> Iterator[Path]:
            for wheel in self.wheels:
                place, progress = _part_of(folder) / wheel.filename, on_file(wheel.filename)
                yield fetch(wheel.name.canonical, wheel.filename, wheel.sha256, place, on_progress=progress)
                place.unlink()

        unpack_together(fetched(), folder, keep=self.keep, inside=self.inside)
        self.finish(folder)


def unpack_together(
    archives: Iterable[Path], folder: Path, *, keep: Callable[[str], bool], inside: str = "", skip_links: bool = False
) -> None:
    """Unpack one archive after the other into ``folder``, as :func:`flashdepot.files.archive.unpack` does.

    :param inside: the folder of the archives that becomes ``folder``; ``*``: the folders at their top.
    """
    import shutil  # noqa: PLC0415  (as above)

    from flashdepot.files.archive import unpack  # noqa: PLC0415

    unpacked = _part_of(folder) / "unpacked"
    try:
        for archive in archives:
            unpack(archive, unpacked, keep=keep, skip_links=skip_links)
            for top in unpacked.iterdir() if inside == "*" else (unpacked / inside,):
                shutil.copytree(top, folder, dirs_exist_ok=True, copy_function=shutil.move)
            shutil.rmtree(unpacked)
    finally:
        shutil.rmtree(_part_of(folder), ignore_errors=True)


def _part_of(folder: Path) -> Path:
    """Where what goes into a folder is made ready; as much its own: another process may be doing the same."""
    return folder.with_name(f"{folder.name}.part")


def _digest(wheels: Iterable[PinnedWheel]) -> str:
    """What tells sets of wheels apart in the names of folders."""
    return digest_of(sorted(wheel.sha256 for wheel in wheels))[:12]


_CUTLASS_WHEEL = PinnedWheel(
    "nvidia_cutlass-3.5.0.0-py3-none-any.whl",
    "4ec3ab4820dd4ae3ebc2c5ddf23352b0dc90f779435284e7dce822006adc51f6",
)
"""CUTLASS 3.5.0. Git's digest of each of the 631 files of its ``include`` at 7d49e6c7e2f8896c47f586706e67e1fb215529dc, which
candle-flash-attn 0.9.2 to 0.11.1 clone (``build.rs``), was compared with the wheel's on 2026-11-22: they are the same."""

_CUTLASS_INCLUDE = "cutlass_library/source/include/"

CUTLASS = Pinned(
    f"cutlass-3.5.0-{_CUTLASS_WHEEL.sha256[:12]}",
    (_CUTLASS_WHEEL,),
    keep=lambda name: name.startswith(_CUTLASS_INCLUDE),
    inside=_CUTLASS_INCLUDE,
    tree="91ad8e9a366d7c7ed0171f6962023632c1aa0b2cd4b7b81d7bcff935fc2e616b",
)
"""CUTLASS's headers (4 MB), for kernels whose own source lacks them."""


@cache
def _data() -> dict[str, Any]:
    return read_table(Path(__file__).with_name("nvcc_wheels.toml"))


def provided_version() -> Version:
    """The version of the nvcc of :func:`pinned_toolkit`."""
    return Version.parse(_data()["cuda"])


def provides(platform: Platform) -> bool:
    """Whether PyPI has nvcc for a platform."""
    return str(_made_for(platform)) in _data()["tree"]


def pinned_toolkit(platform: Platform) -> Pinned:
    """The pinned toolkit for a platform (about 100 MB of wheels); :raises IncompatibleError: where PyPI has no nvcc."""
    if not provides(platform):
        raise IncompatibleError(
            f"PyPI has no nvcc for {platform}.", hint="Install a CUDA toolkit and name its folder: --cuda DIR"
        )
    made_for = _made_for(platform)
    wheels = pinned_wheels(_data()["wheels"])
    return toolkit_of([wheel for wheel in wheels if wheel.runs_on(made_for)], _data()["tree"][str(made_for)])


def toolkit_of(wheels: Iterable[PinnedWheel], tree: str | None = None) -> Pinned:
    """The toolkit that some wheels hold."""
    inside, chosen = "nvidia/cu13/", tuple(wheels)
    folder = f"cuda-{provided_version()}-{_digest(chosen)}"
    return Pinned(folder, chosen, lambda name: name.startswith(inside), inside, tree)


def known_trees() -> Mapping[str, str]:
    """The digest of every toolkit that can be provided, by the name of its folder."""
    return {pinned_toolkit(Platform.parse(name)).folder: tree for name, tree in _data()["tree"].items()}


def _made_for(platform: Platform) -> Platform:
    """Windows has Linux's toolkit: its headers, and the programs by whose bytes device code of a remote is known."""
    return Platform("linux", "x86_64") if platform.system == "windows" else platform


DSL_SIZE = 125 * 10**6
DSL_UNPACKED = 334 * 10**6
"""Bytes of the wheels of CuTe DSL and of their folder in a depot, for Python 3.12 on x86-64, measured on 2026-11-21."""

_LEFT_OUT = (".dist-info/", "/tests/", "/include/", ".a", ".pyi", ".pxd")


@cache
def _dsl_data() -> dict[str, Any]:
    return read_table(Path(__file__).with_name("cute_dsl_wheels.toml"))


def dsl_version() -> Version:
    """The version of CuTe DSL of :func:`pinned_dsl`."""
    return Version.parse(_dsl_data()["cute_dsl"])


def dsl_identity() -> str:
    """A digest of the projects and versions of :func:`pinned_dsl`, the same on every machine.

    Wheels differ with the Python that they are for, and what is compiled with them does not: the objects of 3.11 and
    3.12 had the same bytes.
    """
    names = [wheel.name for wheel in pinned_wheels(_dsl_data()["wheels"])]
    return digest_of(sorted({f"{name.canonical}=={name.version}" for name in names}))


def running_python() -> str:
    """The tag of the Python that runs this, ``cp312``; it runs the compile workers too."""
    name = {"cpython": "cp"}.get(sys.implementation.name, sys.implementation.name)
    return f"{name}{sys.version_info.major}{sys.version_info.minor}"


def pinned_dsl(platform: Platform, python: str) -> Pinned:
    """CuTe DSL and what it imports: one wheel of each project, which has one for each platform and Python that is served.

    NVIDIA's licence lets nobody pass its library on, so it stays in the depot.

    :param python: the tag of the Python that should import it, ``cp312``.
    """
    wheels = pinned_wheels(_dsl_data()["wheels"])
    specific = [wheel for wheel in wheels if wheel.platform is not None]
    platforms, pythons = sorted({str(w.platform) for w in specific}), sorted({w.name.python for w in specific})
    if str(platform) not in platforms:
        raise IncompatibleError(
            f"FlashAttention-4 is compiled on {' or '.join(platforms)}, and this is {platform}.",
            hint="Build it on such a machine, or build only FlashAttention-2: --families fa2",
        )
    if python not in pythons:
        *others, last = [f"{tag[2]}.{tag[3:]}" for tag in pythons]
        raise IncompatibleError(
            f"CuTe DSL {dsl_version()}, which compiles FlashAttention-4, is for CPython {', '.join(others)} and "
            f"{last}; flashdepot runs in {python}.",
            hint="Run flashdepot with one of those, or build only FlashAttention-2: --families fa2",
        )
    chosen = tuple(wheel for wheel in wheels if wheel.runs_on(platform, python))
    return Pinned(f"cute-dsl-{dsl_version()}-{python}-{_digest(chosen)}", chosen, _is_of_dsl)


def _is_of_dsl(name: str) -> bool:
    return not any(part in name if part.endswith("/") else name.endswith(part) for part in _LEFT_OUT)
