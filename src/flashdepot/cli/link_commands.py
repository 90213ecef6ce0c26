"""``flashdepot link``: what another build system needs to use a library."""

from __future__ import annotations

import click

from flashdepot.cli.lazy import LazyCommands, Table

COMMANDS: Table = {
    "cmake": ("link_build_commands", "The lines of a CMakeLists.txt."),
    "pkg-config": ("link_build_commands", "Where pkg-config finds it."),
    "cargo": ("link_cargo_command", "A -sys crate with the library in it."),
    "candle": ("link_candle_command", "An archive with candle's run_mha, where its build script takes it."),
    "wheel": ("link_wheel_command", "A published wheel as a C++ library, for programs with torch tensors."),
    "flags": ("link_build_commands", "Arguments for g++ and clang++."),
}


@click.group(cls=LazyCommands, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def link() -> None:
    """Print what a build needs to link a library: CMake, pkg-config, cargo, or plain flags."""
