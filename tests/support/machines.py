"""Machines for tests of remotes: each has a depot and settings of its own, all have the same pinned compiler and source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flashdepot.cli.app import app
from support.stand_in_world import World


@dataclass
class Machine:
    """A machine, and what its last command said to its user."""

    world: World
    settings: Path
    monkeypatch: pytest.MonkeyPatch
    said: str = field(default="", init=False)

    @property
    def depot(self) -> Path:
        return self.world.root

    def run(self, *words: str) -> Result:
        """Run a command that must succeed."""
        done = self._invoke(*words)
        if done.exception is not None:
            raise done.exception
        return done

    def get(self, *options: str, command: str = "get") -> Any:
        """Get the small library; the compilers that it took are counted by ``compiled``."""
        wish = ("--upstream", "9.9.9", "--profile", "quick", "--arch", "80,90", "--cuda", "13.0")
        done = self.run(*command.split(), *wish, *options, "--depot", str(self.depot), "--json")
        return json.loads(done.stdout)

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").stdout)

    def key(self, name: str = "") -> str:
        """Make a key; :returns: the line that others need."""
        return self.run("keys", "new", *([name] if name else ["ci"])).stdout.strip()

    def push(self, *words: str) -> Any:
        return json.loads(self.run("depot", "push", *words, "--depot", str(self.depot), "--json").stdout)["pushed"]

    def _invoke(self, *words: str) -> Result:
        with self._here():
            done = CliRunner().invoke(app, list(words), standalone_mode=False)
        self.said = done.stderr
        return done

    @contextmanager
    def _here(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CONFIG_HOME", str(self.settings))
            patch.delenv("FLASHDEPOT_OFFLINE", raising=False)
            yield


def make_machine(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(replace(world, root=folder / "depot"), folder / "config", monkeypatch)
