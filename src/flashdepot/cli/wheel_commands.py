"""``flashdepot wheel``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from flashdepot import api
from flashdepot.api.libraries import plan_library
from flashdepot.cli.common import View, answer, command, fields, flag, options, path_option, say, wants_json
from flashdepot.cli.library_commands import describe_plan, plan_document
from flashdepot.cli.options import Asked, library_options, names_option
from flashdepot.model.limits import duration, size
from flashdepot.resolve.library import LibraryResult
from flashdepot.wheel import Wheel, build_jax_wheel, build_names, parse_names, write_kernels


@command(
    "flashdepot wheel --arch 90",
    "flashdepot wheel --profile inference --arch 80,90 --out dist",
    "flashdepot wheel --arch 90 --target linux-x86_64,linux-aarch64,windows-x86_64 --out dist",
)
@options(
    path_option("--out DIR  Write the wheel into this folder.  [default: the current one]", default="."),
    names_option,
    path_option("--kernels DIR  Also folders that Hugging Face's library kernels loads, over the installed wheels."),
    flag("--jax  Also flashdepot-jax: the same library for JAX, without torch."),
    library_options,
)
def wheel(out: Path, names: str, kernels: Path | None, asked: Asked, *, jax: bool) -> View:
    """Make a Python wheel: one file for every torch and every Python 3.

    It contains upstream's package flash_attn and the library that 'flashdepot get' would take or build.
    Prints the wheel's path. For several targets, as in --target linux-x86_64,windows-x86_64, it makes a wheel each, whose
    device code is compiled once.
    """
    started = time.monotonic()
    named = parse_names(names)
    requests, how = [one.request for one in asked.wanted.each_target()], asked.how
    if asked.dry_run:
        plans = [plan_library(request, **how) for request in requests]
        then = f"Then a wheel of it is written into {out.absolute()}."
        return View(_one_or_all([plan_document(p) for p in plans]), [f"{describe_plan(p)}\n{then}" for p in plans])
    documents, beside = [], list[Wheel]()
    for request in requests:
        done = api.wheel(request, out=out, **how)
        made, library = done.wheel, done.library
        seconds, started = time.monotonic() - started, time.monotonic()
        documents.append({**_document(made, library), "seconds": round(seconds, 3)})
        if not wants_json():  # the first is there long before the last
            say(f"flash-attn {made.version}: {library.manifest.selection}; {size(made.size)}, in {duration(seconds)}")
            answer(str(made.path))
        if jax:
            beside.append(build_jax_wheel(library.manifest, library.path, out))
    beside += build_names(named, out.absolute())
    documents += [msgspec.to_builtins(made, enc_hook=str) for made in beside]
    folders = [str(folder) for folder in write_kernels(kernels.absolute())] if kernels else []
    documents += [{"kernel": folder} for folder in folders]
    return View(_one_or_all(documents), [*(str(made.path) for made in beside), *folders])


def _one_or_all(documents: list[Any]) -> Any:
    return documents[0] if len(documents) == 1 else documents


def _document(made: Wheel, library: LibraryResult) -> dict[str, object]:
    return {
        "status": library.status,
        **fields(made, "path", "sha256", "size", "version", "tag"),
        "recipe_key": library.manifest.recipe_key,
        **({"workers": dict(library.workers)} if library.workers else {}),
    }
