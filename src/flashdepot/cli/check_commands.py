"""``flashdepot check``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flashdepot.cli.common import (
    answer,
    examples,
    host_option,
    json_option,
    load_host,
    options,
    print_json,
    verbose_option,
    warn,
)
from flashdepot.doctor.check import Outcome, Report, check_file
from flashdepot.doctor.check.place import Place
from flashdepot.doctor.check.torch_side import TabledTorch, read_installed_torch
from flashdepot.facts.gpus import parse_architectures
from flashdepot.host import runtime_facts
from flashdepot.host.python_environment import look_for_python


@click.command(
    epilog=examples(
        "flashdepot check flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl --python .venv/bin/python",
        "flashdepot check vllm_flash_attn_2_cuda.abi3.so --torch 2.8+cu128 --gpu 9.0",
        "flashdepot check prebuilt/lib/static/libflashattention.a --host node.json",
    )
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@options(
    click.option(
        "--python",
        metavar="PY",
        help="Compare with this Python and the torch it has.  [default: the active one, or the nearest .venv]",
    ),
    click.option("--torch", metavar="VERSION", help="Compare with a torch version, by a table: 2.8, 2.6+cu126."),
    click.option("--gpu", metavar="9.0,...", help="Compare with these GPUs.  [default: the host's]"),
    host_option,
    json_option,
    verbose_option,
)
@click.pass_context
def check(
    context: click.Context,
    files: tuple[Path, ...],
    python: str | None,
    torch: str | None,
    gpu: str | None,
    host_file: Path | None,
    *,
    as_json: bool,
    verbose: bool,
) -> None:
    """Prove that wheels and libraries fit, before anybody imports them.

    Reads the files' bytes alone: GPU architectures, torch symbols and C++ ABI, C and C++ library versions, needed
    libraries, tags, digests. Nothing is loaded and no GPU is needed.

    Exit status: 0 fits, 3 cannot tell, 4 does not fit, 6 damaged; of several files the worst.
    """
    place = describe_place(python, torch, gpu, host_file)
    reports = [check_file(path, place) for path in files]
    if as_json:
        print_json({"status": _worst(reports).value, "files": [report.to_json() for report in reports]})
    else:
        answer("\n\n".join(describe(report, verbose=verbose) for report in reports))
    sys.stdout.flush()
    context.exit(_worst(reports).exit_code)


def describe_place(python: str | None, torch: str | None, gpu: str | None, host_file: Path | None) -> Place:
    """What the options name, and what is here where they name nothing.

    :raises UsageError: for a value that cannot be understood.
    """
    host = load_host(host_file) if host_file is not None else runtime_facts()
    found, reason = look_for_python(python) if python is not None or host_file is None else (None, "")
    if reason:
        warn(reason)
    installed = found.torch if found is not None else None
    return Place(
        host=host,
        gpus=parse_architectures(gpu) if gpu is not None else tuple(sorted({g.architecture for g in host.gpus})),
        python=found,
        torch=TabledTorch.parse(torch, host.platform.machine)
        if torch is not None
        else read_installed_torch(installed)
        if installed is not None
        else None,
        is_here=host_file is None,
    )


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
