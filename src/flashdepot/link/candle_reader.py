"""What the sources of a FlashAttention crate of candle say: the function it calls, its kernels, its build script."""

from __future__ import annotations

import hashlib
import re
from enum import Enum
from pathlib import Path

import msgspec

from flashdepot.errors import UsageError

_COMMENT = re.compile(r"(?m:(?<!:)//[^\n]*)|/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"\bfn\s+(run_mha\w*)\s*\((.*?)\)", re.DOTALL)
_UNIT = re.compile(r'"(?:kernels/|hkernel/)?(flash_\w+)\.cu"')
_HEAD_DIM = re.compile(r"_hdim(\d+)_")
_CUTLASS_CLONED = re.compile(r"\b(?:fetch_cutlass|with_cutlass)\s*\(")


class CandleFunction(msgspec.Struct, frozen=True):
    """The C function that a crate declares in ``src/ffi.rs``.

    :param arguments: each as ``name:type``, in order.
    """

    name: str
    arguments: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The first 12 digits of the SHA-256 of name, arguments and types. Equal digests mean the same call."""
        return hashlib.sha256(f"{self.name}({','.join(self.arguments)})".encode()).hexdigest()[:12]


class Cutlass(str, Enum):
    """Where a crate's build script has CUTLASS from, whose headers the kernels include."""

    INSIDE = "inside"
    CLONED = "cloned"
    MISSING = "missing"

    def __str__(self) -> str:
        return self.value


class CandleSources(msgspec.Struct, frozen=True):
    """What was read of a crate.

    :param builder: what its build script compiles with: ``nvcc`` itself, ``bindgen_cuda`` or ``cudaforge``.
    :param cutlass: ``cloned`` is done with git before the build script looks at anything else; with ``missing`` it can
        compile nothing.
    :param units: the ``.cu`` files that the build script compiles, without suffix.
    """

    function: CandleFunction
    builder: str
    cutlass: Cutlass
    units: tuple[str, ...]

    @property
    def head_dims(self) -> list[int]:
        """The head dims of its kernels without paged keys, ascending."""
        return self._dims(splitkv=False)

    @property
    def splitkv_head_dims(self) -> list[int]:
        """The head dims of its kernels for paged keys, ascending."""
        return self._dims(splitkv=True)

    def _dims(self, *, splitkv: bool) -> list[int]:
        names = (unit for unit in self.units if ("_splitkv_" in unit) is splitkv)
        return sorted({int(found[1]) for name in names if (found := _HEAD_DIM.search(name))})


def read_candle_sources(crate: Path) -> CandleSources:
    """Read ``src/ffi.rs`` and ``build.rs`` of a crate's folder.

    :raises UsageError: when they are not there, or declare no ``run_mha``.
    """
    build_script = _code(crate / "build.rs")
    builder = next((name for name in ("cudaforge", "bindgen_cuda") if name in build_script), "nvcc")
    units = tuple(dict.fromkeys(_UNIT.findall(build_script)))
    inside = Cutlass.INSIDE if (crate / "cutlass" / "include").is_dir() else Cutlass.MISSING
    cutlass = Cutlass.CLONED if _CUTLASS_CLONED.search(build_script) else inside
    return CandleSources(read_function(crate), builder, cutlass, units)


def read_function(crate: Path) -> CandleFunction:
    """The function that a crate calls; raises as :func:`read_candle_sources`."""
    path = crate / "src" / "ffi.rs"
    found = _FUNCTION.search(_code(path))
    if found is None:
        raise UsageError(f"{path} declares no run_mha, which is what candle calls.", hint="Check --crate.")
    arguments = ("".join(part.split()) for part in found[2].split(","))
    return CandleFunction(found[1], tuple(argument for argument in arguments if argument))


def _code(path: Path) -> str:
    try:
        return _COMMENT.sub("", path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", hint="Check --crate.") from error
