"""How candle's build takes the archive: from a folder, or from a crate with a build script that only links."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from flashdepot.errors import MissingToolError, UsageError
from flashdepot.files.documents import parse_toml
from flashdepot.files.output_folder import OutputFolder
from flashdepot.files.user_files import OutputFile, read_regular
from flashdepot.link.candle_archive import OWN_STEM, SOURCES, AddedKernels, ZigSource, companions, made_archives
from flashdepot.link.candle_versions import archive_time, newer_sources, source_times
from flashdepot.link.library import LinkableLibrary

COMPANIONS = "libflashattention"
"""Folder of the manifest, the licences and the header that travel with the archive."""

FOLDER_RECORD = ".flashdepot-candle.json"
"""Which files flashdepot wrote next to an archive for candle's own build script, with their digests."""


class PreparedFolder(msgspec.Struct, frozen=True):
    """The folder, absolute; the archives in it; and the crate whose sources are older, if it was there to look at."""

    root: Path
    archives: tuple[Path, ...]
    crate: Path | None


def prepare_folder(
    library: LinkableLibrary, arguments: int, folder: Path, crate: Path | None, zig: ZigSource
) -> PreparedFolder:
    """Put the archive into a folder so that candle's build script takes it.

    :param crate: the sources of candle-flash-attn, than which the archive must be newer; ``None``: not fetched yet.
    """
    root = folder.absolute()
    if found := rivals_in(root):
        raise UsageError(
            f"{root} has a {found[0].name}, and candle's build script says 'flashattention' without saying which kind: "
            "linkers then take the shared library, which has no run_mha.",
            hint="Name another --build-dir, or remove that file.",
        )
    sources = source_times(crate) if crate is not None else {}
    wanted = archive_time(time.time_ns(), sources.values())
    written = OutputFolder(folder, "folder for candle", FOLDER_RECORD, "--build-dir DIR", beside_others=True)
    with made_archives(library, arguments, zig, modified_ns=wanted) as archives:
        written.write((*archives, *companions(library, f"{COMPANIONS}/")))
    made = tuple(root / file.place for file in archives)
    for archive in made:
        if left := newer_sources(archive.stat().st_mtime_ns, sources):
            raise MissingToolError(
                f"The file system of {root} did not keep the archive's time, so that it looks older than {left[0]} and "
                "candle would compile again.",
                hint="Name a --build-dir on another file system.",
            )
    return PreparedFolder(root, made, crate)


def rivals_in(folder: Path) -> list[Path]:
    """The shared libraries in a folder that linkers would take for the archive: candle's build script names no kind."""
    places = (folder / name for name in ("libflashattention.so", "libflashattention.dylib"))
    return [place for place in places if place.exists()]


_SIGNATURE = "# Written by 'flashdepot link candle'; sources of candle, build script of flashdepot.\n"
CRATE_RECORD = ".flashdepot-candle-crate.json"
"""Which files flashdepot wrote in a crate, with their digests."""
_ATTRIBUTES = """\
# The archives go to Git LFS, and a checkout changes no line endings.
* -text
/lib/*/*.a filter=lfs diff=lfs merge=lfs -text
/lib/*/*.lib filter=lfs diff=lfs merge=lfs -text
"""
_LEFT_OUT = frozenset({"Cargo.toml", "Cargo.toml.orig", "build.rs", "kernels", "hkernel", "cutlass", "target", "lib"})


def write_candle_crate(
    library: LinkableLibrary,
    arguments: int,
    crate: Path,
    folder: Path,
    zig: ZigSource,
    added: AddedKernels | None = None,
    git: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write the crate into ``folder``, which is new, empty or such a crate, and return it, absolute.

    Each platform has a folder of its own in ``lib``; those of other platforms stay as they are.

    :param crate: the sources of candle-flash-attn of the version that is replaced.
    :param added: kernels of candle's own that go into the archive too; ``git``: see :func:`link_only_manifest`.
    """
    own = f"lib/{library.manifest.platform}/"
    written = OutputFolder(folder, "crate", CRATE_RECORD, "--build-dir DIR", keeps=partial(_of_another_platform, own))
    cargo_toml = link_only_manifest(read_regular(crate / "Cargo.toml").decode("utf-8"), git)
    package = parse_toml(cargo_toml, "Cargo.toml")["package"]
    texts = {
        "Cargo.toml": cargo_toml.encode(),
        "build.rs": linking_build_script(arguments).encode(),
        ".gitattributes": _ATTRIBUTES.encode(),
        "lib/README.md": (SOURCES / "lib_README.md").read_text("utf-8").format(**package).encode(),
    }
    copied = {path.relative_to(crate).as_posix(): read_regular(path) for path in _sources(crate)}
    with made_archives(library, arguments, zig, own, OWN_STEM, added=added) as archives:
        files = [OutputFile.of(place, data) for place, data in {**texts, **copied}.items()]
        return written.write((*files, *archives, *companions(library, own)))


def _of_another_platform(own: str, place: str) -> bool:
    return place.startswith("lib/") and place.count("/") > 1 and not place.startswith(own)


def linking_build_script(arguments: int) -> str:
    """A ``build.rs`` that reads the archive of the target, and gives it to cargo if it is the one that was written."""
    return (SOURCES / "build.rs").read_text("utf-8").replace("@ARGUMENTS@", str(arguments))


def link_only_manifest(cargo_toml: str, git: Mapping[str, str] = MappingProxyType({})) -> str:
    """A ``Cargo.toml`` without what only a compiling build script and tests need, and whose folder can be anywhere.

    :param git: the source that a dependency in a folder next to it has then, as ``Cargo.toml`` says it.
    """
    import tomlkit  # noqa: PLC0415  (only a crate that is written needs it)

    parse_toml(cargo_toml, "Cargo.toml")
    document = tomlkit.parse(cargo_toml)
    elsewhere = "Name with --crate the folder into which Cargo unpacked it from a registry: ~/.cargo/registry/src/*"
    package = document.get("package", {})
    crate = package.get("name")
    if not isinstance(package.get("version"), str):
        what = f"The Cargo.toml of {crate} takes its version from a workspace, so its folder cannot be used on its own."
        raise UsageError(what, hint=elsewhere)
    for tables in (document, *document.get("target", {}).values()):
        for left_out in ("build-dependencies", "dev-dependencies"):
            tables.pop(left_out, None)
    for name, dependency in document.get("dependencies", {}).items():
        if isinstance(dependency, dict) and "path" in dependency:
            if not git:
                raise UsageError(f"{name} of {crate} is in a folder next to it, {dependency['path']}.", hint=elsewhere)
            del dependency["path"]
            dependency.update(git)
    return _SIGNATURE + tomlkit.dumps(document)


def _sources(crate: Path) -> Iterator[Path]:
    """The files to copy: no kernels, nothing hidden, and nothing through a link."""
    for place, folders, files in os.walk(crate):
        top = Path(place) == crate
        hidden = {name for name in (*folders, *files) if name.startswith(".") or (top and name in _LEFT_OUT)}
        folders[:] = sorted(set(folders) - hidden)
        yield from (path for name in sorted(set(files) - hidden) if not (path := Path(place, name)).is_symlink())
