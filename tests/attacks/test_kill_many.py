"""``kill -9`` at random moments, over all commands that change something, several at once.

``FLASHDEPOT_KILLS=200`` makes many more than the usual few, ``FLASHDEPOT_KILL_SEED`` others.

Afterwards: nothing runs that was started by what was killed, no unit was compiled by two at once or again after it was
recorded, every byte of the depot is right, and each command, run once more, does its work.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from flashdepot.depot import Depot
from flashdepot.depot.verify import verify
from support.toolkits import StandIns, make_stand_ins
from support.upstreams import make_toy_upstream
from support.venvs import Venv, add_torch, make_environment

LONGEST_LIFE = 5.0
"""Seconds within which all that a killed command had started must have ended."""

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("g++") is None, reason="needs kill -9, and a g++ for the stand-ins"
)
KILLS = int(os.environ.get("FLASHDEPOT_KILLS", "4"))
SEED = int(os.environ.get("FLASHDEPOT_KILL_SEED", "20261121"))
COMMANDS = ("get", "build", "depot gc", "wheel", "install", "vendor")
AT_ONCE = 4


@dataclass
class Report:
    """What happened: kills by command, the longest that anything outlived one, and what went wrong."""

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COMMANDS, 0))
    ended: int = 0
    compiles: int = 0
    longest_life: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {count}" for name, count in self.kills.items())
        return (
            f"{sum(self.kills.values())} kills ({kills}), {self.ended} commands had ended before; "
            f"{self.compiles} compiles; nothing outlived its command by more than {self.longest_life:.2f} s; "
            f"{len(self.problems)} problems{''.join(f'{chr(10)}  {problem}' for problem in self.problems)}"
        )


class House:
    """A toy source, stand-in compilers, a depot, a project and an environment in one folder."""

    def __init__(self, folder: Path, real_source: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.report = Report()
        self.compilers: StandIns = make_stand_ins(folder / "compilers", 0.2)
        self.compilers.put_zig(folder / "depot" / "toolchains")
        self.tree = make_toy_upstream(folder / "tree", real_source)
        interface = self.tree / "flash_attn" / "flash_attn_interface.py"
        interface.write_text("import torch\nimport flash_attn_2_cuda\nflash_attn_func = print\n")
        with (self.tree / "flash_attn" / "__init__.py").open("a") as package:
            package.write("from flash_attn.flash_attn_interface import flash_attn_func\n")
        make_environment(folder / "venv", with_pip=False)
        self.environment = Venv(folder / "venv")
        add_torch(self.environment)
        self._generation = 0
        self._before: set[Path] = set()
        self.finish()
        self.change_source()
        begun = time.monotonic()
        self.start("get").wait()
        self._usual = time.monotonic() - begun

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command in a session of its own, so that a kill hits it alone."""
        words = [sys.executable, "-m", "flashdepot", *command.split(), "--depot", str(self.folder / "depot")]
        if command == "depot gc":
            words += ["--older-than", "0", "--yes"]
        else:
            words += ["--upstream", str(self.tree), "--profile", "full", "--arch", "80", "--jobs", "3"]
            words += ["--cuda", str(self.compilers.cuda)]
        words += {
            "wheel": ["--out", str(self.folder / f"dist-{self._generation}")],
            "vendor": [str(self.folder / "project" / "prebuilt")],
            "install": ["--python", str(self.environment.python), "--source", "ours", "-y"],
        }.get(command, [])
        kept = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "CONDA_PREFIX"}}
        environment = {**kept, **self.compilers.environment, "FLASHDEPOT_OFFLINE": "1"}
        with (self.folder / f"{command.replace(' ', '-')}.log").open("wb") as log:
            return subprocess.Popen(
                words, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
            )

    def change_source(self) -> None:
        """Edit the headers: every unit has to be compiled again."""
        self._generation += 1
        self._before = set(self._depot.actions.files())
        for header in (self.tree / "csrc/flash_attn/src").glob("toy_*.h"):
            header.write_text(f"{header.read_text().partition('// ')[0]}// {self._generation}\n")

    def kill_round(self) -> None:
        """Start some commands, kill each at a moment of its own, and look at what is left."""
        recorded, journal = self._recorded(), len(self.compilers.journal())
        commands = self.chance.sample(COMMANDS, AT_ONCE)
        processes = [(command, self.start(command)) for command in commands]
        moments = sorted((self.chance.uniform(0.0, 1.5 * self._usual), *pair) for pair in processes)
        begun = time.monotonic()
        for moment, command, process in moments:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, moment - (time.monotonic() - begun)))
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                self.report.kills[command] += 1
            else:
                self.report.ended += 1
        self._wait_for_silence()
        lines = self.compilers.journal()[journal:]
        self.report.compiles += sum(line.startswith("start ") for line in lines)
        self.report.problems += [line for line in lines if line.startswith("twice ")]
        again = {line.removeprefix("start ") for line in lines if line.startswith("start ")} & recorded
        self.report.problems += [f"{name} was compiled again after it was recorded" for name in sorted(again)]
        self.report.problems += verify(self._depot).problems

    def finish(self) -> None:
        """Run every command to its end: what was killed must be in nobody's way."""
        for command in COMMANDS:
            process = self.start(command)
            if process.wait(timeout=300) != 0:
                log = (self.folder / f"{command.replace(' ', '-')}.log").read_text(errors="replace")
                self.report.problems.append(f"{command} ended with {process.returncode}: {log.strip()[-500:]}")
        self._require_import()
        self._wait_for_silence()
        self.report.problems += verify(self._depot).problems
        # Single files that were on their way stay for an hour: gc cannot tell whose they are.
        leftovers = (self.folder / "depot" / "tmp").glob("work-*")
        self.report.problems += [f"{path.name} was left in tmp/" for path in leftovers]

    def _require_import(self) -> None:
        try:
            self.environment.imports("flash_attn")
        except AssertionError as error:
            self.report.problems.append(f"what was installed cannot be imported: {error}")

    @property
    def _depot(self) -> Depot:
        return Depot(self.folder / "depot")

    def _recorded(self) -> set[str]:
        """The sources whose actions answer for them as they are now."""
        depot = self._depot
        records = [(path, depot.actions.read(path)) for path in depot.actions.files()]
        ours = {record.name.removeprefix("native-") for _, record in records if record and "native-" in record.name}
        return ours | {r.name for path, r in records if r and path not in self._before and "native-" not in r.name}

    def _wait_for_silence(self) -> None:
        begun = time.monotonic()
        while left := running_in(self.folder):
            if time.monotonic() - begun > 2 * LONGEST_LIFE:
                self.report.problems += [f"still running: {line}" for line in left]
                return
            time.sleep(0.02)
        self.report.longest_life = max(self.report.longest_life, time.monotonic() - begun)


def running_in(folder: Path) -> list[str]:
    """The command lines of all processes that name a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if str(folder) in line and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(line)
    return found


def test_commands_that_are_killed_leave_nothing_running_and_nothing_broken(tmp_path: Path, upstream_tree: Path) -> None:
    house = House(tmp_path, upstream_tree, SEED)
    rounds = 0
    while sum(house.report.kills.values()) < KILLS:
        if rounds % 3 == 0:
            house.change_source()
        house.kill_round()
        rounds += 1
        if rounds % 10 == 0:
            house.finish()
    house.finish()
    sys.stdout.write(f"{house.report}\n")
    assert house.report.problems == []
    assert house.report.longest_life < LONGEST_LIFE
