"""A Dask cluster of real processes, and builds on it by a compiler that does what its sources say."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from flashdepot.depot import Depot
from support.toolkits import make_toolkit, put_zig

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "src"
NEEDS_DASK = pytest.mark.skipif(
    sys.platform != "linux" or find_spec("distributed") is None, reason="needs Linux and the extra farm: distributed"
)
PATIENCE = 120.0
"""Seconds that a test waits for what takes one or two: the machine may have other things to do."""


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Wait until something is there, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited too long for {what}"
        time.sleep(0.02)
    return found


@dataclass
class Farm:
    """A scheduler and workers. ``journal`` is what the compilers on them have done."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    clients: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cuda = self.folder / "cuda"
        make_toolkit(self.cuda, "13.0")
        put_zig(self.folder / "depot" / "toolchains", f"#!{sys.executable}\n")

    @property
    def file(self) -> Path:
        return self.folder / "scheduler.json"

    @property
    def address(self) -> str:
        return str(json.loads(self.file.read_text())["address"])

    @property
    def journal(self) -> list[str]:
        path = self.folder / "journal"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGE), str(TESTS), os.environ.get("PYTHONPATH")])),
            "FLASHDEPOT_HOME": str(self.folder / "depot"),
            "FLASHDEPOT_OFFLINE": "1",
            "FAKE_JOURNAL": str(self.folder / "journal"),
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
            **self.variables,
        }

    def start(self, workers: int = 0) -> None:
        """Start a scheduler, and workers next to it."""
        self.file.unlink(missing_ok=True)
        words = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file))
        self.scheduler = self._start("dask_scheduler", words, self.environment)
        wait_for(self._is_up, "the scheduler")
        self.workers = [self.add_worker() for _ in range(workers)]

    def add_worker(self, *options: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a worker that declares 4 GB, unless said otherwise."""
        words = ("--no-nanny", "--nthreads", "2", "--no-dashboard", "--local-directory", str(self.folder / "dask"))
        options = options or ("--resources", "memory=4e9")
        return self._start("dask_worker", (self.address, *words, *options), {**self.environment, **variables})

    def has_all_workers(self) -> bool:
        """Whether the scheduler knows every worker that was started."""
        started = sum("distributed.cli.dask_worker" in process.args for process in self.processes)
        return (self.folder / "dask_scheduler.log").read_text().count("Register worker") >= started

    def stop(self) -> None:
        """End what runs."""
        for process in (*self.processes, *self.clients):
            process.kill()
        for process in self.processes:
            process.wait()
        for client in self.clients:
            client.communicate()

    def _start(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{program}.log").open("ab") as log:
            command = [sys.executable, "-m", f"distributed.cli.{program}", *arguments]
            process = subprocess.Popen(command, env=dict(environment), stdout=log, stderr=log, start_new_session=True)
        self.processes.append(process)
        return process

    def _is_up(self) -> bool:
        assert self.scheduler.poll() is None, (self.folder / "dask_scheduler.log").read_text()
        with contextlib.suppress(OSError, ValueError):
            return bool(self.address)
        return False


@dataclass
class FarmBuild:
    """A build of sources in a folder of its own, in a process of its own."""

    folder: Path
    farm: Farm
    sources: Mapping[str, str]
    address: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def start(self) -> subprocess.Popen[str]:
        """Begin."""
        (self.folder / "src").mkdir(parents=True, exist_ok=True)
        for name, text in self.sources.items():
            (self.folder / "src" / name).write_text(text)
        if not self.address:
            wait_for(self.farm.has_all_workers, "the workers")
        named = self.address or str(self.farm.file)
        order = {"folder": str(self.folder), "farm": named, "cuda": str(self.farm.cuda), **self.options}
        command = [sys.executable, "-m", "support.farm_build", json.dumps(order)]
        environment = {**self.farm.environment, "FLASHDEPOT_HOME": str(self.folder / "depot")}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.farm.clients.append(self.process)
        return self.process

    def finish(self, seconds: float = PATIENCE) -> dict[str, Any]:
        """What came out: what :mod:`support.farm_build` prints."""
        printed, complaints = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, complaints
        answer: dict[str, Any] = json.loads(printed)
        return {**answer, "complaints": complaints}

    def run(self) -> dict[str, Any]:
        """Begin, and wait for the end."""
        self.start()
        return self.finish()

    def kept(self) -> list[str]:
        """The names of what was recorded so far."""
        actions = Depot(self.folder / "depot").actions
        return sorted(record.name for path in actions.files() if (record := actions.read(path)))

    def hung(self, mark: Path) -> psutil.Process:
        """The compiler that hangs, once it does."""

        def text() -> str:
            assert self.process.poll() is None, self.process.communicate()
            return mark.read_text() if mark.exists() else ""

        return psutil.Process(int(wait_for(text, "a compiler that hangs")))


def ends(process: psutil.Process, seconds: float) -> bool:
    """Whether a process ends within so many seconds."""
    with contextlib.suppress(psutil.NoSuchProcess):
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            return process.status() == psutil.STATUS_ZOMBIE
    return True


def kill_worker_of(compiler: psutil.Process) -> None:
    """Kill the Dask worker that a compiler runs on."""
    worker = compiler.parent()
    assert worker is not None
    worker.send_signal(signal.SIGKILL)
