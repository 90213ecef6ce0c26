"""The options of ``get`` and ``build``: what is wanted, and how to build it when it must be built."""

from __future__ import annotations

import re
from pathlib import Path

import click

from flashdepot.cli.common import options
from flashdepot.errors import UsageError
from flashdepot.resolve.library import Wish
from flashdepot.resolve.project import find_project, read_project

selection_options = options(
    click.option(
        "--upstream",
        metavar="VERSION|DIR|git+URL@REF",
        help="flash-attn version, source folder or git commit.  [default: the newest known version]",
    ),
    click.option(
        "--arch",
        metavar="native|universal|80,90,...",
        help="GPU architectures to serve; 'list' shows them.  [default: native]",
    ),
    click.option("--profile", metavar="full|training|inference|quick", help="Named selection.  [default: full]"),
    click.option("--passes", metavar="fwd,splitkv,bwd", help="Passes, instead of the profile's."),
    click.option("--head-dims", metavar="64,128,...", help="Head dims, instead of the profile's."),
    click.option("--dtypes", metavar="bf16,fp16", help="Element types, instead of the profile's."),
    click.option(
        "--features",
        metavar="a,b|none|all",
        help="Of dropout, alibi, softcap, local, uneven_k; instead of the profile's.",
    ),
    click.option("--cuda", metavar="auto|13.0|DIR", help="Which nvcc builds.  [default: auto]"),
)
"""What a :class:`Wish` is made of."""

out_option = click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Copy the library here; it can be moved."
)
jobs_option = click.option("-j", "--jobs", type=click.IntRange(min=1), help="Compilers at once.  [default: one a core]")
memory_option = click.option(
    "--memory",
    metavar="8GB",
    help="What compilers may use together.  [default: what the machine has, less a reserve]",
)
keep_going_option = click.option("--keep-going", is_flag=True, help="After a failure, compile the other units first.")
front_end_option = click.option(
    "--front-end",
    type=click.Choice(["shared", "native"]),
    default="shared",
    help="One front-end pass for all architectures, or one each, for comparison.  [default: shared]",
)
compress_option = click.option(
    "--compress-mode",
    type=click.Choice(["size", "balance", "speed", "default", "none"]),
    default="size",
    help="How nvcc compresses machine code.  [default: size]",
)

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_memory(text: str) -> int:
    """Bytes of ``8GB``, ``7.5 GiB`` or ``500MB``; :raises UsageError: for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if match is None or match[2] not in _UNITS or float(match[1]) == 0:
        raise UsageError(f"'{text}' is not an amount of memory: expected one such as 8GB or 500MB.")
    return int(float(match[1]) * _UNITS[match[2]])


def with_project(wish: Wish) -> Wish:
    """A wish with its gaps filled from the nearest ``flashdepot.toml``, if there is one."""
    path = find_project(Path.cwd())
    if path is None:
        return wish
    found = read_project(path)
    return wish.or_else(Wish(**{key.replace("-", "_"): value for key, value in found.items()}))
