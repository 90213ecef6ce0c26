"""The work of a program of random problems, shared among processes of it, which take turns among the GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import torch


def of_all(command: Sequence[str], processes: int) -> Iterator[dict[str, Any]]:
    """The results of a program that is started once for each share, with ``--share I N``, and prints a line of JSON for each.

    A process that fails is a result of the kind "process", with a miss.
    """
    gpus = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
    outputs = [tempfile.TemporaryFile("w+") for _ in range(processes)]  # noqa: SIM115  (they end with this)
    running = [
        subprocess.Popen(
            [sys.executable, *command, "--share", str(i), str(processes)],
            stdout=output,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": visible[i % gpus]},
        )
        for i, output in enumerate(outputs)
    ]
    for number, (process, output) in enumerate(zip(running, outputs, strict=True)):
        process.wait()
        output.seek(0)
        results = [json.loads(line) for line in output if line.startswith("{")]
        yield from results
        if process.returncode:
            after = results[-1]["index"] if results else "nothing"
            died = f"process {number} of {processes} ended with {process.returncode} after {after}"
            yield {"index": died, "kind": "process", "misses": [(died, 0.0, 0.0, 0.0)]}
