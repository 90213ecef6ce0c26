"""Compile the driver that Windows programs under wine find: ``python build_driver.py FOLDER``.

As ``WINEDLLPATH`` FOLDER gives wine an nvcuda.dll that calls libcuda.so.1.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

WINDOWS = "x86_64-w64-mingw32-gcc"
LINUX = "gcc"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type", "-s")

DOS_STUB = 0x40
BUILTIN = b"Wine builtin DLL"
"""Where and how a DLL says that it is a part of wine, which then lets it call the Linux side."""


def build(folder: Path) -> None:
    """Compile DLL and relay into ``folder``."""
    dll = folder / "x86_64-windows" / "nvcuda.dll"
    relay = folder / "x86_64-unix" / "nvcuda.so"
    for path in (dll, relay):
        path.parent.mkdir(parents=True, exist_ok=True)
    run(WINDOWS, "-shared", HERE / "nvcuda.c", "-o", dll)
    run(LINUX, "-D_GNU_SOURCE", "-shared", "-fPIC", HERE / "relay.c", "-lpthread", "-ldl", "-o", relay)
    image = bytearray(dll.read_bytes())
    image[DOS_STUB : DOS_STUB + 32] = BUILTIN.ljust(32, b"\0")
    dll.write_bytes(image)


def run(compiler: str, *words: object) -> None:
    command = [compiler, *FLAGS, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
