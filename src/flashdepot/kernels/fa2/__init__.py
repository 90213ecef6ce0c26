"""FlashAttention-2: upstream's CUDA kernels, unmodified, compiled by nvcc."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.facts import read_table
from flashdepot.kernels.family import Family
from flashdepot.model.recipe import Estimate
from flashdepot.model.selection import ALL_FEATURES, Dtype, Feature, Pass, Unit
from flashdepot.model.target import Architecture
from flashdepot.upstream import Sources
from flashdepot.upstream.source import Sdist, version_in

if TYPE_CHECKING:
    from flashdepot.files.directory import PlainFiles

NAME = "fa2"

OLDEST = Architecture(8, 0)
"""Ampere: the kernels use ``cp.async`` and its tensor-core shapes."""

NAMESPACE = "flashdepot_fa2"
"""The C++ namespace of the kernels: ours, so that another FlashAttention in the same process never meets them."""

NAMESPACE_MACRO = f"-DFLASH_NAMESPACE={NAMESPACE}"

_FILE_PASS = {"fwd": Pass.FWD, "fwd_split": Pass.SPLITKV, "bwd": Pass.BWD}
_PASS_FILE = {p: name for name, p in _FILE_PASS.items()}
_FILE = r"flash_(fwd_split|fwd|bwd)_hdim(\d+)_(bf16|fp16)(_causal)?_sm80"

_GB = 10**9

_FIXED_SECONDS = 25.0
"""What every unit pays for its templates before the first kernel instance."""

_LEFT_OUT = 0.7
"""A feature that is left out takes this share of the rest with it (five left out: 128 s became 44 s)."""

_MORE_ARCHITECTURES = 0.22
"""What one more ``ptxas`` run costs, as a share of the unit with one architecture."""

_UNKNOWN = Estimate(200.0, 7 * _GB)


def make_unit(pass_: Pass, head_dim: int, dtype: Dtype, *, causal: bool) -> Unit:
    """The unit with all kernels of one pass, head dim, dtype and causality, under the name of upstream's file."""
    name = f"flash_{_PASS_FILE[pass_]}_hdim{head_dim}_{dtype}{'_causal' if causal else ''}_sm80"
    return Unit(NAME, pass_, head_dim, dtype, causal, name)


def parse_unit(name: str) -> Unit | None:
    """The unit of an upstream file name such as ``flash_fwd_hdim64_bf16_causal_sm80``; ``None`` for another name."""
    match = re.fullmatch(_FILE, name)
    if match is None:
        return None
    return make_unit(_FILE_PASS[match[1]], int(match[2]), Dtype(match[3]), causal=bool(match[4]))


@cache
def measured() -> Mapping[Unit, Estimate]:
    """``unit_costs.csv``: all features, one architecture, nvcc 13.0.88, flash-attn 2.8.3.post2, 16-core machine."""
    _, *lines = Path(__file__).with_name("unit_costs.csv").read_text(encoding="utf-8").splitlines()
    return {
        unit: Estimate(float(seconds), int(float(gigabytes) * _GB))
        for name, seconds, gigabytes, _ in (line.split(",") for line in lines)
        if (unit := parse_unit(f"{name}_sm80"))
    }


_C_DIR = "csrc/flash_attn"
SOURCE_DIR = f"{_C_DIR}/src"
CUTLASS_DIR = "csrc/cutlass"
CUTLASS_INCLUDE = f"{CUTLASS_DIR}/include"

_CUTLASS_HEADERS = ("cutlass/numeric_types.h", "cute/tensor.hpp")
_FEATURE_SWITCH = r"\bFLASHATTENTION_DISABLE_(\w+)"
_VERSION = r"""(?m)^__version__\s*=\s*["'](\d[\w.+!-]*)["']"""


class Fa2Layout:
    """The tree of the sdist, of a folder and of a commit alike."""

    project = "flash-attn"
    kept = (
        "csrc/flash_attn",
        CUTLASS_INCLUDE,
        f"{CUTLASS_DIR}/LICENSE.txt",
        "flash_attn",
        "tests",
        "setup.py",
        "LICENSE",
        "AUTHORS",
        "README.md",
        "PKG-INFO",
    )
    """The kernels, the Python package and its tests, and who wrote them."""
    submodules = (CUTLASS_DIR,)

    def require_complete(self, files: PlainFiles) -> None:
        """:raises UsageError: for what is not a tree of flash-attention; :raises MissingToolError: without CUTLASS."""
        if not self.units(files):
            raise UsageError(
                f"{files.root} is not a source tree of flash-attention: it has no translation unit such as "
                f"{SOURCE_DIR}/flash_fwd_hdim64_bf16_sm80.cu.",
                hint="Name the folder that holds csrc/ and setup.py, or a published version: --upstream 2.8.3",
            )
        if missing := [header for header in _CUTLASS_HEADERS if not files.has(f"{CUTLASS_INCLUDE}/{header}")]:
            raise MissingToolError(
                f"{files.root} lacks CUTLASS, which its kernels include: there is no {CUTLASS_INCLUDE}/{missing[0]}. "
                "CUTLASS is a git submodule, and a ZIP download never has submodules.",
                hint="In a git clone: git submodule update --init csrc/cutlass. "
                "Otherwise use a published version, which has it: --upstream 2.8.3",
            )

    def units(self, files: PlainFiles) -> frozenset[Unit]:
        """Read the translation units of a tree from the names of its files."""
        names = (PurePosixPath(name) for name in files.below(SOURCE_DIR))
        of_units = (name.stem for name in names if name.suffix == ".cu" and str(name.parent) == SOURCE_DIR)
        return frozenset(unit for name in of_units if (unit := parse_unit(name)))

    def features(self, files: PlainFiles) -> frozenset[Feature]:
        """Read the features that a tree can leave out from the macros of its ``static_switch.h``."""
        text = files.text(f"{SOURCE_DIR}/static_switch.h")
        macros = {macro.lower() for macro in re.findall(_FEATURE_SWITCH, text)}
        return frozenset(feature for feature in Feature if feature.value in macros)

    def version(self, files: PlainFiles) -> str:
        """Read the version that a tree's Python package gives itself; ``unknown`` where it gives none."""
        return version_in(files, "flash_attn/__init__.py", _VERSION)

    def sources(self, files: PlainFiles) -> Iterable[str]:
        """The folder of the units, the ``.cpp`` files next to it, CUTLASS's ``include``, and what wheels take."""
        others = [
            name for name in files.below(_C_DIR) if name.endswith(".cpp") and name.count("/") == _C_DIR.count("/") + 1
        ]
        return (SOURCE_DIR, CUTLASS_INCLUDE, *others, "flash_attn", "LICENSE", "README.md", "AUTHORS")


