"""The options that say what is wanted, where it must run, and how to build it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flashdepot.cli.common import host_option, into, load_host, options, python_option
from flashdepot.errors import UsageError
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import BUILD_VARIABLE, Compiling, Farm, Limits, parse_size, size
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.project import find_project, library_request, read_project, require_trust

if TYPE_CHECKING:
    from flashdepot.api.given import Given


Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def one_of(known: Callable[[], Iterable[str]]) -> Complete:
    """Complete a value; ``known`` is called only when somebody presses TAB."""
    return lambda _context, _parameter, begun: [word for word in known() if word.startswith(begun)]


def some_of(known: Callable[[], Iterable[str]]) -> Complete:
    """Complete the last word of a list that is joined by commas, with one that it does not have yet."""

    def complete(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
        before, comma, last = begun.rpartition(",")
        had = before.split(",")
        return [f"{before}{comma}{word}" for word in known() if word.startswith(last) and word not in had]

    return complete


def profiles() -> list[str]:
    """Names of selections."""
    from flashdepot.model.selection import PROFILES  # noqa: PLC0415

    return list(PROFILES)


def passes() -> list[str]:
    """Passes of kernels."""
    from flashdepot.model.selection import Pass  # noqa: PLC0415

    return [member.value for member in Pass]


def dtypes() -> list[str]:
    """Element types of kernels."""
    from flashdepot.model.selection import Dtype  # noqa: PLC0415

    return [member.value for member in Dtype]


def features() -> list[str]:
    """Features of kernels."""
    from flashdepot.model.selection import Feature  # noqa: PLC0415

    return [*(member.value for member in Feature), "none", "all"]


def families() -> list[str]:
    """Families of kernels."""
    from flashdepot.kernels import ALL, FAMILIES  # noqa: PLC0415

    return [*(family.name for family in FAMILIES), ALL]


def head_dims() -> list[str]:
    """Head dims that the default family compiles."""
    from flashdepot.kernels import default_family  # noqa: PLC0415

    return [str(dim) for dim in sorted({unit.head_dim for unit in default_family().full()})]


def upstreams() -> list[str]:
    """Published versions, the newest first."""
    from flashdepot.kernels import default_family  # noqa: PLC0415

    return list(default_family().sources.known_versions())


def architectures() -> list[str]:
    """Compute capabilities that kernels run on, and the words for several."""
    from flashdepot.facts.gpus import known_architectures  # noqa: PLC0415
    from flashdepot.kernels import oldest_gpu  # noqa: PLC0415

    known = (row.architecture for row in known_architectures())
    return ["native", "universal", "list", *(str(one) for one in known if one >= oldest_gpu())]


def targets() -> list[str]:
    """Systems that libraries are built for."""
    from flashdepot.toolchain.targets import TARGETS  # noqa: PLC0415

    return [str(row) for row in TARGETS]


def candle_versions() -> list[str]:
    """The versions of candle-flash-attn that are served."""
    from flashdepot.link.candle_versions import CRATE, known_lines  # noqa: PLC0415

    served = (line for line in known_lines() if line.crate == CRATE and line.is_served)
    return [version for line in served for version in line.versions]


Command = TypeVar("Command", bound=Callable[..., None])

_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "torch": click.option(
        "--torch", metavar="VERSION", help="PyTorch: 2.8.0+cu128, or none.  [default: the environment's]"
    ),
    "torch_cuda": click.option(
        "--torch-cuda",
        metavar="12.8|none",
        help="CUDA that the named PyTorch is built with.  [default: that of PyPI's build]",
    ),
    "cxx11_abi": click.option(
        "--cxx11abi/--no-cxx11abi", "cxx11_abi", default=None, help="C++ ABI of the PyTorch build, new or old."
    ),
    "python_tag": click.option(
        "--python-tag", metavar="3.12|cp312", help="Python version or tag; 3.13t is free-threaded."
    ),
    "platform": click.option("--platform", metavar="linux-x86_64", help="Platform, or a wheel's platform tag."),
    "glibc": click.option("--glibc", metavar="2.31", help="Version of the GNU C library."),
    "gpu": click.option("--gpu", metavar="9.0", multiple=True, help="Compute capability (repeatable)."),
    "driver": click.option("--driver", metavar="570.1", help="Version of NVIDIA's driver."),
}
"""One for each field of :class:`NamedFacts`."""


def _given(
    *,
    torch: str | None = None,
    torch_cuda: str | None = None,
    cxx11_abi: bool | None = None,
    python_tag: str | None = None,
    platform: str | None = None,
    glibc: str | None = None,
    gpu: tuple[str, ...] = (),
    driver: str | None = None,
    python: str | None = None,
    host_file: Path | None = None,
) -> Given:
    from flashdepot.api.given import Given  # noqa: PLC0415  (a depot hit needs neither)
    from flashdepot.resolve.facts import NamedFacts  # noqa: PLC0415

    named = NamedFacts(torch, torch_cuda, cxx11_abi, python_tag, platform, glibc, gpu, driver)
    return Given(named, host_file, python)


environment_options = into("given", _given, *_OPTIONS.values(), python_option, host_option)
"""For what depends on a Python environment: the argument ``given``, a :class:`Given`."""

_MACHINE = ("glibc", "gpu", "driver")


def _host(*, glibc: str | None, gpu: tuple[str, ...], driver: str | None, host_file: Path | None) -> HostRecord | None:
    if (glibc, gpu, driver) == (None, (), None):
        return load_host(host_file)
    return _given(glibc=glibc, gpu=gpu, driver=driver, host_file=host_file).machine


machine_options = into("host", _host, *(_OPTIONS[name] for name in _MACHINE), host_option)
"""For what depends on a machine and not on its Python: the argument ``host``, ``None`` for this machine as it is."""


names_option = click.option(
    "--names",
    metavar="flash-attn-3,flash-attn-4",
    default="",
    help="Also the small wheels that serve programs which import flash_attn_interface or flash_attn.cute.",
)

selection_options = options(
    click.option(
        "--upstream",
        shell_complete=one_of(upstreams),
        metavar="VERSION|DIR|git+URL@REF",
        help="flash-attn version, source folder or git commit.  [default: the newest known version]",
    ),
    click.option(
        "--arch",
        shell_complete=some_of(architectures),
        metavar="native|universal|80,90,...",
        help="GPU architectures to serve; 'list' shows them.  [default: native]",
    ),
    click.option(
        "--profile",
        shell_complete=one_of(profiles),
        metavar="full|training|inference|quick",
        help="Named selection.  [default: full]",
    ),
    click.option(
        "--passes",
        shell_complete=some_of(passes),
        metavar="fwd,splitkv,bwd",
        help="Passes to include, instead of the profile's.",
    ),
    click.option(
        "--head-dims",
        shell_complete=some_of(head_dims),
        metavar="64,128,...",
        help="Head dims to include, instead of the profile's.",
    ),
    click.option(
        "--dtypes",
        shell_complete=some_of(dtypes),
        metavar="bf16,fp16",
        help="Element types to include, instead of the profile's.",
    ),
    click.option(
        "--features",
        shell_complete=some_of(features),
        metavar="a,b|none|all",
        help="Features to include: dropout, alibi, softcap, local, uneven_k; instead of the profile's.",
    ),
    click.option(
        "--families",
        shell_complete=some_of(families),
        metavar="fa2|fa4|all",
        help="Families of kernels: FlashAttention-2, FlashAttention-4 (Hopper).  [default: fa2; with full, both]",
    ),
    click.option("--cuda", metavar="auto|13.0|DIR", help="Which nvcc builds.  [default: auto]"),
    click.option(
        "--target",
        "--platform",
        shell_complete=one_of(targets),
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
        from flashdepot.files.trust import users_consents  # noqa: PLC0415

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
        from flashdepot.files.trust import users_consents  # noqa: PLC0415  (few project files say so)

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
