"""Compiles one kernel for compute capability 10, 11 or 12, as __main__.py does those for Hopper.

python -I -S THIS CUTE_DSL UPSTREAM JOB OBJECT DEPFILE

It is a program of its own so that Hopper's kernels are made of the same files as before, and keep their keys.
"""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

_MODULES = {"sm_10": "sm100", "sm_11": "sm100", "sm_12": "sm120"}


def _worker() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("worker", str(Path(__file__).with_name("__main__.py")))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = sys.modules["worker"] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def main() -> int:
    """The exit status: 1 when the job failed."""
    cute_dsl, upstream, job, target, depfile = sys.argv[1:]
    worker = _worker()
    worker._prepare(Path(cute_dsl), Path(upstream))
    arch = os.environ["CUTE_DSL_ARCH"] = json.loads(job)["arch"]
    import compile_one

    compile_one._KERNELS = importlib.import_module(_MODULES[arch[:5]]).KERNELS
    return worker._one(Path(upstream), job, target, depfile)


if __name__ == "__main__":
    sys.exit(main())
