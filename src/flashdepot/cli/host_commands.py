"""``flashdepot host`` and ``flashdepot doctor``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashdepot import api
from flashdepot.api.given import Given
from flashdepot.cli.common import (
    answer,
    depot_option,
    examples,
    json_option,
    open_depot,
    print_json,
    python_option,
    quiet_option,
    say,
)
from flashdepot.cli.environment import environment_options
from flashdepot.cli.host_page import describe
from flashdepot.host import probe
from flashdepot.resolve.words import library_request
from flashdepot.system.files import disk_errors, write_named

if TYPE_CHECKING:
    from flashdepot.doctor import Finding

_INTENTIONS = ("install", "build", "link", "run")


@click.command(
    epilog=examples("flashdepot host", "flashdepot host --python .venv --json", "flashdepot host --save node.json")
)
@click.option(
    "--save", metavar="FILE", type=click.Path(path_type=Path), help="Write the record to this file, for --host FILE."
)
@python_option
@depot_option
@json_option
@quiet_option
def host(save: Path | None, python: str | None, depot: Path | None, *, as_json: bool, quiet: bool) -> None:
    """Show what this machine has: GPUs, driver, CUDA toolkits, compilers, memory, disks, Python and PyTorch.

    Nothing is changed, and no GPU is needed. PyTorch is read from its files and not imported.
    """
    record = probe(python, open_depot(depot).root)
    if save is not None:
        with disk_errors(save.parent):
            write_named(save, json.dumps(record.to_json(), indent=2).encode() + b"\n")
        if not quiet:
            say(f"Saved to {save}.")
    if as_json:
        print_json(record.to_json())
    elif save is None:
        answer(describe(record))


@click.command(
    epilog=examples(
        "flashdepot doctor",
        "flashdepot doctor install --python .venv",
        "flashdepot doctor build --arch 90,120",
        "flashdepot doctor run --host node.json",
    )
)
@click.argument("intention", type=click.Choice(_INTENTIONS), default="build")
@click.option("--arch", metavar="native|universal|80,90,...", help="GPU architectures to check for.  [default: native]")
@environment_options
@depot_option
@json_option
@quiet_option
def doctor(
    intention: str,
    arch: str | None,
    given: Given,
    depot: Path | None,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Find what prevents an INTENTION: install, build (the default), link or run. The worst comes first.

    Each finding says what was seen, why it matters and how to fix it. Exit code 0: it can work. 3: something is
    missing on the machine. 4: its hardware, driver or system cannot do it.
    """
    from flashdepot.doctor import Intention, verdict  # noqa: PLC0415  ('host' needs none of it)

    record = given.record(open_depot(depot).root)
    findings = api.doctor(Intention(intention), library_request(arch=arch), host=record)
    code = verdict(findings)
    if as_json:
        print_json({"intention": intention, "exit_code": code, "findings": [f.to_json() for f in findings]})
    elif not quiet or code:
        answer(_page(intention, findings, code))
    click.get_current_context().exit(code)


def _page(intention: str, findings: Sequence[Finding], code: int) -> str:
    """The findings, three lines each, and a last line with the verdict."""
    lines = []
    for finding in findings:
        lines += [f"{finding.severity}: {finding.seen}", f"  {finding.why}"]
        lines += [f"  -> {finding.mend}"] if finding.mend else []
    blockers = sum(1 for f in findings if f.severity == "blocker")
    lines.append(
        f"'{intention}' can work here." if code == 0 else f"'{intention}' cannot work here: {blockers} in the way."
    )
    return "\n".join(lines)
