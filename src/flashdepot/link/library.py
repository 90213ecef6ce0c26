"""A library's folder, and what others need to link it: arguments, lines to paste, and the crate flashattention-sys."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.binary.window import LFS_MAGIC
from flashdepot.depot.export import library_files
from flashdepot.depot.libraries import manifest_text
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.files.documents import read_of_kind
from flashdepot.files.output_folder import OutputFolder
from flashdepot.files.user_files import OutputFile
from flashdepot.model.codec import FixedWord
from flashdepot.model.limits import joined
from flashdepot.model.manifest import LIBRARY, MANIFEST_NAME, Manifest, ManifestFile, unusable
from flashdepot.model.target import LibraryNames, names_of, spell

_GET_AGAIN = "Get it again: flashdepot get --out DIR"


class LinkKind(FixedWord):
    """Which of the two libraries of a folder is linked."""

    SHARED = "shared"
    STATIC = "static"


class LinkableLibrary(msgspec.Struct, frozen=True):
    """A folder as ``flashdepot get`` writes it, by its absolute path, and its manifest."""

    root: Path
    manifest: Manifest

    @property
    def include(self) -> Path:
        """The folder of ``flash_attention.h``."""
        return self.root / "include"

    @property
    def pkg_config(self) -> Path:
        """The folder of the ``.pc`` files."""
        return self.root / "lib" / "pkgconfig"

    @property
    def names(self) -> LibraryNames:
        """What its files are called; :raises IncompatibleError: when it is for a system that no names are known of."""
        return names_of(self.manifest.platform.system)

    def folder(self, kind: LinkKind) -> Path:
        """The folder of one of the two libraries, in which the other one is not."""
        return self.root / "lib" / kind.value

    def require(self, kind: LinkKind) -> None:
        """Check that a linker finds the library, and a program the shared one, and not a stand-in."""
        names = self.names
        shared, static = (names.shared_linked, names.shared), names.static[:1]
        for name in shared if kind is LinkKind.SHARED else static:
            _require_library(self.folder(kind) / name)

    def source(self, file: ManifestFile) -> Path:
        """Where the bytes of a file of the manifest are."""
        return self.root / file.path

    def summary(self) -> str:
        """What it can do, in one line."""
        return (
            f"flash-attn {self.manifest.upstream}: {self.manifest.selection}; "
            f"machine code for {spell(self.manifest.sass)}"
        )

    def to_json(self) -> dict[str, Any]:
        """What scripts ask first."""
        return {
            "path": str(self.root),
            "manifest": str(self.root / MANIFEST_NAME),
            "recipe_key": self.manifest.recipe_key,
            "upstream": self.manifest.upstream.version,
            "platform": str(self.manifest.platform),
            "sass": [str(a) for a in self.manifest.sass],
        }


def _require_library(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(len(LFS_MAGIC))
    except OSError as error:
        raise IntegrityError(f"{path} cannot be read: {error.strerror}.", hint=_GET_AGAIN) from error
    if head == LFS_MAGIC:
        fetch = "Fetch the file: git lfs install && git lfs pull"
        raise IntegrityError(f"{path} is a Git LFS pointer, not a library; no linker can use it.", hint=fetch)
    if not head:
        raise IntegrityError(f"{path} is empty, which some linkers silently accept.", hint=_GET_AGAIN)


def read_library(folder: Path) -> LinkableLibrary:
    """Read the manifest of a library's folder; its other files are not read."""
    root = Path(os.path.abspath(folder))  # noqa: PTH100  (the path as typed, through whatever links)
    return LinkableLibrary(root, read_manifest(root))


def read_manifest(root: Path) -> Manifest:
    """The manifest in a library's folder."""
    path = root / MANIFEST_NAME
    other = UsageError(
        f"{path} is not the manifest of a library.", hint="Name the folder that 'flashdepot get' printed."
    )
    if (data := read_of_kind(path, LIBRARY, other, _GET_AGAIN)) is None:
        raise UsageError(
            f"{root} is not a library that flashdepot wrote: it has no {MANIFEST_NAME}.",
            hint="Name the folder that 'flashdepot get' printed, or make one: flashdepot get --out DIR",
        )
    try:
        return Manifest.from_json(data)
    except ValueError as error:
        raise unusable(path, error, _GET_AGAIN) from error


