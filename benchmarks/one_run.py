"""Times random decoding problems, then dense and packed ones, next to other libraries, in this one process on one GPU.

Usage: python benchmarks/one_run.py FOLDER [--seed N] [--decoding 200] [--count 500] [--seconds S] [--dtypes bf16,fp16]
       with torch and the wheel, and upstream's flash_attn_interface if it is to be compared
       python benchmarks/one_run.py FOLDER --read      what its files say

What is timed, and how: decoding_speed.py and attention_speed.py. Rows go into a CSV file of each in FOLDER.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from pathlib import Path
from types import ModuleType

import attention_speed
import decoding_speed
import torch


def main() -> int:
    """Measure and tell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 30))
    parser.add_argument("--decoding", type=int, default=200)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--dtypes", default="bf16,fp16")
    parser.add_argument("--read", action="store_true")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    if not options.read:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, seed {options.seed}", flush=True)
    for program, count in ((decoding_speed, options.decoding), (attention_speed, options.count)):
        file = options.folder / f"{program.__name__}.csv"
        if not options.read:
            measure(program, list(program.problems(count, options.seed, options.dtypes.split(","))), until, file)
        with file.open(encoding="utf-8", newline="") as rows:
            print(*program.summary(list(csv.DictReader(rows))), sep="\n", flush=True)
    return 0


def measure(program: ModuleType, problems: list[dict[str, object]], until: float, file: Path) -> None:
    """Write the rows of problems, as many as there is time for."""
    began = time.monotonic()
    with file.open("w", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, (*program.SHAPE, *program.RIVALS), lineterminator="\n", restval="")
        writer.writeheader()
        for done, problem in enumerate([*problems, None]):
            if problem is None or time.monotonic() > until:
                print(f"{file.stem}: {done} of {len(problems)} problems in {time.monotonic() - began:.0f} s")
                return
            for row in program.measured(problem):
                writer.writerow(row)
                opened.flush()


if __name__ == "__main__":
    sys.exit(main())
