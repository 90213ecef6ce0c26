"""Which FlashAttention crates of candle there are, what they call, and which kernels only they have.

Those do head dim 512 and prefix ranges. Their sources are in the crate, in ``kernels``; only those files are compiled that were
asked for, next to candle's own ``flash_api.cu``, which launches them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from flashdepot.errors import IncompatibleError, UsageError, not_one_of
from flashdepot.files.documents import read_toml
from flashdepot.kernels.actions import Compilers, cuda_actions
from flashdepot.kernels.fa2.actions import UPSTREAM_FLAGS
from flashdepot.model.codec import read
from flashdepot.model.manifest import Manifest
from flashdepot.model.recipe import Action, Recipe, ToolchainId
from flashdepot.model.request import LibraryRequest
from flashdepot.model.selection import ALL_FEATURES, Dtype, Feature, Pass, Unit
from flashdepot.model.target import Architecture, Target
from flashdepot.toolchain.nvcc import nvcc_flags, usual_compression

CRATE = "candle-flash-attn"
CRATE_V3 = "candle-flash-attn-v3"


def find_crate(version: str, cargo_home: Path, crate: str = CRATE) -> Path | None:
    """The folder into which Cargo unpacked a version from a registry; ``None`` when it has not yet."""
    found = sorted((cargo_home / "registry" / "src").glob(f"*/{crate}-{version}/Cargo.toml"))
    return found[0].parent if found else None


def default_cargo_home() -> Path:
    """``CARGO_HOME``, or where Cargo puts it otherwise."""
    return Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")


def require_crate(folder: Path, version: str, crate: str = CRATE) -> Path:
    """A folder that was named as the crate's; :raises UsageError: when it is not, or of another version."""
    manifest = folder / "Cargo.toml"
    if not manifest.is_file():
        raise UsageError(f"{folder} has no Cargo.toml.", hint=f"Name the folder of {crate}'s sources with --crate.")
    package = read_toml(manifest).get("package", {})
    found = package.get("version")
    if package.get("name") != crate:
        raise UsageError(f"{folder} is the crate {package.get('name')}, and not {crate}.", hint="Check --crate.")
    # In candle's own repository the version is the workspace's: a table that says so, and no text.
    if isinstance(found, str) and found != version:
        raise UsageError(
            f"{folder} is {crate} {found}, and --candle-version says {version}.", hint=f"--candle-version {found}"
        )
    return folder


DATA = Path(__file__).with_name("candle_versions.toml")

SERVED_CALLS = {"510f9b2defc7": 35, "0c6ddd8aa54d": 37, "cdbde2154a7f": 45, "bb5bc0c63549": 45}
"""The calls that flashdepot answers, and the arguments of the ``run_mha`` whose archive has them
(``candle_source/run_mha_35.c`` and so on): that of 45 has the ``run_mha_v3`` of 0.11.1 too."""

NEWEST_LIST = 45
"""The arguments of the newest ``run_mha``, from 0.11.0 on."""

_FIRST_MASK = (
    "its causal mask begins at the first key, and that of every later flash-attention ends at the last one: with more "
    "keys than queries the results would differ without an error"
)
_SAME_NAME = f"its function has the name of {CRATE}'s, run_mha, with other arguments, and none of them is a stream"
_NO_STREAM = "its run_mha_v3 names no stream, so that work on candle's own would not wait for it"
_NEWER_V3 = f"Set candle-core and {CRATE_V3} to 0.11.1 or newer in Cargo.toml, or depend on {CRATE} instead."
_REFUSED_CALLS = {
    "664d67c866c6": (_FIRST_MASK, "Set candle-core and candle-flash-attn to 0.3.3 or newer in Cargo.toml."),
    "9dd5bf2e7944": (_SAME_NAME, _NEWER_V3),
    "ee1d73669b93": (_NO_STREAM, _NEWER_V3),
}


_COMMENT = re.compile(r"(?m:(?<!:)//[^\n]*)|/\*.*?\*/", re.DOTALL)
_FUNCTION = re.compile(r"\bfn\s+(run_mha\w*)\s*\((.*?)\)", re.DOTALL)


