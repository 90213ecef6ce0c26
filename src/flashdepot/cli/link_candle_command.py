"""``flashdepot link candle``."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from flashdepot.cli.common import answer, examples, json_option, options, print_json, say
from flashdepot.cli.completion import candle_versions, one_of
from flashdepot.cli.linking import library_options, linkable
from flashdepot.errors import MissingToolError
from flashdepot.link import candle_advice as advice
from flashdepot.link.candle_crate import write_candle_crate
from flashdepot.link.candle_folder import prepare_folder
from flashdepot.link.candle_sources import CRATE, default_cargo_home, find_crate, require_crate
from flashdepot.link.candle_versions import CandleLine, Delivery, line_of, line_of_folder
from flashdepot.link.library import LinkableLibrary


@click.command(
    epilog=examples(
        'eval "$(flashdepot link candle --candle-version 0.9.1 --build-dir prebuilt)" && cargo build --release',
        "flashdepot link candle --candle-version 0.9.1 --build-dir prebuilt --profile inference --arch 80,90 --get",
        "flashdepot link candle --candle-version 0.11.0 --build-dir vendor/candle-flash-attn >> Cargo.toml",
    )
)
@click.option(
    "--candle-version",
    "version",
    shell_complete=one_of(candle_versions),
    metavar="X",
    required=True,
    help="Version of candle-flash-attn.",
)
@click.option(
    "--build-dir",
    "folder",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for the archive; from candle 0.9.2 on, for the crate that links it.",
)
@click.option(
    "--crate",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Sources of candle-flash-attn.  [default: where Cargo unpacked that version]",
)
@options(library_options, json_option)
def candle(version: str, folder: Path, crate: Path | None, *, as_json: bool, **which: Any) -> None:
    """Give candle-flash-attn prebuilt kernels: an archive with run_mha as that version calls it.

    Up to candle 0.9.1, the archive goes where candle's build script looks, newer than every source, and the variables
    to set are printed. From 0.9.2 on, a crate for [patch.crates-io] is written: candle's own Rust code, copied from Cargo's
    folder, with a build script that only links. The lines for Cargo.toml are printed.
    """
    sources = require_crate(crate, version) if crate is not None else find_crate(version, default_cargo_home())
    line = line_of(version) if sources is None else line_of_folder(sources, version)
    if line.deliveries[0] is Delivery.FOLDER:
        given = _give_folder(linkable(**which), line, version, folder, sources)
    elif sources is not None:
        given = _give_crate(linkable(**which), line, folder, sources)
    else:
        raise MissingToolError(
            f"The sources of {CRATE} {version} are not on this machine: Cargo has not fetched them to "
            f"{default_cargo_home() / 'registry'}.",
            hint="Run 'cargo fetch' in a project that depends on it, or name their folder with --crate.",
        )
    if as_json:
        known = {"candle": version, "arguments": line.arguments, "delivery": line.deliveries[0].value}
        print_json({**known, "crate": str(sources) if sources else None, **given.document, "notes": given.notes})
        return
    if not which["quiet"]:
        for note in given.notes:
            say(note)
    answer(given.text)


@dataclass(frozen=True)
class _Given:
    """What was made: fields of the JSON document, lines to paste, and what must be known besides."""

    document: dict[str, Any]
    text: str
    notes: list[str]


def _give_folder(
    library: LinkableLibrary, line: CandleLine, version: str, folder: Path, sources: Path | None
) -> _Given:
    made = prepare_folder(library, line.arguments, folder, sources)
    variables = advice.environment(library.manifest, made.root)
    files = [str(path) for path in made.archives]
    return _Given(
        {**library.to_json(), "built": str(made.root), "files": files, "environment": variables},
        advice.shell_lines(variables, library.manifest.platform.system),
        [
            advice.missing_kernels(library.manifest, line.arguments),
            *advice.streams(line.arguments),
            *advice.folder_notes(sources, shutil.which("nvcc"), version),
        ],
    )


def _give_crate(library: LinkableLibrary, line: CandleLine, folder: Path, sources: Path) -> _Given:
    root = write_candle_crate(library, line.arguments, sources, folder)
    lines = advice.patch_lines(root)
    return _Given(
        {**library.to_json(), "built": str(root), "patch": lines},
        lines,
        [advice.missing_kernels(library.manifest, line.arguments), *advice.streams(line.arguments)],
    )
