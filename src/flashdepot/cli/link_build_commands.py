"""``flashdepot link cmake``, ``pkg-config`` and ``flags``."""

from __future__ import annotations

from typing import Any

import click

from flashdepot.cli.common import answer, examples, json_option, options, print_json, say
from flashdepot.cli.linking import kind_options, library_options, linkable, shell_here
from flashdepot.link.flags import flags as flags_of
from flashdepot.link.library import LinkKind
from flashdepot.link.snippets import cmake_lines, package_version, pkg_config_lines, pkg_config_module, place_of_dll

_options = options(kind_options, library_options, json_option)


@click.command(
    epilog=examples(
        "flashdepot link cmake",
        "flashdepot link cmake --static --library vendor/flashattention",
        'cmake -S . -B build -DCMAKE_PREFIX_PATH="$(flashdepot link cmake --prefix)"',
    )
)
@click.option("--prefix", is_flag=True, help="Print only the folder for CMAKE_PREFIX_PATH.")
@_options
def cmake(*, prefix: bool, kind: str | None, as_json: bool, **which: Any) -> None:
    """Print the lines for a CMakeLists.txt and the command that configures it.

    The package FlashAttention has the targets FlashAttention::shared (the default) and FlashAttention::static. It needs
    CMake 3.18 and no CUDA toolkit.
    """
    library = linkable(**which)
    library.require(chosen := LinkKind(kind or LinkKind.SHARED))
    if as_json:
        print_json(
            {
                **library.to_json(),
                "kind": chosen.value,
                "prefix": str(library.root),
                "package": "FlashAttention",
                "version": package_version(library),
                "target": f"FlashAttention::{chosen}",
            }
        )
        return
    answer(str(library.root) if prefix else cmake_lines(library, chosen, shell_here()))


@click.command(
    name="pkg-config",
    epilog=examples(
        'eval "$(flashdepot link pkg-config)"',
        'PKG_CONFIG_PATH="$(flashdepot link pkg-config --dir)" pkg-config --libs flashattention-static',
        "flashdepot link pkg-config > find.cmd && call find.cmd                  (cmd)",
        '$env:PKG_CONFIG_PATH = "$(flashdepot link pkg-config --dir)"            (PowerShell)',
    ),
)
@click.option("--dir", "folder", is_flag=True, help="Print only the folder for PKG_CONFIG_PATH.")
@_options
def pkg_config(*, folder: bool, kind: str | None, as_json: bool, **which: Any) -> None:
    """Print a shell line that lets pkg-config find the packages flashattention and flashattention-static.

    On Windows the line is for cmd; in PowerShell, use --dir.
    """
    library = linkable(**which)
    library.require(chosen := LinkKind(kind or LinkKind.SHARED))
    if as_json:
        module = pkg_config_module(chosen)
        print_json({**library.to_json(), "kind": chosen.value, "dir": str(library.pkg_config), "package": module})
        return
    answer(str(library.pkg_config) if folder else pkg_config_lines(library, chosen, shell_here()))


@click.command(
    epilog=examples(
        "eval g++ program.cc $(flashdepot link flags --static) -o program",
        "flashdepot link flags --compile --library vendor/flashattention",
        """for /f "delims=" %f in ('flashdepot link flags --static') do cl program.cc %f      (cmd)""",
    )
)
@click.option("--compile", "part", flag_value="compile", help="Print only what the compiler needs.")
@click.option("--link", "part", flag_value="link", help="Print only what the linker needs.")
@_options
def flags(*, part: str | None, kind: str | None, as_json: bool, **which: Any) -> None:
    """Print the arguments for g++ or clang++, or for cl or clang-cl if the library is for Windows.

    They are quoted for a POSIX shell, or for cmd on Windows. Put them after the sources; for cl, at the very end.
    """
    library = linkable(**which)
    library.require(chosen := LinkKind(kind or LinkKind.SHARED))
    found = flags_of(library, chosen)
    if as_json:
        print_json(
            {**library.to_json(), "kind": chosen.value, "compile": list(found.compile), "link": list(found.link)}
        )
        return
    parts = {"compile": found.compile, "link": found.link, None: (*found.compile, *found.link)}
    if not which["quiet"] and part != "compile":
        for line in place_of_dll(library, chosen):
            say(line)
    answer(shell_here().join(parts[part]))
