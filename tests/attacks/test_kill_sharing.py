"""``kill -9`` at random moments, over the commands that share: keys rotate, depot push, depot pull, index, publish.

``FLASHDEPOT_KILLS=100`` makes many more than the usual few, ``FLASHDEPOT_KILL_SEED`` others.

After each kill the key that signs is whole and trusted, every blob of the remote has the bytes of its name, every record
there can be read and has its blobs, what the index holds is whole, and the depots are undamaged. At the end each command,
run once more, does its work, and a reader gets the library.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flashdepot.api import publishing
from flashdepot.depot import Depot
from flashdepot.depot.verify import verify
from flashdepot.model.index_record import RECORD_NAME, IndexRecord
from flashdepot.remotes.keys import choose_key
from flashdepot.remotes.trust import read_envelopes
from flashdepot.remotes.user_settings import UserSettings
from support.machines import World, make_machine

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9 and os.fork"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]
KILLS = int(os.environ.get("FLASHDEPOT_KILLS", "3"))
SEED = int(os.environ.get("FLASHDEPOT_KILL_SEED", "20261123"))
MATRIX = 'index = "public"\n[matrix]\nupstream = "9.9.9"\ncuda = "13.0"\nprofile = ["quick"]\narch = ["80,90"]\n'
WISH = ("--upstream", "9.9.9", "--profile", "quick", "--arch", "80,90", "--cuda", "13.0")


@dataclass
class Report:
    """Kills by command, how many commands had ended before, and what went wrong."""

    kills: dict[str, int] = field(default_factory=dict)
    ended: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))
        text = f"{sum(self.kills.values())} kills ({kills}), {self.ended} commands had ended before; "
        return text + f"{len(self.problems)} problems" + "".join(f"\n  {problem}" for problem in self.problems)


class House:
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
        self._usual = {name: self._timed(name) for name in COMMANDS}
        self.look()

    @property
    def settings(self) -> UserSettings:
        return UserSettings(self.builder.settings / "flashdepot")

    def kill_once(self) -> None:
        """Run one command, and kill it at some moment of the time that it usually takes."""
        name = self.chance.choice(list(COMMANDS))
        self._make_work(name)
        child = self._fork(name)
        time.sleep(self.chance.uniform(0.0, 1.1 * self._usual[name]))
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            self.report.ended += 1
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.report.kills[name] = self.report.kills.get(name, 0) + 1
        before = len(self.report.problems)
        self.look()
        self.report.problems[before:] = [f"after {name}: {text}" for text in self.report.problems[before:]]

    def finish(self) -> None:
        """Run every command to its end; what was killed must be in nobody's way, and a reader gets the library."""
        for name in COMMANDS:
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
        key = choose_key(self.settings, None, {})
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
            self.reader.run("keys", "trust", str(choose_key(self.settings, None, {}).public))
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
            COMMANDS[name](self)
        except BaseException:  # noqa: BLE001  (the child has nobody above it)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)


COMMANDS: dict[str, Callable[[House], object]] = {
    "keys rotate": lambda house: house.builder.run("keys", "rotate"),
    "depot push": lambda house: house.builder.push("--to", "team"),
    "depot pull": lambda house: house.reader.run("depot", "pull", *WISH, "--depot", str(house.reader.depot)),
    "index": lambda house: house.builder.run("index", str(house.public), "--depot", str(house.builder.depot)),
    "publish": lambda house: house.builder.run(
        "publish", str(house.folder / "publish.toml"), "-y", "--depot", str(house.builder.depot)
    ),
}


def test_commands_that_share_and_are_killed_lose_no_key_and_tear_no_record(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(world, tmp_path / "house", monkeypatch, SEED)
    while sum(house.report.kills.values()) < KILLS:
        house.kill_once()
    house.finish()
    sys.stdout.write(f"{house.report}\n")
    assert house.report.problems == []
