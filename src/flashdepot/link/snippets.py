"""What to paste into a build's own files."""

from __future__ import annotations

import re

from flashdepot.link.flags import ONE_C_RUNTIME
from flashdepot.link.library import LinkableLibrary, LinkKind
from flashdepot.link.shell import Shell


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
            how.append(f"It needs besides: cl /MD, and {ONE_C_RUNTIME} after /link")
    else:
        how = [f"c++ program.cc $(pkg-config --cflags --libs {module}) -o program"]
    return "\n".join(
        [
            shell.remark(library.summary()),
            shell.prepending("PKG_CONFIG_PATH", str(library.pkg_config)),
            *(shell.remark(line) for line in (*how, *place_of_dll(library, kind))),
        ]
    )
