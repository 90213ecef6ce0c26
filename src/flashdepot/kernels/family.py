"""What a family of kernels is to the rest of flashdepot. Every command imports this, so it imports next to nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from flashdepot.events import Fetch, OnFile
    from flashdepot.files.directory import PlainFiles
    from flashdepot.kernels.actions import Compilers
    from flashdepot.model.recipe import Action, Estimate, Recipe
    from flashdepot.model.selection import Feature, Selection, Unit
    from flashdepot.model.target import Architecture, Platform
    from flashdepot.upstream import Identified, Sources


class UnitCompiler(Protocol):
    """How a family's units are compiled: what its module ``actions`` has."""

    def flags(self, compilers: Compilers, sass: Sequence[Architecture], *, compress: str) -> tuple[str, ...]:
        """What every unit is compiled with, next to what differs from unit to unit."""

    def actions(self, recipe: Recipe, source: Identified, compilers: Compilers) -> Iterable[Action]:
        """Every compiler run that the family's kernels take.

        Names of actions differ, also from those of other families.
        """

    def config_lines(self, selection: Selection, sass: Sequence[Architecture], source: Identified) -> Iterable[str]:
        """The lines of the generated header that tell the C layer what of the family a library holds."""


class Family(ABC):
    """A line of kernels with one source and one way to compile.

    A family is one folder here and an entry in :data:`flashdepot.kernels.FAMILIES`. It overrides what is not as usual.
    """

    name: str
    """Its name in options, keys, manifests and wheels: ``fa2``."""
    title: str
    """Its name in sentences: ``FlashAttention-2``."""
    oldest_gpu: Architecture
    """The oldest GPU that its kernels run on."""
    sources: Sources
    """Where its source trees come from."""
    is_usual: bool = True
    """Whether the profile ``full`` has it where it was tested; one that is not is only built where somebody names it."""
    needs_nvcc: bool = True
    """Whether nvcc compiles its kernels, which it does on no Windows."""
    c_layer_words: tuple[str, ...] = ()
    """What its folder of the C layer is also compiled with: include folders and macros."""

    def lacks(self, gpu: Architecture) -> str:
        """Why it has nothing for a GPU: what follows its title in a sentence; empty when it has."""
        return "" if gpu >= self.oldest_gpu else f"needs compute capability {self.oldest_gpu.dotted} or newer"

    def runs(self, unit: Unit, gpu: Architecture) -> bool:  # noqa: ARG002
        """Whether a unit has a kernel for a GPU that the family serves."""
        return True

    def is_tested(self, gpu: Architecture) -> bool:  # noqa: ARG002
        """Whether its kernels were tested on such a GPU: a usual family is then in the profile ``full``."""
        return True

    def compiles_here(self, platform: Platform) -> bool:  # noqa: ARG002
        """Whether this machine and the Python that runs this can compile its kernels; platform: this machine's."""
        return True

    def provide(self, platform: Platform, folder: Path, on_file: OnFile) -> Mapping[str, Path]:  # noqa: ARG002
        """What its actions name that is not the CUDA toolchain: folders and programs, by name.

        :param platform: this machine's, whatever the target is.
        :param folder: the depot's ``toolchains`` folder; what is not there is fetched into it.
        :param on_file: called with the name of each file before it is fetched.
        """
        return {}

    def to_fetch(self, platform: Platform, folder: Path) -> Iterable[Fetch]:  # noqa: ARG002
        """What :meth:`provide` would fetch."""
        return ()

    @property
    def compiler(self) -> UnitCompiler:
        """How its units are compiled: its module ``actions``, imported when it is asked for, as few commands do."""
        return cast("UnitCompiler", import_module(f"{type(self).__module__}.actions"))

    @abstractmethod
    def licences(self, files: PlainFiles) -> Mapping[str, str]:
        """The texts by project that travel with a binary made of a tree; :raises UsageError: when the tree lacks one."""

    def python_files(self, files: PlainFiles) -> Iterable[str]:  # noqa: ARG002
        """The files of a tree that a wheel holds, in the places that they have in it."""
        return ()

    @abstractmethod
    def estimate(self, unit: Unit, features: frozenset[Feature], architectures: int) -> Estimate:
        """What a unit with some features is expected to cost, for a number of architectures."""

    @abstractmethod
    def full(self) -> Iterable[Unit]:
        """The units of a full build of the newest version."""