class Shell(Enum):
    """How variables are set and remarks made."""

    POSIX = "posix"
    CMD = "cmd"

    @classmethod
    def of(cls, system: str) -> Shell:
        """The shell of a system, ``linux`` or ``windows``."""
        return cls.CMD if system == "windows" else cls.POSIX

    @classmethod
    def here(cls) -> Shell:
        """The shell of this machine, whatever a library is for."""
        return cls.of("windows" if os.name == "nt" else "linux")

    def assignment(self, name: str, value: str) -> str:
        """The line that sets an environment variable."""
        return f"export {name}={shlex.quote(value)}" if self is Shell.POSIX else f'set "{name}={value}"'

    def prepending(self, name: str, folder: str) -> str:
        """The line that puts a folder in front of a variable's list of folders."""
        if self is Shell.POSIX:
            return f"export {name}={shlex.quote(folder)}${{{name}:+:${name}}}"
        return f'set "{name}={folder};%{name}%"'

    def remark(self, text: str) -> str:
        """A line that does nothing."""
        return f"{'#' if self is Shell.POSIX else 'rem'} {text}"


STATIC_NEEDS = ("-ldl", "-lpthread")
"""What the static library refers to on Linux."""

SYSTEM_LIBRARIES = ("kernel32.lib", "advapi32.lib", "shell32.lib", "user32.lib")
"""What the static library may refer to on Windows."""

TO_LINKER = "/link"
"""What comes before the arguments that ``cl`` passes to ``link``; they are the last of a command."""


class LinkArguments(msgspec.Struct, frozen=True):
    """A library to link with: its folder, and arguments for a compiler, those before the sources and those after them.

    For a library for Linux they are those of gcc, clang and their C++ companions; for one for Windows those of ``cl``
    and ``clang-cl``, and what follows :data:`TO_LINKER` is what ``link`` and ``lld-link`` take.
    """

    path: Path
    compile: tuple[str, ...]
    link: tuple[str, ...]


def link_arguments(library: LinkableLibrary, kind: LinkKind) -> LinkArguments:
    """The arguments that use a library from where it is.

    On Linux a program with the shared one finds it again by an ``-rpath``, which ``-Wl`` would split at a comma. The static
    one leaves no trace of its folder.
    """
    root, include, folder, names = library.root, library.include, library.folder(kind), library.names
    if library.manifest.platform.system == "windows":
        found = (TO_LINKER, f"/LIBPATH:{folder}")
        if kind is LinkKind.SHARED:
            return LinkArguments(root, (f"/I{include}",), (*found, names.shared_linked))
        # The objects use the C runtime as a DLL, so the program has to as well.
        own = ("/MD", f"/I{include}", "/DFA_STATIC")
        return LinkArguments(root, own, (*found, names.static[0], *SYSTEM_LIBRARIES))
    if kind is LinkKind.SHARED:
        whole = ("-Xlinker", "-rpath", "-Xlinker", str(folder))
        found_again = whole if "," in str(folder) else (f"-Wl,-rpath,{folder}",)
        return LinkArguments(root, (f"-I{include}",), (f"-L{folder}", *found_again, "-lflashattention"))
    return LinkArguments(root, (f"-I{include}", "-DFA_STATIC"), (str(folder / names.static[0]), *STATIC_NEEDS))


_SEPARATORS = {"a linker": ":", "CMake": ":;\\\t\n", "pkg-config": ":\"\\$'(\t\n"}
"""What each takes for something else than a part of a path: seen with GNU ld 2.40, CMake 3.25 and pkgconf 1.8."""


def unusable_path(library: LinkableLibrary, kind: LinkKind, by: str) -> str:
    """Why a linker, CMake or pkg-config does not find a library for Linux where it is; empty when it does."""
    if library.manifest.platform.system != "linux" or (by, kind) == ("a linker", LinkKind.STATIC):
        return ""  # the arguments name the static one as a file
    separators = _SEPARATORS[by] + (
        "," if by != "a linker" and kind is LinkKind.SHARED else ""
    )  # theirs have -Wl,-rpath
    found = next((character for character in separators if character in str(library.root)), "")
    named = f"{library.root} has {found!r} in its path, and {by} does not find the {kind} library there."
    return f"{named} Move the folder, or get it elsewhere: flashdepot get --out DIR" if found else ""


