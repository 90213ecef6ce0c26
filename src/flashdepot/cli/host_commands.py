"""``flashdepot host``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flashdepot.cli.common import examples, json_option, print_json, quiet_option, say, size
from flashdepot.host import probe
from flashdepot.model.host import HostRecord
from flashdepot.system.files import disk_errors, write_atomic


@click.command(epilog=examples("flashdepot host", "flashdepot host --save node.json"))
@click.option(
    "--save", metavar="FILE", type=click.Path(path_type=Path), help="Write the record to this file, for --host FILE."
)
@json_option
@quiet_option
def host(save: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Show what was found on this machine: GPUs, driver, CUDA toolkits, C++ compilers, memory.

    Looking changes nothing, and no GPU is needed.
    """
    record = probe()
    if save is not None:
        with disk_errors(save.parent):
            write_atomic(save, json.dumps(record.to_json(), indent=2).encode() + b"\n")
        if not quiet:
            say(f"Saved to {save}.")
    if as_json:
        print_json(record.to_json())
    elif save is None:
        click.echo(describe(record))


def describe(record: HostRecord) -> str:
    """The record as a short page."""
    libc = f", GNU libc {record.libc}" if record.libc else ""
    rows = [
        ("system", f"{record.os_name}, {record.platform}{libc}"),
        ("cores", str(record.cores)),
        ("memory", f"{size(record.memory)} usable"),
        ("driver", str(record.driver) if record.driver else "no NVIDIA driver"),
    ]
    rows += [("GPU", f"{g.name}, compute capability {g.architecture.dotted}, {size(g.memory)}") for g in record.gpus]
    if not record.gpus:
        rows.append(("GPU", "none"))
    rows += [("CUDA", f"nvcc {t.version} in {t.root}, found by {t.found_by}") for t in record.toolkits]
    if not record.toolkits:
        rows.append(("CUDA", "no toolkit; flashdepot provides nvcc when it has to compile"))
    rows += [("compiler", f"{c.kind} {c.version} ({c.path})") for c in record.compilers]
    if not record.compilers:
        rows.append(("compiler", "no C++ compiler; one is needed to build, not to use a library"))
    return "\n".join(f"{name:<9} {value}" for name, value in rows)
