"""What to paste into a build's own files."""

from __future__ import annotations

import re
import shlex

from flashdepot.link.library import LinkableLibrary, LinkKind


def package_version(library: LinkableLibrary) -> str:
    """The version to ask CMake for: ``2.8`` of flash-attn 2.8.3.post2, which a later 2.x satisfies as well."""
    match = re.match(r"\d+(\.\d+)?", library.manifest.upstream.version)
    return match[0] if match else ""


def cmake_lines(library: LinkableLibrary, kind: LinkKind) -> str:
    """Two lines for a CMakeLists.txt, and as a comment how to configure."""
    version = package_version(library)
    asked = f"FlashAttention {version}".rstrip()
    return "\n".join(
        [
            f"# {library.summary()}",
            f"# Configure with: cmake -S . -B build {shlex.quote(f'-DCMAKE_PREFIX_PATH={library.root}')}",
            f"find_package({asked} REQUIRED COMPONENTS {kind})",
            f"target_link_libraries(your_program PRIVATE FlashAttention::{kind})",
        ]
    )


def pkg_config_module(kind: LinkKind) -> str:
    """The name of the ``.pc`` file."""
    return "flashattention" if kind is LinkKind.SHARED else "flashattention-static"


def pkg_config_lines(library: LinkableLibrary, kind: LinkKind) -> str:
    """A line that a POSIX shell evaluates, and as a comment how to compile."""
    path = shlex.quote(str(library.pkg_config))
    return "\n".join(
        [
            f"# {library.summary()}",
            f"export PKG_CONFIG_PATH={path}${{PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}}",
            f"# c++ program.cc $(pkg-config --cflags --libs {pkg_config_module(kind)}) -o program",
        ]
    )
