"""Compiles kernels for compute capability 10, 11 or 12, as __main__.py does those for Hopper, by the same arguments.

It is a program of its own so that Hopper's kernels are made of the same files as before, and keep their keys.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

_MODULES = {"sm_10": "sm100", "sm_11": "sm100", "sm_12": "sm120"}


def _worker() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("worker", str(Path(__file__).with_name("__main__.py")))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = sys.modules["worker"] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def main() -> int:
    """The exit status: 1 when the one job failed."""
    worker = _worker()
    compile_of_hopper = worker._compile

    def compile_of_blackwell(job: dict[str, Any], *rest: Path) -> None:
        os.environ["CUTE_DSL_ARCH"] = job["arch"]  # before CuTe is imported
        import compile_one

        compile_one._KERNELS = importlib.import_module(_MODULES[job["arch"][:5]]).KERNELS
        compile_of_hopper(job, *rest)

    worker._compile = compile_of_blackwell  # type: ignore[attr-defined]
    return worker.main()  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
