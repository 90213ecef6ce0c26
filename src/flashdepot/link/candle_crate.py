"""candle-flash-attn with a build script that only links, for ``[patch.crates-io]``.

Its Rust is candle's own, copied from where Cargo unpacked it; nothing of it travels with flashdepot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from flashdepot.errors import FlashdepotError, UsageError
from flashdepot.link.candle_archive import SOURCES, AddedKernels, companions, made_archives
from flashdepot.link.candle_cross import ZigSource
from flashdepot.link.candle_sources import CRATE
from flashdepot.link.library import LinkableLibrary
from flashdepot.model.architecture import Architecture
from flashdepot.model.target import Platform
from flashdepot.system.output_file import OutputFile, record, record_text
from flashdepot.system.output_folder import OutputFolder
from flashdepot.system.toml import parse_toml
from flashdepot.system.user_files import read_regular

_SIGNATURE = "# Written by 'flashdepot link candle'; sources of candle, build script of flashdepot.\n"
RECORD = ".flashdepot-candle-crate.json"
"""Which files flashdepot wrote there, with their digests."""
_LIB = "lib/"
_LEFT_OUT = frozenset({"Cargo.toml", "Cargo.toml.orig", "build.rs", "kernels", "cutlass", "target", "lib"})


def write_candle_crate(
    library: LinkableLibrary,
    arguments: int,
    crate: Path,
    folder: Path,
    zig: ZigSource,
    added: AddedKernels | None = None,
) -> Path:
    """Write the crate into ``folder``, which is new, empty or such a crate, and return it, absolute.

    :param crate: the sources of candle-flash-attn of the version that is replaced.
    :param zig: asked when the archive is for another system or CPU than this machine's.
    :param added: kernels of candle's own that go into the archive too.
    :raises UsageError: when the folder holds something else, or one of the crate's files was changed since.
    """
    written = OutputFolder(folder, "crate", record(RECORD), "--build-dir DIR")
    cargo_toml = link_only_manifest(read_regular(crate / "Cargo.toml").decode("utf-8"))
    platform = library.manifest.platform
    cudart = platform.system == "windows" and len(library.archives) > 1
    with made_archives(library, arguments, zig, _LIB, added=added) as archives:
        build_script = linking_build_script(platform, library.manifest.sass, arguments, archives, cudart)
        files = (
            OutputFile.of("Cargo.toml", cargo_toml.encode()),
            OutputFile.of("build.rs", build_script.encode()),
            *(OutputFile.of(path.relative_to(crate).as_posix(), read_regular(path)) for path in _sources(crate)),
            *archives,
            *companions(library, _LIB),
        )
        return written.write(files, record_text(files))


def linking_build_script(
    platform: Platform, sass: Sequence[Architecture], arguments: int, archives: Sequence[OutputFile], cudart: bool
) -> str:
    """A ``build.rs`` that reads the archive, and gives it to cargo if it is the one that was written.

    :param sass: the machine code in it.
    :param archives: what goes into ``lib``.
    :param cudart: whether a program over it links NVIDIA's runtime too.
    """
    written = [f'("{file.place.removeprefix(_LIB)}", {_length(file)}, "{file.digest}")' for file in archives]
    text = (SOURCES / "build.rs").read_text("utf-8")
    for place, value in (
        ("@PLATFORM@", str(platform)),
        ("@SASS@", " ".join(architecture.dotted for architecture in sass)),
        ("@ARGUMENTS@", str(arguments)),
        ("@COUNT@", str(len(written))),
        ("@WRITTEN@", ", ".join(written)),
        ("@CUDART@", "yes" if cudart else "no"),
    ):
        text = text.replace(place, value)
    return text


def _length(file: OutputFile) -> int:
    return len(file.content) if isinstance(file.content, bytes) else file.content().stat().st_size


def link_only_manifest(cargo_toml: str) -> str:
    """A ``Cargo.toml`` without what only a compiling build script needs: its ``[build-dependencies]``.

    :raises UsageError: when it takes values from a workspace, which a copy of it would not have.
    :raises FlashdepotError: when that cannot be taken out without touching anything else.
    """
    before = parse_toml(cargo_toml, "Cargo.toml")
    if not isinstance(before.get("package", {}).get("version"), str):
        raise UsageError(
            f"The Cargo.toml of {CRATE} takes its version from a workspace, so its folder cannot be used on its own.",
            hint="Name with --crate the folder into which Cargo unpacked it from a registry: ~/.cargo/registry/src/*",
        )
    kept, skipping = [], False
    for line in cargo_toml.splitlines(keepends=True):
        if line.startswith("["):
            skipping = re.match(r"\[\[?\s*(?:target\..*\.)?build-dependencies\b", line) is not None
        if not skipping:
            kept.append(line)
    text = "".join(kept)
    before.pop("build-dependencies", None)
    if before != parse_toml(text, "Cargo.toml"):
        raise FlashdepotError(f"The Cargo.toml of {CRATE} is written in a way that cannot be changed safely.")
    return _SIGNATURE + text


def _sources(crate: Path) -> Iterator[Path]:
    """The files to copy: no kernels, nothing hidden, and nothing through a link."""
    for place, folders, files in os.walk(crate):
        top = Path(place) == crate
        hidden = {name for name in (*folders, *files) if name.startswith(".") or (top and name in _LEFT_OUT)}
        folders[:] = sorted(set(folders) - hidden)
        yield from (path for name in sorted(set(files) - hidden) if not (path := Path(place, name)).is_symlink())