class CandleLine(msgspec.Struct, frozen=True):
    """Versions of a crate that call the same function, oldest first.

    :param function: the C function that ``src/ffi.rs`` declares; ``arguments`` is how many it takes.
    :param call: the first 12 digits of the SHA-256 of its name, arguments and types: equal ones mean the same call.
    :param paged: whether there are kernels that read pages.
    """

    crate: str
    versions: tuple[str, ...]
    function: str
    arguments: int
    call: str
    paged: bool = False

    @classmethod
    def of_sources(cls, crate: str, version: str, folder: Path) -> CandleLine:
        """What ``src/ffi.rs`` and ``build.rs`` of a version say; :raises UsageError: when they do not."""
        path = folder / "src" / "ffi.rs"
        found = _FUNCTION.search(_code(path))
        if found is None:
            raise UsageError(f"{path} declares no run_mha, which is what candle calls.", hint="Check --crate.")
        arguments = [one for part in found[2].split(",") if (one := "".join(part.split()))]
        call = hashlib.sha256(f"{found[1]}({','.join(arguments)})".encode()).hexdigest()[:12]
        return cls(crate, (version,), found[1], len(arguments), call, "_splitkv_" in _code(folder / "build.rs"))

    @property
    def calls(self) -> LibraryRequest:
        """What of flash-attention these versions can call: forward without dropout, and pages where they have them."""
        passes = {Pass.FWD, Pass.SPLITKV} if self.paged else {Pass.FWD}
        return LibraryRequest(passes=frozenset(passes), features=ALL_FEATURES - {Feature.DROPOUT})

    @property
    def is_served(self) -> bool:
        """Whether a library of flashdepot's can answer its call."""
        return self.call in SERVED_CALLS

    @property
    def archive(self) -> int:
        """The arguments of the ``run_mha`` in the archive that answers its call."""
        return SERVED_CALLS[self.call]

    def __str__(self) -> str:
        first, last = self.versions[0], self.versions[-1]
        versions = first if first == last else f"{first} to {last}"
        return f"{versions}: {self.function} with {self.arguments} arguments"


def line_of(version: str, crate: str = CRATE) -> CandleLine:
    """What is known of a published version."""
    try:
        asked = Version(version)
    except InvalidVersion:
        raise UsageError(
            f"'{version}' is not a version of {crate}: expected one such as 0.9.2.",
            hint=f"It is in Cargo.lock, or: cargo tree -i {crate}",
        ) from None
    for line in known_lines():
        if line.crate == crate and asked in map(Version, line.versions):
            return require_served(line, version)
    table = "; ".join(served_table(crate))
    raise UsageError(
        f"{crate} {version} is not known: its argument list may differ, and a wrong list gives wrong numbers without "
        f"an error. Known are {table}.",
        hint="Let flashdepot read its sources: --crate DIR; or use one of those versions: --candle-version X",
    )


def line_of_folder(folder: Path, version: str, crate: str = CRATE) -> CandleLine:
    """What the sources of a version say, published or not."""
    return require_served(CandleLine.of_sources(crate, version, folder), version)


def require_served(line: CandleLine, version: str) -> CandleLine:
    """The line itself, if its call is answered."""
    if line.is_served:
        return line
    unknown = f"its {line.function} takes {line.arguments} arguments in an order that is not known"
    why, hint = _REFUSED_CALLS.get(line.call, (unknown, "Take a published version, or a newer flashdepot."))
    raise IncompatibleError(f"{line.crate} {version} cannot be served: {why}.", hint=hint)


def served_table(crate: str = CRATE) -> list[str]:
    """The published versions of a crate that are served."""
    return [str(line) for line in known_lines() if line.crate == crate and line.is_served]