def package_version(library: LinkableLibrary) -> str:
    """The version to ask CMake for: ``2.8`` of flash-attn 2.8.3.post2, which a later 2.x satisfies as well."""
    match = re.match(r"\d+(\.\d+)?", library.manifest.upstream.version)
    return match[0] if match else ""


def place_of_dll(library: LinkableLibrary, kind: LinkKind) -> tuple[str, ...]:
    """What must be known of where a program finds the library when it starts, on Windows; at most one line."""
    if kind is LinkKind.STATIC or library.manifest.platform.system != "windows":
        return ()
    return (f"A program finds {library.names.shared} in its own folder or on PATH: {library.folder(kind)}",)


def cmake_lines(library: LinkableLibrary, kind: LinkKind) -> str:
    """Two lines for a CMakeLists.txt, and as comments how to configure and what a program needs."""
    asked = f"FlashAttention {package_version(library)}".rstrip()
    prefix = joined([f"-DCMAKE_PREFIX_PATH={library.root.as_posix()}"])
    return "\n".join(
        [
            f"# {library.summary()}",
            f"# Configure with: cmake -S . -B build {prefix}",
            *(f"# {line}" for line in place_of_dll(library, kind)),
            f"find_package({asked} REQUIRED COMPONENTS {kind})",
            f"target_link_libraries(your_program PRIVATE FlashAttention::{kind})",
        ]
    )


def pkg_config_module(kind: LinkKind) -> str:
    """The name of the ``.pc`` file."""
    return "flashattention" if kind is LinkKind.SHARED else "flashattention-static"


def pkg_config_lines(library: LinkableLibrary, kind: LinkKind) -> str:
    """A line that a shell evaluates, and as comments how to compile and what a program needs."""
    module, shell = pkg_config_module(kind), Shell.here()
    if library.manifest.platform.system == "windows":
        how = [f"cl takes what 'pkg-config --msvc-syntax --cflags {module}' prints, and after /link that of --libs"]
        how += ["It also needs: cl /MD"] if kind is LinkKind.STATIC else []
    else:
        how = [f"eval c++ program.cc $(pkg-config --cflags --libs {module}) -o program"]
    return "\n".join(
        [
            shell.remark(library.summary()),
            shell.prepending("PKG_CONFIG_PATH", str(library.pkg_config)),
            *(shell.remark(line) for line in (*how, *place_of_dll(library, kind))),
        ]
    )


CRATE = "flashattention-sys"

CRATE_SOURCE = Path(__file__).parent / "crate"
"""The crate as it is published."""

_PLACES = ("Cargo.toml", "LICENSE", "README.md", "build.rs", "src/bindings.rs", "src/lib.rs", "tests/contents.rs")
_ATTRIBUTES = """\
# The libraries go to Git LFS, and a checkout changes no line endings.
* -text
/library/*/lib/shared/* filter=lfs diff=lfs merge=lfs -text
/library/*/lib/static/* filter=lfs diff=lfs merge=lfs -text
"""


def write_crate(library: LinkableLibrary, folder: Path) -> Path:
    """Write the crate with the library inside it, next to those for other platforms, and return its folder, absolute.

    The folder is new, empty, or a crate that was written here before; other files in it stay. Everything in it can be
    moved and put under version control.
    """
    own = f"library/{library.manifest.platform}/"
    crate = OutputFolder(folder, "crate", ".flashdepot-cargo.json", "flashdepot link cargo DIR", own=own)
    files = (
        *(OutputFile.of(place, text.encode()) for place, text in crate_texts().items()),
        *library_files(library.manifest, library.source, own),
        OutputFile.of(f"{own}{MANIFEST_NAME}", manifest_text(library.manifest)),
    )
    return crate.write(files)


def crate_texts() -> Mapping[str, str]:
    """The crate's own files by their place: the published ones, outside of this project's Cargo workspace."""
    texts = {place: (CRATE_SOURCE / place).read_text("utf-8") for place in _PLACES}
    lines = texts["Cargo.toml"].splitlines(keepends=True)
    texts["Cargo.toml"] = "".join(line for line in lines if not line.startswith(("workspace =", "exclude =")))
    texts[".gitattributes"] = _ATTRIBUTES
    return texts
