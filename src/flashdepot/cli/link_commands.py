"""``flashdepot link``: what another build system needs to use a library."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from flashdepot.api import libraries as api
from flashdepot.api.acquire import ANY, LibraryPlan
from flashdepot.cli.app import Commands, table_of
from flashdepot.cli.common import command, flag, into, option, options, path_option
from flashdepot.cli.library_commands import plan_view
from flashdepot.cli.options import Asked, library_options, named_machine
from flashdepot.cli.output import View, show, warn
from flashdepot.errors import IncompatibleError
from flashdepot.files.user_files import require_folder
from flashdepot.link.library import (
    CRATE,
    LinkableLibrary,
    LinkKind,
    cmake_lines,
    link_arguments,
    package_version,
    pkg_config_lines,
    pkg_config_module,
    place_of_dll,
    unusable_path,
    write_crate,
)
from flashdepot.model.diagnosis import Command
from flashdepot.model.limits import joined
from flashdepot.model.request import LibraryRequest


class Which(msgspec.Struct, frozen=True):
    """Which library is meant."""

    library: Path | None
    may_build: bool
    asked: Asked

    def linkable(self, otherwise: LibraryRequest = ANY) -> LinkableLibrary:
        """The library that the options name, or the one that ``get`` takes for them; nothing is built unless asked for.

        :param otherwise: what the program calls, where the options name no selection.
        """
        asked = self.asked
        if self.library is not None:
            named = api.link(asked.wanted.named, library=self.library, **asked.how)
            return _foretold(LibraryPlan(stored=named.manifest)) if asked.dry_run else named
        request = asked.wanted.request
        if asked.dry_run and self.may_build:
            _foretold(api.plan_library(request if request.names_selection else request.or_else(otherwise), **asked.how))
        try:
            found = api.link(request, may_build=self.may_build, otherwise=otherwise, **asked.how)
        except IncompatibleError as error:
            make = Command("get", {**asked.wanted.named.words(), **named_machine()})
            hint = error.hint or f"Make it first: {make}   (or add --get to this command)"
            raise IncompatibleError(error.message, hint=hint) from None
        return _foretold(LibraryPlan(stored=found.manifest)) if asked.dry_run else found


link_options = into(
    "which",
    Which,
    path_option(
        "--library DIR  A folder that 'get' or 'vendor' wrote; --target chooses among several.  [default: the "
        "library that 'get' takes from the depot]"
    ),
    flag("--get  If the depot has no library that fits, build one as 'get' does.", to="may_build"),
    library_options,
)
"""Either a folder, or what ``get`` takes: the argument ``which``, a :class:`Which`."""


def _foretold(plan: LibraryPlan) -> NoReturn:
    """The answer of ``--dry-run``, which ends the command."""
    show(plan_view(plan))
    click.get_current_context().exit()


COMMANDS = table_of(link_commands="cmake pkg-config cargo flags", link_candle="candle", link_wheel="wheel")


@click.group(cls=Commands, sections={"Commands": COMMANDS})
def link() -> None:
    """Print what a build needs to link a library: CMake, pkg-config, cargo, or plain flags."""


_options = options(
    option("--shared  Link the shared library.", to="kind", flag_value=LinkKind.SHARED.value),
    option("--static  Link the static library.", to="kind", flag_value=LinkKind.STATIC.value),
    link_options,
)


def _chosen(kind: str | None, which: Which, by: str) -> tuple[LinkableLibrary, LinkKind, dict[str, Any]]:
    library, chosen = which.linkable(), LinkKind(kind or LinkKind.SHARED)
    library.require(chosen)
    if unusable := unusable_path(library, chosen, by):
        warn(unusable)
    return library, chosen, {**library.to_json(), "kind": chosen.value}


@command(
    "flashdepot link cmake",
    "flashdepot link cmake --static --library vendor/flashattention",
    'cmake -S . -B build -DCMAKE_PREFIX_PATH="$(flashdepot link cmake --prefix)"',
)
@flag("--prefix  Print only the folder for CMAKE_PREFIX_PATH.")
@_options
def cmake(which: Which, kind: str | None, *, prefix: bool) -> View:
    """Print the lines for a CMakeLists.txt and the command that configures it.

    The package FlashAttention has the targets FlashAttention::shared (the default) and FlashAttention::static. It needs
    CMake 3.18 and no CUDA toolkit.
    """
    library, chosen, document = _chosen(kind, which, "CMake")
    document |= {
        "prefix": str(library.root),
        "package": "FlashAttention",
        "version": package_version(library),
        "target": f"FlashAttention::{chosen}",
    }
    return View(document, [str(library.root) if prefix else cmake_lines(library, chosen)])


@command(
    'eval "$(flashdepot link pkg-config)"',
    'PKG_CONFIG_PATH="$(flashdepot link pkg-config --dir)" pkg-config --libs flashattention-static',
    "flashdepot link pkg-config > find.cmd && call find.cmd                  (cmd)",
    '$env:PKG_CONFIG_PATH = "$(flashdepot link pkg-config --dir)"            (PowerShell)',
    name="pkg-config",
)
@flag("--dir  Print only the folder for PKG_CONFIG_PATH.", to="folder")
@_options
def pkg_config(which: Which, kind: str | None, *, folder: bool) -> View:
    """Print a shell line that lets pkg-config find the packages flashattention and flashattention-static.

    On Windows the line is for cmd; in PowerShell, use --dir.
    """
    library, chosen, document = _chosen(kind, which, "pkg-config")
    document |= {"dir": str(library.pkg_config), "package": pkg_config_module(chosen)}
    return View(document, [str(library.pkg_config) if folder else pkg_config_lines(library, chosen)])


@command(
    "eval g++ program.cc $(flashdepot link flags --static) -o program",
    "flashdepot link flags --compile --library vendor/flashattention",
    """for /f "delims=" %f in ('flashdepot link flags --static') do cl program.cc %f      (cmd)""",
)
@option("--compile  Print only what the compiler needs.", to="part", flag_value="compile")
@option("--link  Print only what the linker needs.", to="part", flag_value="link")
@_options
def flags(which: Which, kind: str | None, part: str | None) -> View:
    """Print the arguments for g++ or clang++, or for cl or clang-cl if the library is for Windows.

    They are quoted for a POSIX shell, or for cmd on Windows. Put them after the sources; for cl, at the very end.
    """
    library, chosen, document = _chosen(kind, which, "a linker")
    found = link_arguments(library, chosen)
    document |= {"compile": list(found.compile), "link": list(found.link)}
    parts = {"compile": found.compile, "link": found.link, None: (*found.compile, *found.link)}
    said = place_of_dll(library, chosen) if part != "compile" else ()
    return View(document, [joined(parts[part])], said)


@command(
    "flashdepot link cargo flashattention-sys",
    "flashdepot link cargo third_party/flashattention-sys --profile inference --arch 80,90",
    "flashdepot link cargo flashattention-sys --library vendor/flashattention",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@link_options
def cargo(folder: Path, which: Which) -> View:
    """Write the crate flashattention-sys: bindings of the C ABI, the library itself, its manifest and licences.

    It has no dependencies and builds offline. It links the static library; the crate's README says how to link the
    shared one. For another platform, run it again with --target: the crate holds one library for each platform.
    """
    require_folder(folder, "flashdepot link cargo DIR")
    library = which.linkable()
    written = write_crate(library, folder)
    inside = written / "library" / str(library.manifest.platform)
    document = {**library.to_json(), "path": str(written), "library": str(inside), "crate": CRATE}
    return View(document, [str(written)], [f'In Cargo.toml: {CRATE} = {{ path = "{folder.as_posix()}" }}'])
