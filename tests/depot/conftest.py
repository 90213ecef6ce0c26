import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from flashdepot.depot import Depot

HERE = Path(__file__).parent


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def depot(tmp_path: Path, problems: list[str]) -> Depot:
    return Depot(tmp_path / "depot", on_problem=problems.append)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start ``depot_writer.py``; what still runs at the end of the test is killed."""
    with ExitStack() as stack:

        def start_one(*arguments: object) -> subprocess.Popen[str]:
            paths = [str(HERE.parents[1] / "src"), str(HERE.parent)]
            process = subprocess.Popen(
                [sys.executable, str(HERE / "depot_writer.py"), *map(str, arguments)],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start_one


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("a small file system is needed, and there is no 'mount' here")
    if done.returncode != 0:
        pytest.skip(f"a small file system is needed, and mounting one is not allowed: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def make_read_only(small_disk: Path) -> Callable[[], None]:
    """Make the small disk read-only from now on."""

    def remount() -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    return remount
