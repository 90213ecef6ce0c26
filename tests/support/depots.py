"""Depots of tests: model values with defaults, stored libraries, damage, copies of the shared depot."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord, action_key
from flashdepot.files.disk import sha256_file
from flashdepot.files.documents import read_record, write_record
from flashdepot.kernels import fa2
from flashdepot.kernels.c_layer import c_layer_digest
from flashdepot.model.codec import digest_of
from flashdepot.model.manifest import Manifest, ManifestFile
from flashdepot.model.recipe import Tool, ToolchainId, UpstreamId
from flashdepot.model.request import Request
from flashdepot.model.selection import Dtype, Feature, Pass, Selection, Unit
from flashdepot.model.target import Platform, Version
from support.own_world import makes_links
from support.recipes import architectures

UPSTREAM = {"fa2": UpstreamId("2.8.3.post2", "a" * 64)}
LIBRARY_FILES = {
    "include/flash_attention.h": b"#pragma once\n" * 50,
    "lib/shared/libflashattention.so.1": bytes(range(256)) * 400,
    "lib/static/libflashattention.a": b"!<arch>\n" * 5000,
}
LINK = ManifestFile("lib/shared/libflashattention.so", "", 0, "libflashattention.so.1")


def make_unit(kernels: str = "fwd", head_dim: int = 64, dtype: str = "bf16", *, causal: bool = False) -> Unit:
    return fa2.make_unit(Pass(kernels), head_dim, Dtype(dtype), causal=causal)


def make_selection(*units: Unit, features: str = "") -> Selection:
    return Selection(frozenset(units or [make_unit()]), frozenset(Feature(f) for f in features.split()))


def make_manifest(**overrides: Any) -> Manifest:
    """Make a manifest that satisfies :func:`make_request`. ``sass`` may be text, ``cuda`` is the toolchain's version."""
    cuda = Version(overrides.pop("cuda", "13.0"))
    if isinstance(overrides.get("sass"), str):
        overrides["sass"] = architectures(overrides["sass"])
    if "size" in overrides:
        overrides["files"] = (ManifestFile("lib/x.a", "b" * 64, overrides.pop("size")),)
    manifest = Manifest(
        recipe_key=digest_of("a recipe"),
        kind="library",
        name="libflashattention",
        upstreams=UPSTREAM,
        selection=make_selection(),
        platform=Platform("linux", "x86_64"),
        sass=architectures("90"),
        toolchain=ToolchainId(cuda, (Tool("nvcc", str(cuda), "c" * 64), Tool("g++", "12.2", "d" * 64))),
        c_layer=c_layer_digest(),
        driver_floor=Version("580.65.06"),
        libc_floor=Version("2.28"),
        front_end="shared",
        flags={"fa2": ("-O3",)},
        files=(ManifestFile("lib/x.a", "b" * 64, 1000),),
        actions={},
        flashdepot="0.1.0",
    )
    return replace(manifest, **overrides)


def make_request(**overrides: Any) -> Request:
    request = Request(
        upstreams=UPSTREAM,
        selection=make_selection(),
        platform=Platform("linux", "x86_64"),
        gpus=architectures("90"),
        driver=Version("580.95"),
        libc=Version("2.36"),
    )
    return replace(request, **overrides)


def put_bytes(depot: Depot, data: bytes) -> str:
    """Keep bytes as a blob; :returns: their SHA-256."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bytes")
        path.write_bytes(data)
        return depot.blobs.put_file(path)


def store_library(depot: Depot, folder: Path, *, name: str = "one", **overrides: Any) -> Manifest:
    """Write the files of a small library into ``folder`` and store them, with contents that differ by ``name``."""
    sources, files = {}, [LINK] if makes_links() else []
    for path, content in LIBRARY_FILES.items():
        source = folder / name / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(content + name.encode())
        sources[path] = source
        files.append(ManifestFile(path, sha256_file(source), source.stat().st_size))
    manifest = make_manifest(**({"recipe_key": digest_of(name), "files": tuple(files)} | overrides))
    depot.artifacts.store(manifest, sources)
    return manifest


def make_record(name: str = "fwd_hdim64_bf16", **inputs: str) -> ActionRecord:
    intent = digest_of(["intent", name])
    closure = inputs or {"{upstream}/a.h": "1" * 64, "{upstream}/b.h": "2" * 64}
    return ActionRecord(action_key(intent, closure), intent, name, closure, 100.0, 30.0, 3_000_000_000)


def record_unit(depot: Depot, folder: Path, name: str = "fwd_hdim64_bf16", content: bytes = b"object") -> ActionRecord:
    """Record a compiler run whose object has these bytes."""
    folder.mkdir(exist_ok=True)
    source = folder / f"{name}.o"
    source.write_bytes(content)
    return depot.actions.record(make_record(name), source)


def find_unit(depot: Depot, record: ActionRecord) -> ActionRecord | None:
    """Look a compiler run up with its inputs unchanged."""
    return depot.actions.find(record.intent_key, record.inputs.get)


def make_older(path: Path, *, hours: float) -> None:
    """Let a file or folder have been changed last some hours ago."""
    then = time.time() - hours * 3600
    os.utime(path, (then, then), follow_symlinks=os.utime not in os.supports_follow_symlinks)


def make_depot_older(root: Path, *, hours: float) -> None:
    """Let everything in a depot have been used last some hours ago."""
    for path in sorted(root.rglob("*"), reverse=True):
        make_older(path, hours=hours)


def flip_bit(path: Path) -> None:
    """Damage a file without changing its size."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def truncate(path: Path) -> None:
    """Take the last half of a file away."""
    path.chmod(0o644)
    os.truncate(path, path.stat().st_size // 2)


def rewrite_record(path: Path, change: Callable[[Any], Any]) -> None:
    """Change what a record says, and let it state the right digest of that: as somebody would who forges it."""
    write_record(path, change(read_record(path)))


def flip_and_keep_times(path: Path, byte: int, bit: int) -> None:
    """Flip one bit of a file and set its times back, as rot does, or somebody who hides."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[byte % len(data)] ^= 1 << bit
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(before.st_mode & 0o777)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


COMPILERS = ("toolchains",)
COMPILED = (*COMPILERS, "actions", "blobs", "intents")
"""With these a build of the test's own compiles its units, and takes what all libraries have in common."""

_UNFINISHED = shutil.ignore_patterns(".*.tmp", ".*.work")  # another test may be writing there


def copy_depot(real: Path, copy: Path, folders: tuple[str, ...] | None = None) -> Path:
    """Copy a depot, or some of its folders. Compilers are linked: ten thousand files that nobody writes to.

    :raises FileExistsError: where a folder of ``copy`` is there.
    """
    copy.mkdir(parents=True, exist_ok=True)
    for source in real.iterdir() if folders is None else (real / name for name in folders):
        if source.is_dir() and source.name not in {"locks", "tmp"}:
            how = _link_or_copy if source.name in COMPILERS else shutil.copy2
            shutil.copytree(source, copy / source.name, symlinks=True, copy_function=how, ignore=_UNFINISHED)
        elif source.is_file():
            shutil.copy2(source, copy / source.name)
    return copy


def _link_or_copy(source: str, copy: str) -> None:
    try:
        os.link(source, copy, follow_symlinks=False)
    except OSError:  # another file system
        shutil.copy2(source, copy)


def make_own(path: Path) -> None:
    """Give a file that :func:`copy_depot` linked bytes of its own, before a test damages it in place."""
    if path.stat().st_nlink > 1:
        own = path.with_name(f".{path.name}.own")
        shutil.copy2(path, own)
        own.replace(path)
