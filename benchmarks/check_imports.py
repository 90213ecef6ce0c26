"""Whether `flashdepot check` foretells what an import says, for wheels and environments with torch.

Usage: python benchmarks/check_imports.py --python ENV/bin/python [--python ...] WHEEL [WHEEL ...]

Each compiled file of a wheel is loaded by each interpreter, after torch: a module by Python's import, a library of
torch's operators as xformers loads its own, by torch.ops.load_library. No GPU is needed. Writes a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

LOAD = """
import importlib.machinery, importlib.util, sys
import torch
path = sys.argv[1]
suffix = next((s for s in importlib.machinery.EXTENSION_SUFFIXES if path.endswith(s) and s != ".so"), "")
name = path.rsplit("/", 1)[1].split(".", 1)[0]
if ".cpython-" in path and not suffix:
    raise ImportError(f"no module named {name}: the file is for another Python")
if suffix:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
else:
    torch.ops.load_library(path)
"""


def main() -> None:
    """Print a row for each file and interpreter, and how many rows agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, action="append", required=True)
    parser.add_argument("wheels", type=Path, nargs="+")
    arguments = parser.parse_args()
    print("| wheel and file | torch | check | import |\n| --- | --- | --- | --- |")
    agreeing = []
    for wheel in arguments.wheels:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".so")]
            for name in names:
                archive.extract(name, folder)
            for python in arguments.python:
                verdicts = check(wheel, python)
                for name in names:
                    failed = sorted(verdicts.get(name, set()) | verdicts.get("", set()))
                    error = load(python, Path(folder, name))
                    agreeing.append(bool(failed) == bool(error))
                    said = f"does not fit ({'; '.join(failed)})" if failed else "fits"
                    print(
                        f"| {wheel.name.split('-cp')[0].split('-py')[0]}, `{name}` | {torch(python)} | {said} | {error or 'imports'} |"
                    )
                    sys.stdout.flush()
    print(f"\n{sum(agreeing)} of {len(agreeing)} rows agree.")


def check(wheel: Path, python: Path) -> dict[str, set[str]]:
    """What does not fit, by the file in the wheel that it is about; "" stands for the wheel itself."""
    command = [sys.executable, "-m", "flashdepot", "check", str(wheel), "--python", str(python), "--json"]
    document = json.loads(subprocess.run(command, capture_output=True, check=False).stdout)
    found: dict[str, set[str]] = {}
    evidence: list[dict[str, Any]] = document["files"][0]["evidence"]
    for one in evidence:
        if one["outcome"] == "does not fit":
            found.setdefault(one["where"], set()).add(one["topic"])
    return found


def load(python: Path, file: Path) -> str:
    """The last line of the error, or nothing when the file loads."""
    done = subprocess.run([python, "-c", LOAD, str(file)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"ended with status {done.returncode}"
    return last.replace(f"{file.parent}/", "")[:160]


def torch(python: Path) -> str:
    """The version of torch in an environment."""
    command = [python, "-c", "from torch.version import __version__ as v; print(v)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
