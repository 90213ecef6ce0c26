"""Compiler runs of their own, the toolchain that they are planned with, and how objects become libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from flashdepot.binary.objects import require_plain
from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.inputs import places
from flashdepot.build.local import local_executor
from flashdepot.build.schedule import History, Outlook
from flashdepot.depot import Depot
from flashdepot.events import BuildProgress
from flashdepot.files.atomic import sha256_file
from flashdepot.kernels.actions import Compilers
from flashdepot.kernels.c_layer import NATIVE, c_layer_digest
from flashdepot.model.codec import digest_of
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Action, Recipe, ToolchainId, filled_in
from flashdepot.model.target import Platform
from flashdepot.toolchain.choose import Toolchain, probe_toolchain
from flashdepot.toolchain.linked import Linked
from flashdepot.toolchain.nvcc import HOST_FLAGS
from flashdepot.toolchain.targets import DLL_IMPORTS, DLL_START, TargetSpec, cxx_words, target_of
from flashdepot.toolchain.zig import Zig


def compilers_of(toolchain: Toolchain, identity: ToolchainId, platform: Platform, folder: Path) -> Compilers:
    """What a family must know of the compilers that serve a platform.

    :param folder: the depot's ``toolchains`` folder, where the answer of the small program is kept.
    """
    nvcc = toolchain.nvcc
    here = tuple(filled_in(flag, {"native": str(NATIVE)}) for flag in HOST_FLAGS)
    result = probe_toolchain(toolchain, identity, folder, here)
    *device, zig = identity.tools
    return Compilers(nvcc.version, nvcc.options, target_of(platform), tuple(device), zig, result.source_name)


def make_objects(
    actions: Sequence[Action],
    sources: Mapping[str, Path],
    recipe: Recipe,
    toolchain: Toolchain,
    depot: Depot,
    folder: Path,
    limits: Limits,
    progress: BuildProgress,
    agree: Callable[[Outlook], None],
) -> list[Path]:
    """The object of every action that no other needs, in the new folder ``folder``, under names that say what it is.

    The compilers see the sources and their own tools, as for every untrusted source. What was compiled stays in the depot.

    :param sources: folders by the names that actions have for them.
    :param recipe: of the library that they are for: it says what they are expected to cost.
    :param agree: called with what must be compiled, before the first compiler starts; what it raises ends it.
    """
    for name in ("made", "generated"):
        (folder / name).mkdir(parents=True)
    named = places({**sources, "native": NATIVE, "generated": folder / "generated"}, {}, toolchain)
    executor = local_executor(actions, named, toolchain, limits, folder, progress, foreign=True)
    environment, history = toolchain.whole_environment(), History(depot.root / "estimates.json")
    made, going = folder / "made", limits.keep_going
    engine = Engine(depot, recipe, executor, environment, history, progress, made, keep_going=going)
    agree(engine.foresee(actions))
    return put_objects(actions, engine.run(actions), depot, folder / "objects")


def put_objects(actions: Sequence[Action], outcome: BuildOutcome, depot: Depot, folder: Path) -> list[Path]:
    """The object of every action that no other needs, in a new folder, under names that archives and debuggers show."""
    folder.mkdir()
    needed = {need for action in actions for need in action.needs.values()}
    last = [action for action in actions if action.name not in needed]
    objects = [folder / f"{action.name}{action.suffix}" for action in last]
    for action, path in zip(last, objects, strict=True):
        depot.blobs.link_or_copy(outcome.actions[action.name].object.digest, path)
        require_plain(path)
    return objects


_WINDOWS_FILES = Path(__file__).with_name("windows_files")
_TEMPLATES = {
    "lib/cmake/FlashAttention/FlashAttentionConfig.cmake": "FlashAttentionConfig.cmake.in",
    "lib/pkgconfig/flashattention.pc": "flashattention.pc.in",
    "lib/pkgconfig/flashattention-static.pc": "flashattention-static.pc.in",
}
"""The files that say something else on each system, by their place in a library's folder."""


class Linking(msgspec.Struct, frozen=True):
    """How objects become the libraries of a target. Nothing of NVIDIA's is linked, so no runtime and no notice is needed."""

    target: TargetSpec
    zig: Zig

    def link(self, objects: Sequence[Path], folder: Path) -> Linked:
        """Make the libraries in ``folder``."""
        return self.target.system.link(self.target, self.zig, objects, NATIVE, folder)

    @property
    def _is_windows(self) -> bool:
        return self.target.platform.system != "linux"

    @property
    def templates(self) -> dict[str, Path]:
        """The templates of the files next to the libraries, by their place in a library's folder."""
        common = NATIVE / "templates"
        folder = _WINDOWS_FILES if self._is_windows else common
        return {
            **{place: folder / name for place, name in _TEMPLATES.items()},
            "lib/cmake/FlashAttention/FlashAttentionConfigVersion.cmake": common
            / "FlashAttentionConfigVersion.cmake.in",
        }

    @property
    def digest(self) -> str:
        """One SHA-256 for the C layer, how it is compiled and how all is linked."""
        link = [self.target.zig, *self.target.system.link_words]
        parts = {"c_layer": c_layer_digest(), "cxx": list(cxx_words(self.target)), "link": link}
        if not self._is_windows:
            return digest_of(parts)
        own = (DLL_START, *(_WINDOWS_FILES / name for name in _TEMPLATES.values()))
        return digest_of({**parts, "own": {path.name: sha256_file(path) for path in own}, "imports": DLL_IMPORTS})
