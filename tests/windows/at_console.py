"""Run by a Windows Python: a program at a console of its own, which has no window.

Usage: at_console.py ANSWER MARK PROGRAM ARGUMENT...    Ctrl-C is pressed when the file MARK is there; "-" for never
ANSWER gets a JSON document: how the program ended, the lines on the screen, and the console's mode of output.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from ctypes import c_short, c_ulong, c_void_p, c_wchar_p
from pathlib import Path

COLUMNS, LINES = 80, 40
NO_WINDOW = 0x08000000


class Coord(ctypes.Structure):
    """COORD of wincon.h."""

    _fields_ = (("x", c_short), ("y", c_short))


def main(answer: str, mark: str, *words: str) -> None:
    """At the console."""
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for everybody at a console
    screen, keyboard = (os.open(name, os.O_RDWR) for name in ("CONOUT$", "CONIN$"))
    program = subprocess.Popen(words, stdin=keyboard, stdout=screen, stderr=screen)
    while mark != "-" and not Path(mark).exists() and program.poll() is None:
        time.sleep(0.05)
    if mark != "-":
        kernel.GenerateConsoleCtrlEvent(0, 0)
    try:
        code: int | str = program.wait(60)
    except subprocess.TimeoutExpired:
        program.kill()
        code = "it did not end"
    Path(answer).write_text(json.dumps({"code": code, **_shown()}), encoding="utf-8")


def _shown() -> dict[str, object]:
    handle, mode, count, rows = kernel.CreateFileW("CONOUT$", 0xC0000000, 3, None, 3, 0, None), c_ulong(), c_ulong(), []
    kernel.GetConsoleMode(handle, ctypes.byref(mode))
    for y in range(LINES):
        row = ctypes.create_unicode_buffer(COLUMNS + 1)
        kernel.ReadConsoleOutputCharacterW(handle, row, COLUMNS, Coord(0, y), ctypes.byref(count))
        rows.append(row.value.rstrip())
    return {"rows": rows, "mode": mode.value}


if __name__ == "__main__":
    if sys.argv[1] != "there":
        there = [sys.executable, __file__, "there", *sys.argv[1:]]
        sys.exit(subprocess.call(there, creationflags=NO_WINDOW))
    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined, unused-ignore]
    kernel.CreateFileW.restype = c_void_p
    kernel.GetConsoleMode.argtypes = (c_void_p, c_void_p)
    kernel.ReadConsoleOutputCharacterW.argtypes = (c_void_p, c_wchar_p, c_ulong, Coord, c_void_p)
    main(*sys.argv[2:])
