"""``flashdepot get``, ``flashdepot build`` and ``flashdepot wheel``."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from flashdepot import api
from flashdepot.api.acquire import LibraryPlan
from flashdepot.api.libraries import plan_library
from flashdepot.cli.common import command, flag, option, options, path_option
from flashdepot.cli.options import Asked, library_options, names_option
from flashdepot.cli.output import View, answer, fields, say, wants_json
from flashdepot.kernels import oldest_gpu, tested_families
from flashdepot.model.limits import counted, duration, size
from flashdepot.model.manifest import MANIFEST_NAME
from flashdepot.model.selection import DEFAULT_FAMILY
from flashdepot.model.target import spell
from flashdepot.resolve.library import LibraryResult

if TYPE_CHECKING:
    from flashdepot.wheel.builder import Wheel

_out_option = path_option("--out DIR  Copy the library into this folder, which can be moved.")


@command(
    "flashdepot get --profile quick",
    "flashdepot get --profile inference --arch 80,90 --out vendor/flashattention",
    "flashdepot get --upstream 2.7.4.post1 --passes fwd,bwd --head-dims 64,128 --dtypes bf16",
)
@_out_option
@library_options
def get(out: Path | None, asked: Asked) -> View:
    """Get a library from the depot or a remote, or build it once from the published source.

    Prints the library's folder. Defaults come from the nearest flashdepot.toml in this folder or above it.
    """
    return _answered(asked, functools.partial(api.get, out=out), asked.how)


@command(
    "flashdepot build --profile full --arch universal",
    "flashdepot build --upstream ~/flash-attention --profile quick --keep-going",
)
@options(
    _out_option,
    flag("--keep-going  Compile the other units even after one has failed."),
    option(
        "--compress-mode  How nvcc compresses machine code.  [default: size; with CUDA 12 what its first drivers read]",
        type=click.Choice(["size", "balance", "speed", "default", "none"]),
    ),
)
@library_options
def build(out: Path | None, compress_mode: str | None, asked: Asked, *, keep_going: bool) -> View:
    """Build a library with this machine's toolchain, whatever else the depot has.

    Units that were compiled before are reused, and a build that was stopped resumes.
    """
    from flashdepot.build.library import Options  # noqa: PLC0415  (a hit of 'get' needs none of it)

    how = {**asked.how, "options": Options(compress_mode or "")}
    how["limits"] = replace(asked.limits, keep_going=keep_going)
    return _answered(asked, functools.partial(api.build, out=out), how, exactly=True)


def _answered(asked: Asked, make: Callable[..., LibraryResult], how: dict[str, Any], **plan: Any) -> View:
    if asked.wanted.words["arch"] == "list":
        return _architectures()
    if asked.dry_run:
        return plan_view(plan_library(asked.wanted.request, **how, **plan))
    return library_view(make(asked.wanted.request, **how))


def plan_view(plan: LibraryPlan, then: str = "") -> View:
    """The answer of ``--dry-run``; ``then`` is what the command does with the library."""
    return View(plan_document(plan), [describe_plan(plan), *([then] if then else [])])


def describe_plan(plan: LibraryPlan) -> str:
    """What ``--dry-run`` says of a library."""
    from flashdepot.resolve.consent import sentence, smaller  # noqa: PLC0415  (a hit begins nothing)

    if (found := plan.found) is not None:
        place = "the depot, at once" if plan.stored else f"a remote, {size(found.size)}"
        key = found.recipe_key[:12]
        return f"From {place}: {key}, {found.selection}; machine code for {spell(found.sass)}."
    assert plan.forecast is not None  # noqa: S101  (one of the two is there)
    return "\n".join([sentence(plan.forecast), *smaller(plan.forecast)])


def plan_document(plan: LibraryPlan) -> dict[str, Any]:
    """The same for ``--json``; sizes in bytes, times in seconds."""
    if (library := plan.found) is not None:
        known = {} if plan.stored else {"size": library.size}
        return {"status": "hit" if plan.stored else "offered", "recipe_key": library.recipe_key, **known}
    assert plan.forecast is not None  # noqa: S101  (one of the two is there)
    found = plan.forecast
    return {
        "status": "planned",
        "units": {"total": found.units, "compiled": found.units - found.compiled, "reused": found.compiled},
        "seconds": round(found.seconds, 1),
        **fields(found, "host_sides", "jobs", "memory", "memory_limit", "disk"),
        "fetches": [fields(fetch, "what", "size") for fetch in found.fetches],
        "alternatives": [{"options": o.options, "seconds": round(o.seconds, 1)} for o in found.alternatives],
        "exact": found.is_exact,
    }


def library_view(result: LibraryResult) -> View:
    """What a command got."""
    document = {
        "status": result.status,
        "recipe_key": result.manifest.recipe_key,
        "path": result.path,
        "manifest": result.path / MANIFEST_NAME,
        "units": {"total": result.compiled + result.reused, **fields(result, "compiled", "reused")},
        "seconds": round(result.seconds, 3),
        **({"workers": dict(result.workers)} if result.workers else {}),
    }
    return View(document, [str(result.path)], said=describe(result))


def describe(result: LibraryResult) -> list[str]:
    """The library, what it needs, and where it came from, a line each."""
    manifest = result.manifest
    where = f", on {len(result.workers)} workers" if result.workers else ""
    came = {
        "hit": "from the depot",
        "fetched": "from a remote",
        "built": f"built: {counted(result.compiled, 'kernel')} compiled, {result.reused} reused{where}",
    }
    floors = [f"NVIDIA driver {manifest.driver_floor}"]
    if manifest.libc_floor:
        floors.append(f"GNU libc {manifest.libc_floor}")
    return [
        f"flash-attn {manifest.upstream}: {manifest.selection}",
        f"machine code for {spell(manifest.sass)}; needs {' and '.join(floors)} or newer; {size(manifest.size)}",
        f"{came[result.status]}, in {duration(result.seconds)}",
        *_more_for_hopper(result),
    ]


def _more_for_hopper(result: LibraryResult) -> list[str]:
    """What a new library for Hopper could have too: not everyone has heard of it."""
    made = result.manifest
    others = {family.name for family in tested_families(made.sass)} - {DEFAULT_FAMILY}
    has = set(made.selection.families)
    said = (
        "for Hopper there are FlashAttention-4's kernels as well, about twice as fast: --families all   # docs/fa4.md"
    )
    # Without the default family somebody named others.
    return [said] if result.status == "built" and DEFAULT_FAMILY in has and not others <= has else []


def _architectures() -> View:
    from flashdepot.facts.gpus import known_architectures, universal_architectures  # noqa: PLC0415

    known = [k for k in known_architectures() if k.architecture >= oldest_gpu()]
    rows, lines = [], []
    for k in known:
        last = str(k.last_cuda) if k.last_cuda else None
        rows.append({"arch": str(k.architecture), "gpus": k.gpus, "first_cuda": str(k.first_cuda), "last_cuda": last})
        lines.append(f"{k.architecture!s:<5} {k.gpus:<53} CUDA {k.first_cuda}{f' to {last}' if last else ' and newer'}")
    universal = spell(universal_architectures())
    return View(rows, [*lines, f"\nuniversal = {universal}; native = those of this machine's GPUs"])


@command(
    "flashdepot wheel --arch 90",
    "flashdepot wheel --profile inference --arch 80,90 --out dist",
    "flashdepot wheel --arch 90 --target linux-x86_64,linux-aarch64,windows-x86_64 --out dist",
)
@options(
    path_option("--out DIR  Write the wheel into this folder.  [default: the current one]", default="."),
    names_option,
    path_option(
        "--kernels DIR  Also folders that Hugging Face's library kernels loads; they use the installed wheels."
    ),
    flag("--jax  Also flashdepot-jax: the same library for JAX, without torch."),
    library_options,
)
def wheel(out: Path, names: str, kernels: Path | None, asked: Asked, *, jax: bool) -> View:
    """Make a Python wheel: one file for every torch and every Python.

    It contains upstream's package flash_attn and the library that 'flashdepot get' would take or build.
    Prints the wheel's path. For several targets, as in --target linux-x86_64,windows-x86_64, it makes a wheel each, whose
    device code is compiled once.
    """
    from flashdepot.wheel import build_names, parse_names, write_kernels  # noqa: PLC0415
    from flashdepot.wheel.builder import build_jax_wheel  # noqa: PLC0415

    started = time.monotonic()
    named = parse_names(names)
    requests, how = [one.request for one in asked.wanted.each_target()], asked.how
    if asked.dry_run:
        plans = [plan_library(request, **how) for request in requests]
        then = f"Then a wheel of it is written into {out.absolute()}."
        return View(_one_or_all([*map(plan_document, plans)]), [f"{describe_plan(p)}\n{then}" for p in plans])
    documents: list[dict[str, Any]] = []
    others: list[Wheel] = []
    for request in requests:
        done = api.wheel(request, out=out, **how)
        made, library = done.wheel, done.library
        seconds, started = time.monotonic() - started, time.monotonic()
        workers = {"workers": dict(library.workers)} if library.workers else {}
        known = {"status": library.status, "recipe_key": library.manifest.recipe_key, "seconds": round(seconds, 3)}
        documents.append({**fields(made, "path", "sha256", "size", "version", "tag"), **known, **workers})
        if not wants_json():  # the first is there long before the last
            say(f"flash-attn {made.version}: {library.manifest.selection}; {size(made.size)}, in {duration(seconds)}")
            answer(str(made.path))
        if jax:
            others.append(build_jax_wheel(library.manifest, library.path, out))
    others += build_names(named, out.absolute())
    documents += [msgspec.to_builtins(made, enc_hook=str) for made in others]
    folders = [str(folder) for folder in write_kernels(kernels.absolute())] if kernels else []
    documents += [{"kernel": folder} for folder in folders]
    return View(_one_or_all(documents), [*(str(made.path) for made in others), *folders])


def _one_or_all(documents: list[Any]) -> Any:
    return documents[0] if len(documents) == 1 else documents
