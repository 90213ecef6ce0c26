"""``flashdepot check``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flashdepot import api
from flashdepot.api.given import Given
from flashdepot.cli.common import (
    answer,
    examples,
    json_option,
    options,
    print_json,
    verbose_option,
)
from flashdepot.cli.environment import environment_options
from flashdepot.cli.terminal import Terminal
from flashdepot.doctor.check import Outcome, Report


@click.command(
    epilog=examples(
        "flashdepot check flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl --python .venv/bin/python",
        "flashdepot check vllm_flash_attn_2_cuda.abi3.so --torch 2.8+cu128 --gpu 9.0",
        "flashdepot check prebuilt --host node.json    # a library's folder: both libraries in it",
    )
)
@click.argument("files", metavar="FILE|DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options(
    environment_options,
    json_option,
    verbose_option,
)
@click.pass_context
def check(
    context: click.Context,
    files: tuple[Path, ...],
    given: Given,
    *,
    as_json: bool,
    verbose: bool,
) -> None:
    """Check whether wheels and libraries fit, before you import them.

    Reads only the files' bytes: GPU architectures, torch symbols and C++ ABI, C and C++ library versions, needed
    libraries, tags, digests. Nothing is loaded and no GPU is needed. DIR is what 'flashdepot get' wrote.

    Exit status: 0 fits, 3 cannot tell, 4 does not fit, 6 damaged; the worst of several files.
    """
    reports = api.check(files, python=given.python, named=given.named, host=given.saved, events=Terminal())
    if as_json:
        print_json({"status": _worst(reports).value, "files": [report.to_json() for report in reports]})
    else:
        answer("\n\n".join(describe(report, verbose=verbose) for report in reports))
    sys.stdout.flush()
    context.exit(_worst(reports).exit_code)


def describe(report: Report, *, verbose: bool) -> str:
    """The verdict in one line, then the evidence, worst first; what fits is summed up unless more is asked for."""
    lines = [f"{report.path}: {report.verdict.value}"]
    for line in report.evidence:
        where = f" [{line.where}]" if line.where and line.where != Path(report.path).name else ""
        has = f" | {line.has}" if line.has else ""
        if verbose or line.outcome is not Outcome.FITS or line.topic in {"architectures", "torch symbols"}:
            lines.append(f"  {line.outcome.value:<12} {line.topic}: {line.seen}{has}{where}")
            if line.fix:
                lines.append(f"{'':15}{line.fix}")
    quiet = len({line.topic for line in report.evidence if line.outcome is Outcome.FITS})
    if not verbose and quiet:
        lines.append(f"  {quiet} topics fit; -v shows every line")
    return "\n".join(lines)


def _worst(reports: list[Report]) -> Outcome:
    return max((report.verdict for report in reports), key=lambda outcome: outcome.rank)
