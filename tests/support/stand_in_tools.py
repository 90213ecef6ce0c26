"""An nvcc and a zig that take a moment for what takes minutes, and write down what they compiled and who they were.

Installed as ``nvcc`` it answers what flashdepot asks an nvcc. A compile reads the source and what it includes with
quotes, and makes an object whose bytes follow from these, from the arguments and from the fatbin that it is given.
Linking and archiving are left to the machine's own tools. Each compile appends a line to the file named by STAND_IN_JOURNAL: the SHA-256 of this very
file, and of every file that was read.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

GCC = "/usr/bin/gcc"
ENTRY_POINTS = (
    "fa_build_info fa_bwd fa_bwd_workspace fa_fwd fa_fwd_workspace fa_last_error fa_status_string fa_supports"
)


def main() -> int:
    """Answer or compile as nvcc does; as zig, compile or hand over."""
    arguments = sys.argv[1:]
    if "nvcc" in Path(sys.argv[0]).name:
        if arguments[:1] == ["--version"]:
            sys.stdout.write("Cuda compilation tools, release 13.0, V13.0.88\n")
            return 0
        if arguments[:1] == ["--list-gpu-code"]:
            sys.stdout.write("sm_80\nsm_90\n")
            return 0
        if arguments[:1] == ["--help"]:
            return 0
        compile_source(arguments, arguments[arguments.index("-o") - 1], "-MF")
        return 0
    if arguments[0] == "clang":
        compile_source(arguments, arguments[-1], "-dependency-file")
        return 0
    if arguments[0] == "ar":
        return subprocess.run(arguments, check=False).returncode
    target = arguments.index("-target")
    return subprocess.run([GCC, *arguments[1:target], *arguments[target + 2 :]], check=False).returncode


def compile_source(arguments: list[str], named: str, option: str) -> None:
    """Make an object of a source, and its depfile, which is named behind the argument ``option``."""
    source, output = Path(named), Path(arguments[arguments.index("-o") + 1])
    folders = [Path(argument[2:]) for argument in arguments if argument.startswith("-I")]
    inputs = read_with_includes(source, folders)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs]
    fatbins = [Path(argument) for argument in arguments if argument.endswith(".fatbin") and Path(argument) != output]
    made = [hashlib.sha256(path.read_bytes()).hexdigest() for path in fatbins]
    words = [argument for argument in arguments if "/" not in argument]  # no path of this machine
    seal = hashlib.sha256(repr((source.name, digests, made, words)).encode()).hexdigest()
    names = ENTRY_POINTS.split() if source.name == "abi.cpp" else []
    text = f'const char stand_in_{re.sub("[^a-z0-9]", "_", output.stem)}[] = "{seal}";\n'
    text += "".join(f"int {name}(void) {{ return 1; }}\n" for name in names)
    subprocess.run([GCC, "-w", "-fPIC", "-x", "c", "-c", "-", "-o", str(output)], input=text, text=True, check=True)
    if option in arguments:
        depfile = Path(arguments[arguments.index(option) + 1])
        depfile.write_text(f"{output} : " + " \\\n  ".join(str(path.absolute()) for path in inputs) + "\n")
        if journal := os.environ.get("STAND_IN_JOURNAL"):
            me = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
            with Path(journal).open("a", encoding="utf-8") as file:
                file.write(" ".join([me, *digests]) + "\n")


def read_with_includes(source: Path, folders: list[Path]) -> list[Path]:
    """A source and the files that it includes with quotes, where they are found, each once."""
    found, waiting = [], [source]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.append(path)
        for name in re.findall(rb'#include "([^"]+)"', path.read_bytes()):
            candidates = [folder / os.fsdecode(name) for folder in (path.parent, *folders)]
            waiting += [next(c for c in candidates if c.is_file())] if any(c.is_file() for c in candidates) else []
    return found


if __name__ == "__main__":
    sys.exit(main())
