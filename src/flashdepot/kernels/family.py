"""What a family of kernels is to the rest of flashdepot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from flashdepot.events import Fetch, OnFile
from flashdepot.model.recipe import Action, Estimate, Recipe, Tool
from flashdepot.model.selection import Feature, Selection, Unit
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.upstream import Identified, Sources

if TYPE_CHECKING:
    from flashdepot.files.directory import PlainFiles
    from flashdepot.toolchain.targets import Row


class Cross(msgspec.Struct, frozen=True):
    """What compiles for a target that need not be this machine: the target, nvcc's programs, and zig's."""

    row: Row
    device_tools: tuple[Tool, ...]
    zig: Tool


class Kit(msgspec.Struct, frozen=True):
    """The compilers at hand as facts, without a path.

    ``nvcc_options`` are the long options of the nvcc at hand. ``source_name`` says whether it takes the arguments that
    replace a source's absolute path in its internal names.
    """

    cuda: Version
    nvcc_options: frozenset[str]
    cross: Cross
    source_name: bool = True


class Family(Protocol):
    """A line of kernels with one source and one way to compile.

    A family is one folder here and an entry in :data:`flashdepot.kernels.FAMILIES`.
    """

    @property
    def name(self) -> str:
        """Its name in options, keys, manifests and wheels: ``fa2``."""

    @property
    def title(self) -> str:
        """Its name in sentences: ``FlashAttention-2``."""

    @property
    def oldest_gpu(self) -> Architecture:
        """The oldest GPU that its kernels run on."""

    def lacks(self, gpu: Architecture, platform: Platform) -> str:
        """Why it has nothing for a GPU of a system: what follows its title in a sentence; empty when it has."""

    def runs(self, unit: Unit, gpu: Architecture) -> bool:
        """Whether a unit has a kernel for a GPU that the family serves."""

    def is_proven(self, gpu: Architecture) -> bool:
        """Whether its kernels have been proven on such a GPU: the profile ``full`` has them, without being told to."""

    def compiles_here(self, platform: Platform) -> bool:
        """Whether this machine and the Python that runs this can compile its kernels; platform: this machine's."""

    @property
    def sources(self) -> Sources:
        """Where its source trees come from."""

    def provide(self, platform: Platform, folder: Path, on_file: OnFile) -> Mapping[str, Path]:
        """What its actions name besides the CUDA toolchain: folders and programs, by name.

        :param platform: this machine's, whatever the target is.
        :param folder: the depot's ``toolchains`` folder; what is not there is fetched into it.
        :param on_file: called with the name of each file before it is fetched.
        :raises FlashdepotError: when this machine cannot run it, or it cannot be fetched.
        """

    def to_fetch(self, platform: Platform, folder: Path) -> Iterable[Fetch]:
        """What :meth:`provide` would fetch."""

    def flags(self, kit: Kit, sass: Sequence[Architecture], *, front_end: str, compress: str) -> tuple[str, ...]:
        """What every unit is compiled with, besides what differs from unit to unit."""

    def actions(self, recipe: Recipe, source: Identified, kit: Kit) -> tuple[Action, ...]:
        """Every compiler run that the family's kernels take.

        Names of actions differ, also from those of other families.
        """

    @property
    def c_layer_words(self) -> tuple[str, ...]:
        """What its folder of the C layer is compiled with besides: include folders and macros."""

    def config_lines(self, selection: Selection, sass: Sequence[Architecture], source: Identified) -> Iterable[str]:
        """The lines of the generated header that tell the C layer what of the family a library holds."""

    def licences(self, files: PlainFiles) -> Mapping[str, str]:
        """The texts by project that travel with a binary made of a tree.

        :raises UsageError: when the tree lacks one.
        """

    def python_files(self, files: PlainFiles) -> Iterable[str]:
        """The files of a tree that a wheel holds, in the places that they have in it."""

    def estimate(self, unit: Unit, features: frozenset[Feature], architectures: int, front_end: str) -> Estimate:
        """What a unit with some features is expected to cost, for a number of architectures."""

    def full(self) -> Iterable[Unit]:
        """The units of a full build of the newest version."""
