"""Search for input that breaks a reader, led by coverage, for some seconds each.

    PYTHONPATH=tests python -m fuzz.with_atheris SECONDS [READER...]

It needs the dependency group ``fuzz``. What it finds is written to ``tests/fuzz/found`` in base64, and is a test from
then on.
"""

import base64
import hashlib
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["flashdepot", "pypi_simple", "tarfile", "zipfile", "tomllib"]):
    from fuzz.readers import READERS

FOUND = Path(__file__).parent / "found"


def search(name: str, seconds: int) -> None:
    """Search one reader in this process; it ends by itself."""
    reader = READERS[name]

    def read(data: bytes) -> None:
        try:
            reader(data)
        except Exception:
            path = FOUND / f"{name}.{hashlib.sha256(data).hexdigest()[:12]}"
            FOUND.mkdir(exist_ok=True)
            path.write_text(base64.encodebytes(data).decode())
            sys.stdout.write(f"{path}\n{traceback.format_exc()}")
            raise

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(reader.seeds()):
            (Path(corpus) / str(number)).write_bytes(seed)
        limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2500", "-max_len=60000", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", f"-artifact_prefix={corpus}/", corpus], read)
        atheris.Fuzz()


def main(arguments: list[str]) -> int:
    """Search all readers, each in a process of its own."""
    seconds, *names = arguments
    if len(names) == 1:
        search(names[0], int(seconds))
        return 0
    return max(
        subprocess.run([sys.executable, "-m", "fuzz.with_atheris", seconds, name], check=False).returncode
        for name in names or READERS
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
