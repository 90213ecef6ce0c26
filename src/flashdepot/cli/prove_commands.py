"""``flashdepot verify`` and ``flashdepot bench``."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from flashdepot.cli.common import command, flag, option, options, path_option, python_option
from flashdepot.cli.output import View, is_quiet
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.kernels.fa4.speed import write_table
from flashdepot.kernels.fa4.variants import HEAD_DIMS
from flashdepot.prove.environment import interpreter, run_script

_VERIFY_LIMIT = 300
_BENCH_LIMIT = 3600
TUNED_LENGTHS = "64,128,256,512,1024,2048,4096,8192,16384"


@command("flashdepot verify", "flashdepot verify --python .venv/bin/python --json")
@options(python_option)
def verify(python: str | None) -> View:
    """Check on this machine's GPU that the installed flash_attn computes the right numbers.

    Compares forward, backward, variable lengths and KV cache, in fp16 and bf16, with float64. The bound is that of
    upstream's own tests, whatever built the installed flash_attn. Exit code 6: a result is wrong.
    """
    document = run_script(interpreter(python), "numeric.py", timeout=_VERIFY_LIMIT)
    wrong = [row for row in document["rows"] if row["ok"] is False]
    rows = document["rows"]
    said = [
        f"flash_attn {document['flash_attn']} ({document['file']}) on {document['gpu']}, torch {document['torch']}",
        *map(_verify_line, rows),
        f"{len(rows) - len(wrong)} of {len(rows)} right or skipped, {document['seconds']} s",
    ]
    error = IntegrityError(
        f"{len(wrong)} results are wrong; the first: {''.join(map(_verify_line, wrong[:1])).strip()}",
        hint="Do not train or serve with this build. 'flashdepot verify --json' has every figure.",
    )
    return View(document, said=said, error=error if wrong else None)


def _verify_line(row: Mapping[str, Any]) -> str:
    mark = {True: "right", False: "WRONG", None: "skipped"}[row["ok"]]
    if "reason" in row:
        return f"  {mark:<8} {row['dtype']}  {row['what']}: {row['reason']}"
    return f"  {mark:<8} {row['dtype']}  {row['what']:<52} error {row['error']:.1e}, allowed {row['bound']:.1e}"


@command(
    "flashdepot bench",
    "flashdepot bench --lengths 1024,4096 --head-dims 128 --forward-only",
    "flashdepot bench --tune families.csv",
)
@options(
    python_option,
    option("--head-dims 64,128  Head dims.  [default: 64,128; with --tune, every kernel's]"),
    option("--lengths 1024,...  Sequence lengths.  [default: 1k to 16k; with --tune, from 64]"),
    option("--dtype  Element type.  [default: bf16]", type=click.Choice(["bf16", "fp16"]), default="bf16"),
    option("--causal/--no-causal  Causal or not.  [default: both]", default=None),
    flag("--forward-only  Skip the backward pass."),
    path_option("--tune FILE  Measure fa2 and fa4, and write the table that FLASH_ATTENTION_TABLE names."),
)
def bench(
    python: str | None,
    head_dims: str | None,
    lengths: str | None,
    dtype: str,
    causal: bool | None,
    tune: Path | None,
    *,
    forward_only: bool,
) -> View:
    """Compare the speed of the installed flash_attn with torch's own attention on this machine's GPU."""
    if tune is not None:
        dims = _numbers(head_dims, "head dim") if head_dims else list(HEAD_DIMS)
        if not set(dims) <= set(HEAD_DIMS):
            raise UsageError(f"'{head_dims}' names a head dim without a kernel: --tune takes {HEAD_DIMS}.")
        grid = {"head_dims": dims, "lengths": _numbers(lengths or TUNED_LENGTHS, "length"), "dtype": dtype}
        grid["what"] = "families"
        return _tuned(run_script(interpreter(python), "speed.py", json.dumps(grid), timeout=_BENCH_LIMIT), tune)
    wanted = {
        "head_dims": _numbers(head_dims or "64,128", "head dim"),
        "lengths": _numbers(lengths or "1024,2048,4096,8192,16384", "length"),
        "dtype": dtype,
        "causal": [False, True] if causal is None else [causal],
        "backward": [False] if forward_only else [False, True],
        "what": "rivals",
    }
    document = run_script(interpreter(python), "speed.py", json.dumps(wanted), timeout=_BENCH_LIMIT)
    return View(document, [] if is_quiet() else [table(document)])


def _tuned(document: Mapping[str, Any], path: Path) -> View:
    """The table, written, and what it says."""
    rows = document["rows"]
    if not rows:
        raise UsageError(
            "The installed flash_attn has no problem that both fa2 and fa4 can do here, so there is nothing to choose.",
            hint="Install one that has both: flashdepot install --source ours --families all",
        )
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    source = f"{document['gpu']}, torch {document['torch']}, {document['dtype']}, {today}"
    write_table(path, source, [{"arch": document["arch"], **row} for row in rows])
    faster = sum(row["fa2"] > row["fa4"] for row in rows)
    said = f"{source}: fa2 is the faster one at {faster} of {len(rows)} points. Written to {os.fspath(path)}."
    return View(document, said=[said], then=[f"To use it: export FLASH_ATTENTION_TABLE={path.absolute()}"])


def table(document: Mapping[str, Any]) -> str:
    """The speeds as a table: TFLOP/s of each, and how ours compares with torch's flash attention."""
    rivals = list(dict.fromkeys(name for row in document["rows"] for name in row["tflops"]))
    lines = [f"{document['gpu']}, {document['dtype']}, torch {document['torch']}; TFLOP/s", ""]
    lines.append(
        f"{'pass':<19}{'dim':>4}{'length':>8}  {'causal':<7}" + "".join(f"{r:>17}" for r in rivals) + "   ratio"
    )
    for row in document["rows"]:
        ours, flash = row["tflops"]["flash_attn"], row["tflops"].get("torch flash")
        cells = "".join(f"{row['tflops'].get(r, float('nan')):>17.1f}" for r in rivals)
        ratio = f"{ours / flash:8.2f}" if flash else ""
        causal = "yes" if row["causal"] else "no"
        lines.append(f"{row['pass']:<19}{row['head_dim']:>4}{row['length']:>8}  {causal:<7}{cells}{ratio}")
    return "\n".join([*lines, "", "ratio: flash_attn over torch flash"])


def _numbers(text: str, what: str) -> list[int]:
    words = [word for word in text.replace(",", " ").split() if word]
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"'{text}' is not a list of numbers for a {what}: expected one such as 64,128.")
    return [int(word) for word in words]