DATA = Path(__file__).with_name("sdists.toml")


@cache
def published() -> Mapping[str, Sdist]:
    """Every sdist by its version, newest last."""
    data = read_table(DATA)
    return {entry["version"]: _parse(data["project"], **entry) for entry in data["sdist"]}


def _parse(project: str, *, head_dims: Any, dtypes: list[str], features: list[str], **pinned: Any) -> Sdist:
    kinds = tuple((name, tuple(values)) for name, values in head_dims.items())
    return Sdist(project, units=_units(kinds, tuple(dtypes)), features=frozenset(map(Feature, features)), **pinned)


@cache  # of two versions that follow each other, most have the same
def _units(head_dims: tuple[tuple[str, tuple[int, ...]], ...], dtypes: tuple[str, ...]) -> frozenset[Unit]:
    return frozenset(
        make_unit(Pass(name), head_dim, Dtype(dtype), causal=causal)
        for name, values in head_dims
        for head_dim, dtype, causal in itertools.product(values, dtypes, (False, True))
    )


_FIRST_COMMENT = re.compile(r"\s*/\*(.*?)\*/", re.DOTALL)


def _of_a_header(files: PlainFiles) -> str:
    header = f"{CUTLASS_INCLUDE}/cutlass/cutlass.h"
    comment = _FIRST_COMMENT.match(files.text(header))
    lines = [re.sub(r"^[ \t]*\*+[ \t]?|\*+$", "", line).rstrip() for line in comment[1].splitlines()] if comment else []
    text = "\n".join(lines).strip() + "\n"
    if "Redistribution" not in text:
        raise _without_licence(files, header)
    return text


def _without_licence(files: PlainFiles, name: str) -> UsageError:
    return UsageError(
        f"{files.root / name} has no licence text, and no binary may be passed on without it.",
        hint="Restore it: git checkout -- LICENSE csrc/cutlass, or use a published version: --upstream 2.8.3",
    )


_PACKAGE = "flash_attn"


class Fa2(Family):
    """The family ``fa2``: upstream's own releases, for every GPU from Ampere on."""

    name = NAME
    title = "FlashAttention-2"
    oldest_gpu = OLDEST
    sources = Sources(Fa2Layout(), published)
    c_layer_words = (NAMESPACE_MACRO, f"-I{{upstream}}/{SOURCE_DIR}", f"-I{{upstream}}/{CUTLASS_INCLUDE}")
    """Its folder of the C layer includes upstream's headers."""

    def licences(self, files: PlainFiles) -> Mapping[str, str]:
        """The texts of flash-attention and of CUTLASS by project name.

        Both are BSD-3-Clause, whose second condition asks that the text accompanies a binary. A published sdist leaves
        CUTLASS's licence file out; each of its headers begins with the same text.
        """
        if not (own := files.text("LICENSE")):
            raise _without_licence(files, "LICENSE")
        return {"flash-attention": own, "cutlass": files.text(f"{CUTLASS_DIR}/LICENSE.txt") or _of_a_header(files)}

    def python_files(self, files: PlainFiles) -> Iterator[str]:
        """Yield the modules that upstream's setup.py packages: of folders with ``__init__.py``, all the way down."""
        found = [name for name in files.below(_PACKAGE) if name.endswith(".py")]
        packages = {name.rpartition("/")[0] for name in found if name.endswith("/__init__.py")}
        for name in found:
            if all(str(folder) in packages for folder in PurePosixPath(name).parents[:-1]):
                yield name

    def estimate(self, unit: Unit, features: frozenset[Feature], architectures: int) -> Estimate:
        """The shipped expectation for a unit with some features, for a number of architectures.

        One that was never measured (head dim 160) is taken for the next larger head dim of its kind.
        """
        kind = (unit.pass_, unit.dtype, unit.causal)
        alike = {u.head_dim: cost for u, cost in measured().items() if (u.pass_, u.dtype, u.causal) == kind}
        head_dim = min((other for other in alike if other >= unit.head_dim), default=0)
        known = alike.get(head_dim, _UNKNOWN)
        kernels = max(0.0, known.seconds - _FIXED_SECONDS) * _LEFT_OUT ** len(ALL_FEATURES - features)
        factor = 1 + (architectures - 1) * _MORE_ARCHITECTURES
        return Estimate((_FIXED_SECONDS + kernels) * factor, known.peak)

    def full(self) -> Iterable[Unit]:
        """Every unit that was measured."""
        return measured()
