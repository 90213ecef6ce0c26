"""A family with one kernel, of a source that is one file."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from flashdepot.files.directory import PlainFiles
from flashdepot.kernels.actions import Compilers
from flashdepot.kernels.family import Family, UnitCompiler
from flashdepot.model.recipe import Action, Estimate, Recipe
from flashdepot.model.selection import Dtype, Feature, Pass, Selection, Unit
from flashdepot.model.target import Architecture, Platform
from flashdepot.upstream import Identified, Sources
from flashdepot.upstream.source import Sdist

C_LAYER = Path(__file__).with_name("toy.cpp")
KERNEL = """\
extern "C" void stub_record_fill(void *to, int value, unsigned long bytes, void *stream);
extern "C" void toy_kernel(void *o, void *stream) { stub_record_fill(o, 32, 1, stream); }
"""
"""The source: a kernel that runs on the host, and writes down that it did."""
UNIT = Unit("toy", Pass.FWD, 32, Dtype.FP16, causal=False, name="toy_kernel")


class ToyLayout:
    project = "toy-attention"
    kept = ("kernel.cpp",)
    submodules: tuple[str, ...] = ()

    def require_complete(self, files: PlainFiles) -> None:
        assert files.has("kernel.cpp")

    def units(self, files: PlainFiles) -> frozenset[Unit]:
        return frozenset({UNIT})

    def features(self, files: PlainFiles) -> frozenset[Feature]:
        return frozenset()

    def version(self, files: PlainFiles) -> str:
        return "0.1"

    def sources(self, files: PlainFiles) -> Iterable[str]:
        return ("kernel.cpp",)


def published() -> Mapping[str, Sdist]:
    file = ("toy-attention-0.1.tar.gz", "a" * 64, 1, "b" * 64)
    sdist = Sdist("toy-attention", "0.1", *file, frozenset({UNIT}), frozenset())
    return {"0.1": sdist}


class Toy(Family):
    name = "toy"
    title = "ToyAttention"
    oldest_gpu = Architecture(9, 0)
    sources = Sources(ToyLayout(), published)
    c_layer_words = ("-DTOY",)

    def is_tested(self, gpu: Architecture) -> bool:
        return False

    def provide(self, platform: Platform, folder: Path, on_file: Callable[[str], None]) -> Mapping[str, Path]:
        return {"toy_compiler": Path(str(shutil.which("g++")))}

    @property
    def compiler(self) -> UnitCompiler:
        return self

    def flags(self, compilers: Compilers, sass: Sequence[Architecture], *, compress: str) -> tuple[str, ...]:
        return ("toy-flags",)

    def actions(self, recipe: Recipe, source: Identified, compilers: Compilers) -> tuple[Action, ...]:
        command = ("{toy_compiler}", "-O1", "-fPIC", "-MD")
        tools = recipe.toolchain.tools
        return tuple(
            Action(unit.name, "toy", "kernel.cpp", command, tools, unit=unit)
            for unit in recipe.selection.units
            if unit.family == self.name
        )

    def config_lines(self, selection: Selection, sass: Sequence[Architecture], source: Identified) -> Iterable[str]:
        return [f"#define TOY_CONFIG_UNITS {len([u for u in selection.units if u.family == self.name])}"]

    def licences(self, files: PlainFiles) -> Mapping[str, str]:
        return {"toy-attention": "Take it."}

    def estimate(self, unit: Unit, features: frozenset[Feature], architectures: int) -> Estimate:
        return Estimate(1.0, 10**6)

    def full(self) -> Iterable[Unit]:
        return [UNIT]
