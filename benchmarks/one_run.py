"""Times random decoding problems, then dense and packed ones, in this one process on one GPU.

Usage: python benchmarks/one_run.py FOLDER [--seed N] [--decoding 200] [--count 500] [--seconds S] [--dtypes bf16,fp16]
       with torch and the wheel, and upstream's flash_attn_interface if it is to be compared

What is timed, and how: decoding_speed.py and attention_speed.py. Rows go into a CSV file of each in FOLDER.
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path
from typing import Any

import attention_speed
import decoding_speed
import torch
from on_all_gpus import options_of, write_rows


def main() -> int:
    """Measure and tell."""
    began = time.monotonic()
    parser = options_of(500)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--decoding", type=int, default=200)
    options = parser.parse_args()
    options.share = (0, 1)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, seed {options.seed}", flush=True)
    programs: tuple[tuple[Any, int], ...] = ((decoding_speed, options.decoding), (attention_speed, options.count))
    until = began + options.seconds
    for program, options.count in programs:
        options.seconds = until - time.monotonic()
        file = options.folder / f"{program.__name__}.csv"
        with file.open("w", encoding="utf-8") as opened:
            write_rows(opened, (*program.SHAPE, *program.RIVALS), program.measured(options))
        rows = list(csv.DictReader(file.open(encoding="utf-8")))
        print(*program.summary(rows), sep="\n", flush=True)
        print(f"{len(rows)} rows, {time.monotonic() - began:.0f} s since the start", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
