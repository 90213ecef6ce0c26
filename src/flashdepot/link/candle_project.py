"""A Cargo project that uses candle-flash-attn: its version, its configuration, and what a person must set and know."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from flashdepot.errors import UsageError
from flashdepot.files.disk import write_atomic
from flashdepot.files.documents import read_toml
from flashdepot.link.candle_versions import CRATE, CRATE_V3, NEWEST_LIST, CandleKernel, find_crate
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import HALVES, Feature, Pass

LOCK = "Cargo.lock"
_GIT = "git+"


class CandleProject(msgspec.Struct, frozen=True):
    """What a project's ``Cargo.lock`` says of candle-flash-attn, or of candle-flash-attn-v3.

    :param root: the folder with ``Cargo.lock``, absolute.
    :param source: where Cargo has it from, as it spells it; empty for a folder, such as one of ``[patch]``.
    :param features: those of the root package that a build must name to use it; none when it always does.
    """

    root: Path
    version: str
    source: str
    features: tuple[str, ...]
    crate: str = CRATE

    def sources(self, cargo_home: Path) -> Path | None:
        """The folder of candle's own sources of that version; ``None`` when Cargo has not unpacked them."""
        if not self.source.startswith(_GIT):
            return find_crate(self.version, cargo_home, self.crate)
        revision = self.source.rpartition("#")[2][:7]
        found = sorted((cargo_home / "git" / "checkouts").glob(f"*/{revision}/{self.crate}/Cargo.toml"))
        return found[0].parent if found else None

    @property
    def git(self) -> Mapping[str, str]:
        """Where git has it from, as Cargo.toml says it: ``git`` and perhaps ``rev``, ``tag`` or ``branch``; else empty."""
        if not self.source.startswith(_GIT):
            return {}
        address = urlsplit(self.source.removeprefix(_GIT))
        return {"git": address._replace(query="", fragment="").geturl(), **dict(parse_qsl(address.query))}


def read_candle_project(folder: Path, crate: str = "") -> CandleProject:
    """Read the project around a folder.

    :param crate: one of the two; empty takes candle-flash-attn where the project uses it, else candle-flash-attn-v3.
    :raises UsageError: when there is no ``Cargo.lock``, or none or several versions of the crate are in it.
    """
    start = Path(os.path.abspath(folder))  # noqa: PTH100  (links stay as they were typed)
    places = (start, *start.parents)
    root = next((place for place in places if (place / LOCK).is_file()), None)
    if root is None and any((place / "Cargo.toml").is_file() for place in places):
        raise UsageError(f"{start} has no {LOCK}, which says which candle the project uses.", hint="cargo fetch")
    if root is None:
        raise UsageError(
            f"{start} is not a Cargo project: it has no {LOCK}, and no folder above it has one.",
            hint="Go to the project's folder. Without a project: flashdepot link candle --candle-version X --build-dir DIR",
        )
    packages = [p for p in read_toml(root / LOCK).get("package", []) if isinstance(p, dict)]
    used = [name for name in (CRATE, CRATE_V3) if any(p.get("name") == name for p in packages)]
    crate = crate or next(iter(used), CRATE)
    found = {str(p.get("version")): str(p.get("source", "")) for p in packages if p.get("name") == crate}
    if not found:
        raise UsageError(
            f"{root / LOCK} has no {crate}: the project does not use it.", hint=f"cargo add --optional {crate}"
        )
    if len(found) > 1:
        raise UsageError(
            f"{root / LOCK} has {crate} {' and '.join(sorted(found))}: a program can link one of them.",
            hint=f"See who asks for which: cargo tree -i {crate}; or name one: --candle-version X --build-dir DIR",
        )
    ((version, source),) = found.items()
    return CandleProject(root, version, source, switches(_read(root / "Cargo.toml"), crate), crate)


def switches(manifest: Mapping[str, Any], crate: str) -> tuple[str, ...]:
    """The features of a package that switch an optional dependency on, directly or through another feature."""
    dependency = manifest.get("dependencies", {}).get(crate)
    features = manifest.get("features", {})
    if not (isinstance(dependency, dict) and dependency.get("optional")):
        return ()
    asks = {f"dep:{crate}", crate, f"{crate}/"}
    names = [name for name, wants in features.items() if any(want in asks for want in wants)]
    if any(name in features.get("default", []) for name in names):
        return ()
    return tuple(names) or (crate,)


CONFIG = ".cargo/config.toml"
CRATES_IO = "crates-io"
COMPUTE_CAP = "CUDA_COMPUTE_CAP"


class CandleSetup(msgspec.Struct, frozen=True):
    """How a project gets its library: the folder, absolute, of the crate in place of candle's own.

    :param compute_cap: the ``CUDA_COMPUTE_CAP`` that builds see, if any; empty for a set-up that is about to be made.
    :param said_in: the file that says so; empty for a set-up that is about to be made.
    :param replaces: the source in ``[patch]`` that the crate comes from otherwise.
    :param crate: its name.
    """

    folder: Path
    compute_cap: str = ""
    said_in: str = ""
    replaces: str = CRATES_IO
    crate: str = CRATE


def config_text(text: str, setup: CandleSetup, root: Path) -> str:
    """A ``.cargo/config.toml`` with the lines of a set-up added; everything else in it stays as it is.

    :param text: what is in the file now; empty when there is none.
    """
    import tomlkit  # noqa: PLC0415  (only --write and the lines it would write need it)
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise UsageError(f"{CONFIG} is not valid TOML: {error}.") from error
    inside = setup.folder.is_relative_to(root)
    place = (setup.folder.relative_to(root) if inside else setup.folder).as_posix()
    _put(document, ("patch", setup.replaces), setup.crate, {"path": place})
    return tomlkit.dumps(document)


