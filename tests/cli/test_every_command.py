"""What holds for every command: its common options, and how a mistake is answered."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from flashdepot.cli.app import app
from support.tools import at_a_terminal, flashdepot_here


def every_command(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from every_command(command, (*words, name))
        else:
            yield (*words, name), command


COMMANDS = dict(every_command(app))


def flashdepot(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashdepot", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=environment, timeout=120)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_it_takes_json_quiet_verbose_and_offline(words) -> None:
    taken = {option for parameter in COMMANDS[words].params for option in parameter.opts}
    assert not {"--json", "-q", "--quiet", "-v", "--verbose", "--offline"} - taken


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_wrong_option_is_answered_in_json_where_json_is_asked_for(words) -> None:
    done = flashdepot_here(*words, "--bogus", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"] == 2
    assert document["status"] == "error"
    assert "--bogus" in document["message"]
    assert f"{' '.join(words)} --help" in document["hint"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("get", "--out", ""), "--out"),
        (("get", "--out=", "--dry-run"), "--out"),
        (("depot", "gc", "--yes", "--remove", ""), "--remove"),
        (("depot", "show", ""), "One of the words"),
        (("check", ""), "One of the words"),
        (("-q", "vendor", ""), "One of the words"),
    ],
)
def test_a_word_that_is_empty_is_not_this_folder_nor_any_key(tmp_path, words, named) -> None:
    done = flashdepot_here(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert named in done.stderr
    assert "empty" in done.stderr
    assert not list(tmp_path.iterdir())


def test_words_of_another_program_may_be_empty() -> None:
    assert flashdepot_here("explain", "-q", "--", "test", "", "=", "").returncode == 0


@pytest.mark.parametrize("words", ["--json depot path", "depot --json path", "depot path --json"])
def test_a_common_option_stands_before_the_command_or_after_it(words, tmp_path) -> None:
    done = flashdepot_here(*words.split(), FLASHDEPOT_HOME=str(tmp_path))
    assert json.loads(done.stdout) == {"path": str(tmp_path)}


def test_an_option_in_the_wrong_place_or_a_wrong_word_has_no_traceback() -> None:
    done = flashdepot_here("-v", "--profile", "quick", "get")
    assert done.stderr == "error: No such option '--profile'.\n  flashdepot get -v --profile quick\n"
    assert "cannot run" in flashdepot_here("get", "--arch", "75", "-v").stderr


def test_an_empty_variable_does_not_make_the_current_folder_a_depot(tmp_path) -> None:
    assert flashdepot_here("depot", "path", cwd=tmp_path, FLASHDEPOT_HOME="").stdout.strip() != str(tmp_path)


def test_offline_is_an_option_and_a_variable(tmp_path) -> None:
    depot = str(tmp_path / "depot")
    by_option = flashdepot_here("catalog", "update", "--offline", FLASHDEPOT_HOME=depot)
    by_variable = flashdepot_here("catalog", "update", FLASHDEPOT_HOME=depot, FLASHDEPOT_OFFLINE="1")
    assert by_option.returncode == by_variable.returncode == 7
    assert by_option.stderr == by_variable.stderr
    assert "--offline or FLASHDEPOT_OFFLINE forbids it" in by_option.stderr


def test_quiet_leaves_only_results(tmp_path) -> None:
    depot = ("--depot", str(tmp_path / "depot"))
    assert flashdepot_here("depot", "ls", *depot).stderr
    assert flashdepot_here("depot", "ls", *depot, "-q").stderr == ""


def test_verbose_shows_what_is_run(tmp_path) -> None:
    words = ("host", "--python", sys.executable)
    assert "python_facts.py" in flashdepot(*words, "-v", cwd=tmp_path).stderr
    assert "python_facts.py" not in flashdepot(*words, cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)]
)  # fmt: skip
def test_an_error_is_coloured_on_a_terminal_unless_that_is_not_wanted(variables, coloured, tmp_path) -> None:
    seen = at_a_terminal("get", "--profile", "quik", cwd=tmp_path, environment={"NO_COLOR": "", **variables})
    assert ("\x1b[31m" in seen.shown) == coloured
    assert "error:" in seen.shown
    assert "\x1b" not in flashdepot("get", "--profile", "quik", cwd=tmp_path).stderr


def test_an_internal_error_is_one_sentence_and_a_traceback_only_on_request(tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import flashdepot.cli.common\ndef fail(_): raise KeyError('surprise')\nflashdepot.cli.common.open_depot = fail\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    short = flashdepot("depot", "path", "--json", cwd=tmp_path, PYTHONPATH=path)
    long = flashdepot("depot", "path", "-v", cwd=tmp_path, PYTHONPATH=path)
    assert short.returncode == long.returncode == 1
    assert json.loads(short.stdout)["exit_code"] == 1
    assert "Internal error" in short.stderr
    assert "KeyError: 'surprise'" in short.stderr
    assert "Traceback" not in short.stderr
    assert "Traceback" in long.stderr


@pytest.mark.parametrize(
    ("beginning", "offered"),
    [
        ("ins", ["install"]),
        ("depot g", ["gc"]),
        ("get --profile i", ["inference"]),
        ("get --passes fwd,s", ["fwd,splitkv"]),
        ("get --head-dims 64,12", ["64,128"]),
        ("get --features dropout,ali", ["dropout,alibi"]),
        ("get --target windows", ["windows-x86_64"]),
        ("get --arch u", ["universal"]),
        ("get --upstream 2.8.3.post2", ["2.8.3.post2"]),
        ("build --compress-mode sp", ["speed"]),
        ("link candle --candle-version 0.9.2-alpha.1", ["0.9.2-alpha.1"]),
    ],
)
def test_the_shell_completes_names_and_values(beginning, offered, tmp_path) -> None:
    done = flashdepot(
        cwd=tmp_path,
        _FLASHDEPOT_COMPLETE="bash_complete",
        COMP_WORDS=f"flashdepot {beginning}",
        COMP_CWORD=str(len(beginning.split())),
    )
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == offered
