"""Compiler runs of their own, the toolchain that they are planned with, and how objects become libraries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from flashdepot.binary.objects import require_plain
from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.inputs import places
from flashdepot.build.local import local_executor
from flashdepot.build.schedule import Outlook
from flashdepot.depot import Depot
from flashdepot.events import BuildProgress
from flashdepot.files.disk import sha256_file
from flashdepot.kernels.actions import Compilers
from flashdepot.kernels.c_layer import NATIVE, c_layer_digest
from flashdepot.model.codec import digest_of
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Action, Recipe, ToolchainId, filled_in
from flashdepot.model.target import Platform
from flashdepot.toolchain.choose import Toolchain, takes_source_name
from flashdepot.toolchain.linked import DLL_IMPORTS, DLL_START, Linked, link
from flashdepot.toolchain.nvcc import HOST_FLAGS
from flashdepot.toolchain.targets import TargetSpec, cxx_words, target_of
from flashdepot.toolchain.zig import Zig


def compilers_of(toolchain: Toolchain, identity: ToolchainId, platform: Platform, folder: Path) -> Compilers:
    """What a family must know of the compilers that serve a platform.

    :param folder: the depot's ``toolchains`` folder, where the answer of the small program is kept.
    """
    nvcc = toolchain.nvcc
    here = tuple(filled_in(flag, {"native": str(NATIVE)}) for flag in HOST_FLAGS)
    named = takes_source_name(toolchain, identity, folder, here)
    *device, zig = identity.tools
    return Compilers(nvcc.version, nvcc.options, target_of(platform), tuple(device), zig, named)


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
    (folder / "generated").mkdir(parents=True)
    named = places({**sources, "native": NATIVE, "generated": folder / "generated"}, {}, toolchain)
    executor = local_executor(actions, named, toolchain, limits, folder, progress, foreign=True)
    environment = toolchain.whole_environment()
    engine = Engine(depot, recipe, executor, environment, progress, folder, keep_going=limits.keep_going)
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


_CMAKE, _PKG_CONFIG = "lib/cmake/FlashAttention", "lib/pkgconfig"
_TEMPLATES = {
    f"{folder}/{name}": NATIVE / "templates" / f"{name}.in"
    for folder, name in (
        (_CMAKE, "FlashAttentionConfig.cmake"),
        (_CMAKE, "FlashAttentionConfigVersion.cmake"),
        (_PKG_CONFIG, "flashattention.pc"),
        (_PKG_CONFIG, "flashattention-static.pc"),
    )
}
"""The templates of the files next to the libraries, by their place in a library's folder."""


class Linking(msgspec.Struct, frozen=True):
    """How objects become the libraries of a target. Nothing of NVIDIA's is linked, so no runtime and no notice is needed."""

    target: TargetSpec
    zig: Zig

    def link(self, objects: Sequence[Path], folder: Path) -> Linked:
        """Make the libraries in ``folder``."""
        return link(self.target, self.zig, objects, NATIVE, folder)

    @property
    def file_words(self) -> Mapping[str, str]:
        """What the files next to the libraries say of this system, by its names in their templates."""
        system = self.target.system
        return {
            **dict(system.file_words),
            "PLATFORM": str(self.target.platform),
            "SHARED": system.names.shared,
            "STATIC": system.names.static[0],
            "NEEDS": ";".join(system.static_needs),
            "NEEDED_LIBS": " ".join(f"-l{name}" for name in system.static_needs),
        }

    def texts(self, upstream: str) -> dict[str, str]:
        """The files next to the libraries of an upstream's version, by their place in a library's folder."""
        # CMake compares only numbers: no ".post2", and a tree without a version counts as the oldest.
        version = re.match(r"\d+(\.\d+){0,2}", upstream)
        words = {**self.file_words, "VERSION": version[0] if version else "0", "UPSTREAM_VERSION": upstream}
        texts = {}
        for place, template in _TEMPLATES.items():
            text = template.read_text(encoding="utf-8")
            for name, word in words.items():
                text = text.replace(f"@{name}@", word)
            texts[place] = text
        return texts

    @property
    def digest(self) -> str:
        """One SHA-256 for the C layer, how it is compiled and how all is linked."""
        linking = [self.target.zig, *self.target.system.link_words]
        words = dict(self.file_words)
        parts = {"c_layer": c_layer_digest(), "cxx": list(cxx_words(self.target)), "link": linking, "files": words}
        if self.target.platform.system == "windows":
            parts |= {"start": sha256_file(DLL_START), "imports": DLL_IMPORTS}
        return digest_of(parts)
