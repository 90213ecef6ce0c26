"""``flashdepot link``: what another build system needs to use a library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from flashdepot.api import libraries as api
from flashdepot.api.acquire import LibraryPlan
from flashdepot.cli import options as o
from flashdepot.cli.app import LazyCommands, Table
from flashdepot.cli.common import (
    answer,
    depot_option,
    examples,
    json_option,
    named_depot,
    open_depot,
    options,
    print_json,
    quiet_option,
    say,
)
from flashdepot.cli.library_commands import show_plan as tell_plan
from flashdepot.cli.options import machine_options
from flashdepot.cli.terminal import Terminal
from flashdepot.errors import IncompatibleError
from flashdepot.link.cargo_crate import CRATE, write_crate
from flashdepot.link.library import LinkableLibrary, LinkKind
from flashdepot.link.lines import Shell, cmake_lines, package_version, pkg_config_lines, pkg_config_module, place_of_dll
from flashdepot.link.lines import flags as flags_of
from flashdepot.model.diagnosis import Command
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import Limits
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.project import library_request

if TYPE_CHECKING:
    from flashdepot.toolchain.zig import Zig


_ANY = LibraryRequest()

library_options = options(
    click.option(
        "--library",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="A folder that 'get' or 'vendor' wrote; --target chooses among several.  [default: the library that 'get' takes "
        "from the depot]",
    ),
    click.option(
        "--get", "may_build", is_flag=True, help="If the depot has no library that fits, build one as 'get' does."
    ),
    o.build_options,
    o.dry_run_option,
    o.selection_options,
    machine_options,
    depot_option,
    quiet_option,
)
"""Either a folder, or what ``get`` takes. Their values are the arguments of :func:`linkable`."""


kind_options = options(
    click.option("--shared", "kind", flag_value=LinkKind.SHARED.value, help="Link the shared library."),
    click.option("--static", "kind", flag_value=LinkKind.STATIC.value, help="Link the static library."),
)
"""The argument ``kind``; ``None`` where nothing was said."""


def shell_here() -> Shell:
    """The shell that lines are printed for: what runs them is this machine, whatever the library is for."""
    return Shell.of("windows" if sys.platform == "win32" else "linux")


def linkable(
    *,
    library: Path | None,
    may_build: bool,
    limits: Limits,
    dry_run: bool,
    host: HostRecord | None,
    depot: Path | None,
    quiet: bool,
    otherwise: LibraryRequest = _ANY,
    **words: str | None,
) -> LinkableLibrary:
    """The library that the options name, or the one that ``get`` takes for them. Nothing is built unless asked for.

    :param otherwise: what the program calls, where the options name no selection.

    :raises UsageError: for a folder that holds no library, or options that contradict each other.
    :raises IncompatibleError: when the depot has none that serves; the hint is the command that makes one.
    """
    events = Terminal(quiet=quiet, may_ask=True)
    if library is not None:
        named = api.link(library_request(**words), library=library, host=host, events=events)
        return _tell(LibraryPlan(stored=named.manifest)) if dry_run else named
    opened, request = open_depot(depot), o.with_project(words)
    if dry_run and may_build:
        asked = request if request.names_selection else request.or_else(otherwise)
        _tell(api.plan_library(asked, host=host, depot=opened, limits=limits, events=events))
    try:
        found = api.link(
            request,
            may_build=may_build,
            otherwise=otherwise,
            host=host,
            depot=opened,
            limits=limits,
            events=events,
        )
    except IncompatibleError as error:
        make = get_command(library_request(**words))
        hint = error.hint or f"Make it first: {make}   (or add --get to this command)"
        raise IncompatibleError(error.message, hint=hint) from None
    if dry_run:
        _tell(LibraryPlan(stored=found.manifest))
    return found


def _tell(plan: LibraryPlan) -> NoReturn:
    """The answer of ``--dry-run``, which ends the command."""
    context = click.get_current_context()
    tell_plan(plan, as_json=context.params["as_json"])
    context.exit()


def zig_source(depot: Path | None, *, quiet: bool) -> Callable[[], Zig]:
    """Gives the zig in the depot, which is fetched first where it is not there."""
    return lambda: api.zig(depot=open_depot(depot), events=Terminal(quiet=quiet))


def get_command(request: LibraryRequest) -> Command:
    """The ``get`` of the same words, machine and depot."""
    params = click.get_current_context().params
    named = {name: params[name] for name in ("glibc", "gpu", "driver")}
    return Command("get", {**request.words(), **named, "host": params["host_file"], "depot": named_depot()})


COMMANDS: Table = {
    "cmake": ("link_commands", "The lines of a CMakeLists.txt."),
    "pkg-config": ("link_commands", "Where pkg-config finds it."),
    "cargo": ("link_commands", "A -sys crate with the library in it."),
    "candle": ("link_candle", "An archive with candle's run_mha, where its build script takes it."),
    "wheel": ("link_wheel", "A published wheel as a C++ library, for programs with torch tensors."),
    "flags": ("link_commands", "Arguments for g++ and clang++."),
}


@click.group(cls=LazyCommands, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def link() -> None:
    """Print what a build needs to link a library: CMake, pkg-config, cargo, or plain flags."""


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


@click.command(
    epilog=examples(
        "flashdepot link cargo flashattention-sys",
        "flashdepot link cargo third_party/flashattention-sys --profile inference --arch 80,90",
        "flashdepot link cargo flashattention-sys --library vendor/flashattention",
    )
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@options(library_options, json_option)
def cargo(folder: Path, *, as_json: bool, **which: Any) -> None:
    """Write the crate flashattention-sys: bindings of the C ABI, the library itself, its manifest and licences.

    It has no dependencies and builds offline. It links the static library; the crate's README says how to link the
    shared one. For another platform, run it again with --target: the crate holds a library a platform.
    """
    library = linkable(**which)
    written = write_crate(library, folder)
    if as_json:
        inside = written / "library" / str(library.manifest.platform)
        print_json({**library.to_json(), "path": str(written), "library": str(inside), "crate": CRATE})
        return
    if not which["quiet"]:
        say(f'In Cargo.toml: {CRATE} = {{ path = "{folder.as_posix()}" }}')
    answer(str(written))
