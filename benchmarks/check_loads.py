"""Whether `flashdepot check` says "fits" of a wheel that does not load, for wheels and environments with torch.

Usage: python benchmarks/check_loads.py --python ENV/bin/python [--python ...] WHEEL [WHEEL ...]

Each wheel is installed into each environment with uv, without dependencies, and removed again. Each of its libraries is
loaded as the loader does it at once (dlopen, RTLD_NOW), after torch, in a process of its own. Without a driver put the
folder of a stand-in libcuda.so.1 into LD_LIBRARY_PATH. Writes one line of JSON for each wheel and environment.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import zipfile
from pathlib import Path

LOAD = """
import ctypes, json, os, sys
import torch
said = {}
for path in sys.argv[1:]:
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        except OSError as error:
            os.write(write, str(error).encode()[:2000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as text:
        said[path] = text.read()
    if os.waitpid(child, 0)[1]:
        said[path] = "died"
print(json.dumps(said), flush=True)
os._exit(0)
"""


def main() -> None:
    """Print what check says, and what the loader says, of each wheel in each environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, action="append", required=True)
    parser.add_argument("wheels", type=Path, nargs="+")
    arguments = parser.parse_args()
    for wheel in arguments.wheels:
        for python in arguments.python:
            checked = run(sys.executable, "-m", "flashdepot", "check", str(wheel), "--python", str(python), "--json")
            (file,) = json.loads(checked.stdout)["files"]
            misfits = sorted({e["where"] for e in file["evidence"] if e["outcome"] == "does not fit"})
            row = {"wheel": wheel.name, "python": str(python), "verdict": file["verdict"], "misfits": misfits}
            print(json.dumps({**row, "loader": loads(wheel, python)}), flush=True)


def loads(wheel: Path, python: Path) -> dict[str, str]:
    """The loader's complaint about each library of a wheel; nothing where it loads."""
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".so" in Path(name).suffixes]
    installed = run("uv", "pip", "install", "--no-deps", "--python", str(python), str(wheel))
    if installed.returncode:
        return {"": installed.stderr}
    site = run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").stdout.strip()
    paths = {str(Path(site, name)): name for name in names if Path(site, name).exists()}
    done = run(str(python), "-c", LOAD, *paths)
    run("uv", "pip", "uninstall", "--python", str(python), wheel.name.split("-")[0])
    return {paths[path]: said for path, said in json.loads(done.stdout.splitlines()[-1]).items()}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """A command, and what it printed."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
