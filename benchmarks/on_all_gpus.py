"""What the programs over random problems share: a process for each visible GPU measures a share, and rows go into a CSV file."""

from __future__ import annotations

import argparse
import csv
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import torch


def options_of(count: int) -> argparse.ArgumentParser:
    """The options that these programs have in common; of ``count`` problems if nobody asks for others."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 30))
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--share", type=int, nargs=2)
    parser.add_argument("--dtypes", default="bf16,fp16")
    return parser


def by_all_gpus(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """The rows of every problem, measured by this program once more for each GPU, with ``--share``."""
    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count)))).split(",")
    words = [f"--{name}={getattr(options, name)}" for name in ("count", "seed", "seconds", "dtypes")]
    children = [
        subprocess.Popen(
            [sys.executable, sys.argv[0], *words, "--share", str(i), str(count)],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": visible[i]},
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]
    for child in children:
        assert child.stdout is not None
        yield from csv.DictReader(child.stdout)
        if child.wait() != 0:
            sys.exit(child.returncode)


def write_rows(file: IO[str], columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write each row as it comes; a rival that has no figure has an empty field."""
    writer = csv.DictWriter(file, columns, lineterminator="\n", restval="")
    writer.writeheader()
    for row in rows:
        writer.writerow(row)
        file.flush()
