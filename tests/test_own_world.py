"""The tests' own world: a home without anything in it, guards before the user's, and broken tools that are skips."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from support import own_world
from support.tools import has, posix, run_program, tool

USERS = own_world.users_home()
PYTHON = [sys.executable, "-c", ""]
REACHES: dict[str, Callable[[], object]] = {
    "keys": (USERS / ".config/flashdepot/keys.toml").open,
    "a password": (USERS / ".netrc").read_text,
    "settings": lambda: [*(USERS / ".config").iterdir()],
    "a depot": lambda: [*(USERS / ".cache/flashdepot/blobs").iterdir()],
    "a child with the user's home": lambda: subprocess.run(PYTHON, env={"HOME": str(USERS)}, check=True),
    "a child that looks its home up": lambda: subprocess.run(PYTHON, env={}, check=True),
}


def test_the_home_of_a_test_is_empty_for_its_children_too(home) -> None:
    code = "import os; print(os.environ['HOME'], os.listdir(os.environ['HOME']), 'FLASHDEPOT_HOME' in os.environ)"
    assert run_program([sys.executable, "-c", code]) == f"{home} [] False\n"
    assert home != USERS


@pytest.mark.skipif(os.name != "posix", reason="a home that is named by HOME")
@pytest.mark.parametrize("what", REACHES)
def test_a_test_that_reaches_for_the_users_own_fails(what) -> None:
    with pytest.raises(AssertionError, match="a world of their own"):
        REACHES[what]()
    assert len(own_world.touched()) == 1, "the home fixture would fail the test that swallowed the error"


@posix("shell scripts")
def test_a_program_that_is_there_and_does_not_work_is_skipped_with_its_words(tmp_path, monkeypatch) -> None:
    program = tmp_path / "broken-tool"
    program.write_text("#!/bin/sh\necho 'no default toolchain' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert not has("broken-tool")
    with pytest.raises(pytest.skip.Exception, match="broken-tool does not work: no default toolchain"):
        tool("broken-tool")


def test_a_fast_test_that_starts_a_compiler_fails() -> None:
    with pytest.raises(AssertionError, match="not marked slow"):
        subprocess.run(["gcc", "--version"], check=False)
    assert len(own_world.touched()) == 1
