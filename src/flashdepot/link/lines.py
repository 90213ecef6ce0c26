"""What a compiler, a linker and a shell need to be given, and what to paste into a build's own files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from enum import Enum

import msgspec

from flashdepot.link.library import LinkableLibrary, LinkKind
from flashdepot.model.limits import quoted_for_windows


class Shell(Enum):
    """How words are quoted, variables set and remarks made."""

    POSIX = "posix"
    CMD = "cmd"

    @classmethod
    def of(cls, system: str) -> Shell:
        """The shell of a system, ``linux`` or ``windows``."""
        return cls.CMD if system == "windows" else cls.POSIX

    def join(self, arguments: Sequence[str]) -> str:
        """Arguments as one line that gives a program these arguments."""
        return shlex.join(arguments) if self is Shell.POSIX else " ".join(map(quoted_for_windows, arguments))

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


class Flags(msgspec.Struct, frozen=True):
    """Arguments for a compiler: those that go before the sources, and those after them.

    For a library for Linux they are those of gcc, clang and their C++ companions; for one for Windows those of ``cl``
    and ``clang-cl``, and what follows :data:`TO_LINKER` is what ``link`` and ``lld-link`` take.
    """

    compile: tuple[str, ...]
    link: tuple[str, ...]


def flags(library: LinkableLibrary, kind: LinkKind) -> Flags:
    """The arguments that use a library from where it is.

    On Linux a program with the shared one finds it again by an ``-rpath``. The static one leaves no trace of its folder.
    """
    return _for_cl(library, kind) if library.manifest.platform.system == "windows" else _for_gcc(library, kind)


def _for_gcc(library: LinkableLibrary, kind: LinkKind) -> Flags:
    include = f"-I{library.include}"
    folder = library.folder(kind)
    if kind is LinkKind.SHARED:
        return Flags((include,), (f"-L{folder}", f"-Wl,-rpath,{folder}", "-lflashattention"))
    return Flags((include, "-DFA_STATIC"), (str(folder / library.names.static[0]), *STATIC_NEEDS))


def _for_cl(library: LinkableLibrary, kind: LinkKind) -> Flags:
    include = f"/I{library.include}"
    folder = (TO_LINKER, f"/LIBPATH:{library.folder(kind)}")
    if kind is LinkKind.SHARED:
        return Flags((include,), (*folder, library.names.shared_linked))
    # The objects use the C runtime as a DLL, so the program has to as well.
    return Flags(("/MD", include, "/DFA_STATIC"), (*folder, library.names.static[0], *SYSTEM_LIBRARIES))


def package_version(library: LinkableLibrary) -> str:
    """The version to ask CMake for: ``2.8`` of flash-attn 2.8.3.post2, which a later 2.x satisfies as well."""
    match = re.match(r"\d+(\.\d+)?", library.manifest.upstream.version)
    return match[0] if match else ""


def place_of_dll(library: LinkableLibrary, kind: LinkKind) -> tuple[str, ...]:
    """What must be known of where a program finds the library when it starts, on Windows; at most one line."""
    if kind is LinkKind.STATIC or library.manifest.platform.system != "windows":
        return ()
    return (f"A program finds {library.names.shared} in its own folder or on PATH: {library.folder(kind)}",)


def cmake_lines(library: LinkableLibrary, kind: LinkKind, shell: Shell) -> str:
    """Two lines for a CMakeLists.txt, and as comments how to configure and what a program needs."""
    version = package_version(library)
    asked = f"FlashAttention {version}".rstrip()
    prefix = shell.join([f"-DCMAKE_PREFIX_PATH={library.root.as_posix()}"])
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


def pkg_config_lines(library: LinkableLibrary, kind: LinkKind, shell: Shell) -> str:
    """A line that a shell evaluates, and as comments how to compile and what a program needs."""
    module = pkg_config_module(kind)
    if library.manifest.platform.system == "windows":
        how = [f"cl takes what 'pkg-config --msvc-syntax --cflags {module}' prints, and after /link that of --libs"]
        if kind is LinkKind.STATIC:
            how.append("It also needs: cl /MD")
    else:
        how = [f"c++ program.cc $(pkg-config --cflags --libs {module}) -o program"]
    return "\n".join(
        [
            shell.remark(library.summary()),
            shell.prepending("PKG_CONFIG_PATH", str(library.pkg_config)),
            *(shell.remark(line) for line in (*how, *place_of_dll(library, kind))),
        ]
    )
