"""``flashdepot link cargo``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flashdepot.cli.common import answer, examples, json_option, options, print_json, say
from flashdepot.cli.linking import library_options, linkable
from flashdepot.link.cargo_crate import CRATE, write_crate


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
    shared one.
    """
    library = linkable(**which)
    written = write_crate(library, folder)
    if as_json:
        print_json({**library.to_json(), "path": str(written), "library": str(written / "library"), "crate": CRATE})
        return
    if not which["quiet"]:
        say(f'In Cargo.toml: {CRATE} = {{ path = "{folder.as_posix()}" }}')
    answer(str(written))
