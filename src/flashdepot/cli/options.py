"""The options of ``get`` and ``build``: what is wanted, and how to build it when it must be built."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from flashdepot.cli import completion as c
from flashdepot.cli.common import into, options
from flashdepot.errors import UsageError
from flashdepot.model.library_request import LibraryRequest
from flashdepot.model.limits import BUILD_VARIABLE, Compiling, Farm, Limits
from flashdepot.model.quantities import parse_size, size
from flashdepot.resolve.project import find_project, read_project, require_trust
from flashdepot.resolve.words import library_request

names_option = click.option(
    "--names",
    metavar="flash-attn-3,flash-attn-4",
    default="",
    help="Also the small wheels that serve programs which import flash_attn_interface or flash_attn.cute.",
)

selection_options = options(
    click.option(
        "--upstream",
        shell_complete=c.one_of(c.upstreams),
        metavar="VERSION|DIR|git+URL@REF",
        help="flash-attn version, source folder or git commit.  [default: the newest known version]",
    ),
    click.option(
        "--arch",
        shell_complete=c.some_of(c.architectures),
        metavar="native|universal|80,90,...",
        help="GPU architectures to serve; 'list' shows them.  [default: native]",
    ),
    click.option(
        "--profile",
        shell_complete=c.one_of(c.profiles),
        metavar="full|training|inference|quick",
        help="Named selection.  [default: full]",
    ),
    click.option(
        "--passes",
        shell_complete=c.some_of(c.passes),
        metavar="fwd,splitkv,bwd",
        help="Passes to include, instead of the profile's.",
    ),
    click.option(
        "--head-dims",
        shell_complete=c.some_of(c.head_dims),
        metavar="64,128,...",
        help="Head dims to include, instead of the profile's.",
    ),
    click.option(
        "--dtypes",
        shell_complete=c.some_of(c.dtypes),
        metavar="bf16,fp16",
        help="Element types to include, instead of the profile's.",
    ),
    click.option(
        "--features",
        shell_complete=c.some_of(c.features),
        metavar="a,b|none|all",
        help="Features to include: dropout, alibi, softcap, local, uneven_k; instead of the profile's.",
    ),
    click.option(
        "--families",
        shell_complete=c.some_of(c.families),
        metavar="fa2|fa4|all",
        help="Families of kernels: FlashAttention-2, FlashAttention-4 (Hopper).  [default: fa2; with full, both]",
    ),
    click.option("--cuda", metavar="auto|13.0|DIR", help="Which nvcc builds.  [default: auto]"),
    click.option(
        "--target",
        "--platform",
        shell_complete=c.one_of(c.targets),
        metavar="linux-x86_64|linux-aarch64|windows-x86_64",
        help="Build for this system, without a compiler or toolkit of this machine.",
    ),
)
"""What a :class:`LibraryRequest` is made of."""

out_option = click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Copy the library into this folder, which can be moved.",
)
jobs_option = click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Number of parallel compilers.  [default: one per core]"
)
farm_option = click.option(
    "--farm",
    metavar="ADDRESS|FILE",
    help="Compile on the workers of this Dask cluster: the scheduler's address (tls://HOST:8786) or its scheduler file; "
    "open+ before it allows a network without encryption.",
)
memory_option = click.option(
    "--memory",
    metavar="8GB",
    help="Memory limit for all compilers together.  [default: what is available, less a reserve]",
)
dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    help="Say what would be fetched and compiled, and how long that takes; do neither.",
)
keep_going_option = click.option(
    "--keep-going", is_flag=True, help="Compile the other units even after one has failed."
)
front_end_option = click.option(
    "--front-end",
    type=click.Choice(["shared", "native"]),
    default="shared",
    help="One front-end pass for all architectures, or one for each (for comparison).  [default: shared]",
)
compress_option = click.option(
    "--compress-mode",
    type=click.Choice(["size", "balance", "speed", "default", "none"]),
    help="How nvcc compresses machine code.  [default: size; with CUDA 12 what its first drivers read]",
)


def with_project(words: Mapping[str, str | None]) -> LibraryRequest:
    """What the options ask, with gaps filled from the nearest ``flashdepot.toml``, if there is one.

    :raises UsageError: for a word that is not known, or a file that asks for more than the user has allowed; on a terminal
        the user is asked first.
    """
    asked = library_request(**words)
    path = find_project(Path.cwd())
    if path is None:
        return asked
    project = read_project(path)
    if objections := project.objections(asked):
        from flashdepot.cli.trust_commands import ask  # noqa: PLC0415  (most project files need no consent)
        from flashdepot.system.consent import users_consents  # noqa: PLC0415

        consents = users_consents()
        if not consents.given(project.path, project.digest):
            ask(project, consents, objections)
        require_trust(project, consents, objections)
    return asked.or_else(project.asked)


def each_target(words: Mapping[str, str | None]) -> list[dict[str, str | None]]:
    """The words once for each of the targets that ``--target`` names with commas between."""
    return [{**words, "target": target or None} for target in (words.get("target") or "").split(",")]


_LEAST_MEMORY = 100 * 10**6
"""Bytes: less is an amount whose unit was left out."""


def _limits(*, jobs: int | None, memory: str | None, farm: str | None, build: str | None, yes: bool) -> Limits:
    """The limits of a build; :raises UsageError: for an amount of memory that is none, or not ours to say."""
    if farm is not None and memory is not None:
        raise UsageError(
            f"--memory {memory} is for this machine, and --farm {farm} names others.",
            hint="Each worker says what its compilers may take: dask worker ADDRESS --resources memory=32e9",
        )
    allowed = parse_size(memory) if memory else None
    if allowed is not None and allowed < _LEAST_MEMORY:
        raise UsageError(
            f"--memory {memory} is {size(allowed)}, and one compiler takes gigabytes.",
            hint="Name the unit too: --memory 8GB",
        )
    said = Compiling.ALWAYS if yes else Compiling(build) if build else None
    return Limits(jobs, allowed, farm=Farm(farm) if farm is not None else None, build=said or _of_project())


def _of_project() -> Compiling | None:
    """What the nearest ``flashdepot.toml`` says of compiling; one that nobody has trusted cannot say "always"."""
    if os.environ.get(BUILD_VARIABLE) or (path := find_project(Path.cwd())) is None:
        return None
    project = read_project(path)
    if project.build is Compiling.ALWAYS:
        from flashdepot.system.consent import users_consents  # noqa: PLC0415  (few project files say so)

        return project.build if users_consents().given(project.path, project.digest) else None
    return project.build


build_options = into(
    "limits",
    _limits,
    jobs_option,
    memory_option,
    farm_option,
    click.option(
        "--build",
        type=click.Choice([member.value for member in Compiling]),
        help="Whether compilers may start: never, after a yes if it takes over two minutes, or always.  [default: "
        f"{BUILD_VARIABLE}, flashdepot.toml, the user's settings, else ask]",
    ),
    click.option("-y", "--yes", is_flag=True, help="Compile without asking, however long it takes: --build always."),
)
"""What a build may use of its machine, and whether it may begin: the argument ``limits``."""
