"""A compiler for tests of the build engine. It is given what to do by the lines of the source it compiles.

    include NAME   reads a file next to the source, and says so in the depfile
    hold BYTES     fills so much memory
    sleep SECONDS  takes its time
    die-once FILE  is killed like a compiler out of memory, unless FILE is there; makes FILE
    die            is always killed like that
    hang-once FILE writes its process id into FILE and does not end, unless FILE is there
    kill-worker    kills the Dask worker that it runs on
    spawn          starts a child that would run forever
    fail TEXT      writes TEXT and refuses
    touch FILE     changes a file while it compiles
    age FILE       makes a file look as if it had been changed long ago
    no-header      refuses to begin with a precompiled header

``-begin FILE`` puts a file before the source, and ``-header OUTPUT`` takes that from what was made of an empty source.
It appends "start NAME" and "end NAME" to the journal named by FAKE_JOURNAL, with one write each.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time


def journal(line: str) -> None:
    """Add a line to the journal."""
    with pathlib.Path(os.environ["FAKE_JOURNAL"]).open("a") as file:
        file.write(line + "\n")


def die() -> None:
    """End as a compiler that is out of memory does: on Windows it says so itself."""
    if os.name == "nt":
        sys.exit("out of memory")
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Compile."""
    arguments = sys.argv[1:]
    source = pathlib.Path(arguments[arguments.index("-c") + 1])
    output = pathlib.Path(arguments[arguments.index("-o") + 1])
    depfile = pathlib.Path(arguments[arguments.index("-MF") + 1])
    journal(f"start {source.stem}")
    inputs, content = [source], source.read_text()
    if "-header" in arguments:
        content = pathlib.Path(arguments[arguments.index("-header") + 1]).read_text() + content
    elif "-begin" in arguments:
        inputs.append(pathlib.Path(arguments[arguments.index("-begin") + 1]))
        content = inputs[-1].read_text() + content
    held: list[bytes] = []
    for line in source.read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "include":
            included = source.parent / rest
            inputs.append(included)
            content += included.read_text()
        elif word == "hold":
            held.append(b"\1" * int(rest))
        elif word == "sleep":
            time.sleep(float(rest))
        elif word == "die-once" and not pathlib.Path(rest).exists():
            pathlib.Path(rest).touch()
            die()
        elif word == "die":
            die()
        elif word == "hang-once" and not pathlib.Path(rest).exists():
            pathlib.Path(rest).write_text(str(os.getpid()))
            time.sleep(600)
        elif word == "kill-worker":
            os.kill(os.getppid(), getattr(signal, "SIGKILL", signal.SIGTERM))
            time.sleep(600)
        elif word == "spawn":
            subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(600)", f"{os.environ['FAKE_JOURNAL']} orphan"]
            )
        elif word == "fail":
            sys.stderr.write(rest + "\n")
            return 1
        elif word == "no-header" and "-header" in arguments:
            return 1
        elif word == "touch":
            pathlib.Path(rest).write_text("changed")
        elif word == "age":
            os.utime(rest, (1, 1))
    output.write_text(content)
    depfile.write_text(f"{output} : " + " \\\n  ".join(str(path) for path in inputs) + "\n")
    journal(f"end {source.stem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
