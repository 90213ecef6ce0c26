"""``kill -9`` at random moments, over all commands that change something, several at once, and those that share.

``FLASHDEPOT_KILLS=200`` makes many more than the usual few, ``FLASHDEPOT_KILL_SEED`` others.

Afterwards nothing runs that was started by what was killed, no unit was compiled by two at once or again after it was
recorded, the key that signs is whole and trusted, every byte of the depots, the remote and the index is right, each
record can be read and has its blobs, and each command, run once more, does its work.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from flashdepot.api import publishing
from flashdepot.depot import Depot
from flashdepot.depot.verify import verify
from flashdepot.model.index_record import RECORD_NAME, IndexRecord
from flashdepot.remotes.keys import choose_key
from flashdepot.remotes.trust import read_envelopes
from flashdepot.remotes.user_settings import UserSettings
from support.machines import World, make_machine
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

    kills: Counter[str] = field(default_factory=Counter)
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
        """Start a command in a session of its own, so that a kill hits only it."""
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


def test_commands_that_are_killed_leave_nothing_running_and_nothing_broken(tmp_path, upstream_tree) -> None:
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


MATRIX = 'index = "public"\n[matrix]\nupstream = "9.9.9"\ncuda = "13.0"\nprofile = ["quick"]\narch = ["80,90"]\n'
WISH = ("--upstream", "9.9.9", "--profile", "quick", "--arch", "80,90", "--cuda", "13.0")


class Sharers:
    """A builder, a reader and a folder remote between them."""

    def __init__(self, world: World, folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.folder, self.chance, self.report = folder, random.Random(seed), Report()
        monkeypatch.setattr(publishing, "verify_wheel", lambda *_: None)  # stand-in compilers make no machine code
        monkeypatch.delenv("FLASHDEPOT_SIGNING_KEY", raising=False)
        self.builder = make_machine(world, folder / "builder", monkeypatch)
        self.reader = make_machine(world, folder / "reader", monkeypatch)
        self.remote, self.public = folder / "remote", folder / "public"
        self.remote.mkdir(parents=True)
        (folder / "publish.toml").write_text(MATRIX)
        self.builder.key()
        self.builder.run("remote", "add", "team", self.remote.as_uri(), "--push", "--timeout", "60")
        self.builder.get()
        self._usual = {name: self._timed(name) for name in SHARING}
        self.look()

    @property
    def settings(self) -> UserSettings:
        return UserSettings(self.builder.settings / "flashdepot")

    def kill_once(self) -> None:
        """Run one command, and kill it at some moment of the time that it usually takes."""
        name = self.chance.choice(list(SHARING))
        self._make_work(name)
        child = self._fork(name)
        time.sleep(self.chance.uniform(0.0, 1.1 * self._usual[name]))
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            self.report.ended += 1
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.report.kills[name] += 1
        before = len(self.report.problems)
        self.look()
        self.report.problems[before:] = [f"after {name}: {text}" for text in self.report.problems[before:]]

    def finish(self) -> None:
        """Run every command to its end; what was killed must be in nobody's way, and a reader gets the library."""
        for name in SHARING:
            self._make_work(name)
            if os.waitpid(self._fork(name), 0)[1]:
                self.report.problems.append(f"{name} failed: {(self.folder / 'said').read_text()[-800:]}")
        self.look()

    def look(self) -> None:
        """Add all that is wrong now to the report."""
        for check in (self._look_at_keys, self._look_at_remote, self._look_at_index, self._look_at_depots):
            try:
                check()
            except Exception as error:  # noqa: BLE001, PERF203  (whatever is wrong is a result)
                self.report.problems.append(f"{check.__name__}: {type(error).__name__}: {error}")

    def _look_at_keys(self) -> None:
        key = choose_key(self.settings)
        known = [one for one in self.settings.trusted_keys() if one.key.id == key.public.id]
        if not known or known[0].revoked is not None:
            raise AssertionError("the key that signs is not trusted")

    def _look_at_remote(self) -> None:
        names = {path.name for path in self.remote.glob("blobs/*/*/*")}
        for path in self.remote.glob("blobs/*/*/*"):
            if hashlib.sha256(path.read_bytes()).hexdigest() != path.name:
                raise AssertionError(f"{path.name} has other bytes")
        for path in self.remote.glob("signed/**/*.json"):
            for envelope in read_envelopes(path.read_bytes()):
                statement = json.loads(envelope.payload)
                digests = {one["digest"]["sha256"] for one in statement["subject"]}
                if path.parts[-3] in {"units", "libraries"} and not digests <= names:
                    raise AssertionError(f"{path.name} names a blob that is not there")

    def _look_at_index(self) -> None:
        if (path := self.public / RECORD_NAME).exists():
            for row in IndexRecord.from_json(json.loads(path.read_bytes())).wheels:
                wheel = self.public / "files" / row.filename
                if hashlib.sha256(wheel.read_bytes()).hexdigest() != row.sha256:
                    raise AssertionError(f"{row.filename} has other bytes than the list says")

    def _look_at_depots(self) -> None:
        for root in (self.builder.depot, self.reader.depot):
            if root.exists() and (problems := verify(Depot(root)).problems):
                raise AssertionError(str(problems))

    def _make_work(self, name: str) -> None:
        """Take away what an earlier run has made, now and then, so that there is something to do."""
        if name == "depot pull":
            shutil.rmtree(self.reader.depot, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                (self.reader.settings / "flashdepot" / "keys.toml").unlink()
            self.reader.run("keys", "trust", str(choose_key(self.settings).public))
            self.reader.run("remote", "add", "team", self.remote.as_uri(), "--timeout", "60")
            self.builder.push("--to", "team")
        elif self.chance.random() < 0.7:
            for folder in {
                "depot push": [self.remote],
                "index": [self.public],
                "publish": [self.remote, self.public],
            }.get(name, []):
                shutil.rmtree(folder, ignore_errors=True)
            self.remote.mkdir(exist_ok=True)

    def _timed(self, name: str) -> float:
        self._make_work(name)
        began = time.monotonic()
        if os.waitpid(self._fork(name), 0)[1]:
            raise AssertionError(f"{name}: {(self.folder / 'said').read_text()}")
        return time.monotonic() - began

    def _fork(self, name: str) -> int:
        child = os.fork()
        if child:
            return child
        try:
            with (self.folder / "said").open("w") as said:
                os.dup2(said.fileno(), 2)
            SHARING[name](self)
        except BaseException:  # noqa: BLE001  (the child has nobody above it)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)


SHARING: dict[str, Callable[[Sharers], object]] = {
    "keys rotate": lambda house: house.builder.run("keys", "rotate"),
    "depot push": lambda house: house.builder.push("--to", "team"),
    "depot pull": lambda house: house.reader.run("depot", "pull", *WISH, "--depot", str(house.reader.depot)),
    "index": lambda house: house.builder.run("index", str(house.public), "--depot", str(house.builder.depot)),
    "publish": lambda house: house.builder.run(
        "publish", str(house.folder / "publish.toml"), "-y", "--depot", str(house.builder.depot)
    ),
}


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_commands_that_share_and_are_killed_lose_no_key_and_tear_no_record(world, tmp_path, monkeypatch) -> None:
    house = Sharers(world, tmp_path / "house", monkeypatch, SEED)
    while sum(house.report.kills.values()) < KILLS:
        house.kill_once()
    house.finish()
    sys.stdout.write(f"{house.report}\n")
    assert house.report.problems == []
