"""flash-attn-4's compiler at run time compared with our library: the first call, and the host's time for each later one.

Usage: python benchmarks/jit_beside.py --dsl FOLDER --source FOLDER      on a GPU, with the wheel and torch

--dsl has CuTe DSL's packages (a folder for sys.path), --source is flash-attn-4's source distribution, unpacked. Each
line is a process of its own: a cold cache on disk, the same one warm, and ours by fa4 and by fa2. Its last
columns are of the warm process: the first calls at another length, and those without the causal mask.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

SHAPE = (4, 1024, 8, 128)
CALLS, ROUNDS = 100, 9
LONGER = (2, 2048, 8, 128)
COLUMNS = (
    "import",
    "first forward",
    "first backward",
    "host forward",
    "host both",
    "longer",
    "full forward",
    "full backward",
)
OURS = {"ours, fa4": "fa4", "ours, fa2": "fa2"}


def upstream(source: str) -> Any:
    """flash-attn-4's function, without the installed package of the same name."""
    package = ModuleType("flash_attn")
    package.__path__ = [source]
    sys.modules["flash_attn"] = package
    from flash_attn.cute.interface import flash_attn_func  # noqa: PLC0415

    return lambda q, k, v, causal=True: flash_attn_func(q, k, v, causal=causal)[0]


def as_package(source: Path, folder: Path) -> None:
    """Make the source distribution a package `cute` in a folder: its files lie at the top, not in flash_attn/cute."""
    found = next(iter(source.glob("**/interface.py")), None)
    if found is None:
        sys.exit(f"{source} has no interface.py; give the unpacked source distribution of flash-attn-4")
    folder.mkdir()
    (folder / "cute").symlink_to(found.parent.resolve(), target_is_directory=True)


def library() -> Any:
    from flash_attn import flash_attn_func  # noqa: PLC0415

    return lambda q, k, v, causal=True: flash_attn_func(q, k, v, causal=causal)


def one(source: str) -> None:
    """Print the times of this process, in milliseconds and microseconds."""
    import torch  # noqa: PLC0415

    def inputs(shape: tuple[int, ...]) -> list[Any]:
        return [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in "qkv"]

    q, k, v = inputs(SHAPE)
    g = torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16)
    (q.detach() @ q.detach().transpose(-1, -2)).sum().item()
    times: dict[str, float] = {}

    def timed(name: str, run: Any) -> Any:
        torch.cuda.synchronize()
        began = time.perf_counter()
        result = run()
        torch.cuda.synchronize()
        times[name] = (time.perf_counter() - began) * 1e3
        return result

    function = timed("import", lambda: upstream(source) if source else library())
    out = timed("first forward", lambda: function(q, k, v))
    timed("first backward", lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True))

    def host(run: Any) -> float:
        """Microseconds of the host for a call; the GPU has room for all of a round in its queue."""
        found = []
        for _ in range(ROUNDS):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(CALLS):
                run()
            found.append((time.perf_counter() - began) / CALLS * 1e6)
        return statistics.median(found)

    def forward() -> None:
        with torch.no_grad():
            function(q, k, v)

    times["host forward"] = host(forward)
    times["host both"] = host(lambda: torch.autograd.grad(function(q, k, v), (q, k, v), g))
    longer = inputs(LONGER)
    timed("longer", lambda: function(*longer))
    out = timed("full forward", lambda: function(q, k, v, causal=False))
    timed("full backward", lambda: torch.autograd.grad(out, (q, k, v), g))
    print(json.dumps(times))


def process(name: str, environment: dict[str, str], source: str) -> None:
    """One line of the table."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--one", source],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    whole = time.perf_counter() - began
    if done.returncode:
        print(f"{name:24} ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        print(done.stderr[-3000:], file=sys.stderr)
        return
    times = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"{name:24}", *(f"{times[column]:14.1f}" for column in COLUMNS), f"{whole:9.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dsl")
    parser.add_argument("--source")
    parser.add_argument("--one")
    options = parser.parse_args()
    if options.one is not None:
        one(options.one)
        return
    print(f"bf16, causal, {SHAPE}; milliseconds, but of the host microseconds a call, and of the process seconds")
    print(" " * 24, *(f"{column:>14}" for column in COLUMNS), f"{'process':>9}")
    for name, family in OURS.items():
        process(name, {"FLASH_ATTENTION_FAMILY": family}, "")
    if not options.source:
        return
    with tempfile.TemporaryDirectory() as folder:
        cache, packages = f"{folder}/cache", f"{folder}/packages"
        as_package(Path(options.source), Path(packages))
        path = (
            [options.dsl, *(str(p) for p in Path(options.dsl).glob("nvidia_cutlass_dsl/*_packages"))]
            if options.dsl
            else []
        )
        environment = {
            "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]),
            "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": cache,
        }
        environment["FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED"] = "1"
        process("JIT, cold cache", environment, packages)
        process("JIT, warm cache", environment, packages)


if __name__ == "__main__":
    main()