def write_config(root: Path, setup: CandleSetup) -> Path:
    """Add the lines of a set-up to a project's ``.cargo/config.toml``."""
    path = root / CONFIG
    before = path.read_text("utf-8") if path.is_file() else ""
    after = config_text(before, setup, root)
    if after != before:
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, after.encode())
    return path


def read_setup(root: Path, variables: Mapping[str, str], crate: str = CRATE) -> CandleSetup | None:
    """What the project and the environment say of a crate now; ``None`` when a build would compile."""
    config = _read(root / CONFIG)
    cap = _variable(_table(config, "env"), COMPUTE_CAP, variables)
    for name, file in ((CONFIG, config), ("Cargo.toml", _read(root / "Cargo.toml"))):
        for source, table in _table(file, "patch").items():
            patch = table.get(crate) if isinstance(table, dict) else None
            if isinstance(patch, dict) and isinstance(patch.get("path"), str):
                said_in = f"[patch.{source if source == CRATES_IO else json.dumps(source)}] in {name}"
                # Links stay as they were typed.
                folder = Path(os.path.abspath(root / patch["path"]))  # noqa: PTH100
                return CandleSetup(folder, cap, said_in, source, crate)
    return None


def _variable(env: Mapping[str, Any], name: str, variables: Mapping[str, str]) -> str:
    """What builds see: the variable itself, unless ``[env]`` forces its own (The Cargo Book, "Configuration")."""
    said = env.get(name)
    table = said if isinstance(said, dict) else {"value": said}
    if variables.get(name) and table.get("force") is not True:
        return variables[name]
    value = table.get("value")
    return value if isinstance(value, str) else ""


def _put(document: Any, tables: tuple[str, ...], key: str, value: dict[str, str]) -> None:
    import tomlkit  # noqa: PLC0415

    inner = document
    for depth, name in enumerate(tables):
        inner = inner.setdefault(name, tomlkit.table(is_super_table=depth + 1 < len(tables)))
    if key in inner and inner[key] != value:
        raise UsageError(
            f"{CONFIG} already says {key} = {inner[key].as_string()} in [{'.'.join(tables)}], and this set-up needs "
            f"{value!r}.",
            hint="Remove that line, or give this command the same folder with --build-dir.",
        )
    if key not in inner:
        inner[key] = tomlkit.inline_table()
        inner[key].update(value)


def _read(path: Path) -> dict[str, Any]:
    return read_toml(path) if path.is_file() else {}


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


_USED_BY = {
    Feature.ALIBI: "flash_attn_alibi",
    Feature.SOFTCAP: "softcap",
    Feature.LOCAL: "windows other than causal",
    Feature.UNEVEN_K: "head dims between those of the kernels",
}


def compute_cap(manifest: Manifest) -> str:
    """The ``CUDA_COMPUTE_CAP`` for a build: that of the oldest machine code in the library.

    candle's build scripts want one that their nvcc knows, even when they compile nothing; and candle-kernels compiles for
    it. Code made for this one runs on every GPU that the library serves.
    """
    oldest = min(manifest.sass)
    return f"{oldest.major}{oldest.minor}"


def missing_kernels(manifest: Manifest, arguments: int, added: Sequence[CandleKernel] = ()) -> str:
    """What of candle an archive cannot run and will refuse, as a sentence or two.

    :param added: kernels of candle's own in it.
    """
    selection = manifest.selection
    lacks = [str(dtype) for dtype in HALVES if not any(unit.dtype is dtype for unit in selection.units)]
    lacks += [words for feature, words in _USED_BY.items() if feature not in selection.features]
    if arguments == NEWEST_LIST and not any(unit.pass_ is Pass.SPLITKV for unit in selection.units):
        lacks.append("paged keys and values")
    dims = sorted({unit.head_dim for unit in selection.units if unit.pass_ is Pass.FWD})
    lacks.append("head dims over " + str(dims[-1]) if dims else "everything: it has no forward pass")
    refuses = f"This library refuses {', '.join(lacks)}; run_mha then says so."
    if not added:
        beyond = " Head dim 512 and prefix ranges need kernels of candle's own: --candle-kernels all"
        return f"{refuses}{beyond * (arguments == NEWEST_LIST)}"
    names = ", ".join(kernel.name for kernel in added)
    return f"{refuses} Of those calls, the archive's kernels of candle's own serve what they can: {names}."


STREAMS = (
    "The kernels run on the legacy default stream. With CudaDevice::new_with_stream, set "
    "FLASHDEPOT_CANDLE_SYNCHRONIZE=1 when the program runs."
)
"""What must be known of streams where an argument list has none."""

NO_NVCC = (
    "nvcc is not on PATH, and candle's build runs it. Take the depot's, in your Cargo project's folder: "
    'eval "$(flashdepot link candle --write --toolkit)"'
)


def crate_notes(manifest: Manifest, nvcc: str | None) -> list[str]:
    """What candle's other crates need of CUDA when only its FlashAttention is linked.

    :param nvcc: the one on PATH.
    """
    needs = (
        "This crate compiles nothing. candle's others still do: candle-kernels runs nvcc, for the GPU that "
        f"CUDA_COMPUTE_CAP names ({compute_cap(manifest)} serves every GPU of this library), cudarc asks nvcc for its "
        "version, and the program links cuda, cudart, cublas, cublasLt, curand and nvrtc."
    )
    return [needs] if nvcc else [needs, NO_NVCC]