def _code(path: Path) -> str:
    try:
        return _COMMENT.sub("", path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", hint="Check --crate.") from error


@cache
def known_lines() -> tuple[CandleLine, ...]:
    """The table of ``candle_versions.toml``, oldest first."""
    return tuple(read(line, CandleLine) for line in read_toml(DATA)["line"])


RUN_MHA = "flashdepot_candle_run_mha"
"""What candle's ``run_mha`` is called in an archive that has one of its own before it."""

KERNELS_HEADER = "candle_kernels.h"
PLACE = "candle"
"""The name of the folder of the sources in compilers' arguments."""

_API = "flash_api"
_FILE = r"flash_fwd_(splitkv_)?hdim(\d+)_(bf16|fp16)(_causal)?_sm80"
_LARGEST_OF_FLASH_ATTENTION = 256
_OLDEST = Architecture(8, 0)


class CandleKernel(msgspec.Struct, frozen=True, order=True):
    """A file of ``kernels``: ``paged`` kernels read keys and values in pages of any multiple of 32 rows."""

    paged: bool
    head_dim: int
    dtype: Dtype
    causal: bool

    @property
    def name(self) -> str:
        """What users call it: ``splitkv_hdim256_bf16_causal``."""
        return f"{'splitkv_' * self.paged}hdim{self.head_dim}_{self.dtype}{'_causal' * self.causal}"

    @property
    def stem(self) -> str:
        """Its file without the ending."""
        return f"flash_fwd_{self.name}_sm80"

    @classmethod
    def parse(cls, stem: str) -> CandleKernel | None:
        """Read :attr:`stem`; ``None`` for a file that is not a kernel."""
        found = re.fullmatch(_FILE, stem)
        return cls(bool(found[1]), int(found[2]), Dtype(found[3]), bool(found[4])) if found else None

    @property
    def unit(self) -> Unit:
        """What it is to a build: a kernel of flash-attention's kind, and about as long to compile."""
        pass_ = Pass.SPLITKV if self.paged else Pass.FWD
        return Unit("fa2", pass_, self.head_dim, self.dtype, self.causal, self.stem)


def choose_kernels(crate: Path, words: str, line: CandleLine, version: str) -> tuple[CandleKernel, ...]:
    """The kernels that ``--candle-kernels`` names: ``all``, or names with ``*``, such as ``splitkv_hdim256_bf16*``."""
    paths = sorted((crate / "kernels").glob("*.cu")) if line.arguments == NEWEST_LIST else []
    found = filter(None, (CandleKernel.parse(path.stem) for path in paths))
    there = [kernel for kernel in found if kernel.paged or kernel.head_dim > _LARGEST_OF_FLASH_ATTENTION]
    if not there:
        raise IncompatibleError(
            f"{line.crate} {version} has no kernels that its calls here would need: those of {CRATE} 0.11.0 and newer do, "
            "for head dim 512 and prefix ranges.",
            hint="Leave out --candle-kernels.",
        )
    chosen: set[CandleKernel] = set()
    for word in filter(None, re.split(r"[,\s]+", words.strip())):
        meant = [kernel for kernel in there if word == "all" or fnmatchcase(kernel.name, word)]
        if not meant:
            names = [kernel.name for kernel in there]
            hint = "Name some, with * for any text, or: --candle-kernels all"
            raise not_one_of(word, "one of candle's kernels that can be added", names, hint=hint)
        chosen.update(meant)
    if not chosen:
        raise UsageError("--candle-kernels names none.", hint="--candle-kernels all")
    return tuple(sorted(chosen))


def table_header(kernels: Sequence[CandleKernel], features: frozenset[Feature]) -> str:
    """What ``mha_candle.c`` is given of the kernels in an archive."""
    rows = [f"X({k.paged:d}, {k.head_dim}, {k.dtype is Dtype.BF16:d}, {k.causal:d})" for k in kernels]
    asked = (Feature.ALIBI, Feature.SOFTCAP, Feature.LOCAL, Feature.UNEVEN_K)
    lines = [f"#define HAS_{feature.value.upper()} {feature in features:d}" for feature in asked]
    return "\n".join([*lines, " \\\n  ".join(["#define CANDLE_KERNELS(X)", *rows]), ""])


def recipe_for(manifest: Manifest, toolchain: ToolchainId, compilers: Compilers) -> Recipe:
    """The recipe of the library that they are added to. nvcc is given what candle gives it: upstream's flags."""
    target = Target(manifest.platform, compilers.cuda.major, manifest.sass, manifest.driver_floor)
    mode, options = usual_compression(compilers.cuda), compilers.nvcc_options
    words = nvcc_flags(manifest.sass, virtual=_OLDEST, compress=mode, options=options)
    return Recipe(manifest.upstreams, manifest.selection, target, toolchain, "", {PLACE: (*UPSTREAM_FLAGS, *words)})


def kernel_actions(
    kernels: Iterable[CandleKernel], features: frozenset[Feature], recipe: Recipe, compilers: Compilers
) -> tuple[Action, ...]:
    """The compiler runs of some kernels and of what launches them, both sides of each.

    :param features: what a kernel should be able to do; candle's macros leave the others out, and dropout, which its
        calls never ask for.
    """
    wanted = features - {Feature.DROPOUT}
    # "=": as empty as where candle's files for head dim 512 define them, which is then no other definition.
    left_out = tuple(f"-DFLASHATTENTION_DISABLE_{f.value.upper()}=" for f in Feature if f not in wanted)
    words = (*left_out, "-I{cutlass}")
    made = [(_API, (f"-Drun_mha={RUN_MHA}", *words), None), *((k.stem, words, k.unit) for k in kernels)]
    return tuple(
        action
        for stem, words, unit in made
        for action in cuda_actions(compilers, f"candle-{stem}", PLACE, f"{stem}.cu", recipe.flags[PLACE], words, unit)
    )
