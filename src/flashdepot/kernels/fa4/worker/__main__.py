"""Compiles kernels of FlashAttention-4, each to an object file with its launch code.

One:  python -I -S WORKER CUTE_DSL UPSTREAM JOB OBJECT DEPFILE
Many: python -I -S WORKER CUTE_DSL UPSTREAM, with {"job": .., "object": .., "depfile": ..} as JSON lines on stdin.

CUTE_DSL holds the unpacked wheels of CuTe DSL and what it imports, UPSTREAM is FlashAttention-4's sdist; with the
standard library they are all of Python's path. A job is a JSON object: its kernel and what upstream fixes with it, the
architecture, the host's triple and CPU, and the prefix of its symbols. Many jobs share 0.9 CPU-seconds of imports, and
must be for one architecture. Each is answered by a line on stdout: "made", or "failed" with the error; what the
compiler printed, seconds, and the process's peak memory so far.
"""

import contextlib
import io
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO


def _prepare(cute_dsl: Path, upstream: Path) -> None:
    here = Path(__file__).resolve().parent
    sys.path[:0] = [str(here), str(cute_dsl), str(cute_dsl / "nvidia_cutlass_dsl" / "dsl_packages")]
    import standin

    standin.install(cute_dsl, upstream)


def _compile(job: dict[str, Any], target: Path, depfile: Path, upstream: Path) -> None:
    os.environ["CUTE_DSL_ARCH"] = job["arch"]
    import compile_one

    compile_one.compile_one(job, target)
    depfile.write_text(_dependencies(target, upstream), encoding="utf-8")


def _dependencies(target: Path, upstream: Path) -> str:
    """A make rule: the object is made of every module of ours and of upstream's that was imported."""
    folders = (Path(__file__).resolve().parent, upstream.resolve())
    files = {Path(f).resolve() for module in list(sys.modules.values()) if (f := getattr(module, "__file__", None))}
    ours = sorted(str(file) for file in files if any(folder in file.parents for folder in folders))
    return " \\\n ".join([f"{target}:", *(name.replace(" ", "\\ ") for name in ours)]) + "\n"


def _answer(order: dict[str, Any], upstream: Path) -> dict[str, Any]:
    said = io.StringIO()
    wall, cpu = time.monotonic(), time.process_time()
    answer: dict[str, Any] = {"status": "made"}
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            _compile(order["job"], Path(order["object"]), Path(order["depfile"]), upstream)
    except Exception:  # whatever a compiler throws is the job's answer, not the worker's end
        answer = {"status": "failed", "error": traceback.format_exc()}
    return {
        **answer,
        "log": said.getvalue(),
        "seconds": round(time.monotonic() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "peak_memory_bytes": _peak_memory(),
    }


def _peak_memory() -> int:
    """Bytes; 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _one(upstream: Path, job: str, target: str, depfile: str) -> int:
    answer = _answer({"job": json.loads(job), "object": target, "depfile": depfile}, upstream)
    sys.stdout.write(answer["log"])
    sys.stdout.write(answer.get("error", ""))
    return 0 if answer["status"] == "made" else 1


def _many(upstream: Path, answers: TextIO) -> int:
    for line in sys.stdin:
        answers.write(json.dumps(_answer(json.loads(line), upstream)) + "\n")
        answers.flush()
    return 0


def main() -> int:
    """The exit status: 1 when the one job failed."""
    cute_dsl, upstream, *one = sys.argv[1:]
    _prepare(Path(cute_dsl), Path(upstream))
    if one:
        return _one(Path(upstream), *one)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # what a compiler prints from C++ must not come between answers
        return _many(Path(upstream), answers)


if __name__ == "__main__":
    sys.exit(main())
