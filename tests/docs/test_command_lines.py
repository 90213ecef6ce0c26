"""Every command line that a document shows is one that flashdepot takes, with options and words that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from flashdepot.cli.app import app
from flashdepot.diagnose.explain.rules import load_rules
from support.documents import DOCUMENTS, complaint, flashdepot_commands, name_of, read_page


def shown(path: Path) -> list[list[str]]:
    """The arguments of flashdepot in code blocks of any language, and in code spans that begin with its name."""
    page = read_page(path)
    scripts = [fence.text for fence in page.fences if fence.language == "sh"]
    others = [line for fence in page.fences if fence.language != "sh" for line in fence.text.splitlines()]
    spans = [span.replace("\\|", "|").split("|")[0] for span in page.spans]
    lines = [line.strip() for line in (*others, *spans) if "flashdepot " in line]
    beginning = [line for line in lines if re.match(r"(\S*[/\\])?flashdepot ", line)]
    return [words for script in (*scripts, *beginning) for words in flashdepot_commands(script)]


def all_commands(command: click.Command, words: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [(words, command)]
    context = click.Context(command)
    inner = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [found for name, sub in inner if sub for found in all_commands(sub, (*words, name))]


COMMANDS = dict(all_commands(app, ()))
NAMES = {words[:count] for words in COMMANDS for count in range(len(words) + 1)}
"""What is said when a command is talked about, and not what is typed."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_flashdepot_takes_every_command_line_of_a_document(path: Path) -> None:
    lines = [words for words in shown(path) if tuple(words) not in NAMES]
    refused = {" ".join(words): complaint(words) for words in lines}
    assert not {line: said for line, said in refused.items() if said}


def test_flashdepot_takes_every_command_line_that_explain_advises() -> None:
    calls = re.compile(r"(?<![\w'-])flashdepot ((?:get|build|install|link|depot|check|vendor|doctor)\b[^#;,]*)")
    advised = [call.strip() for rule in load_rules() for line in rule.fix for call in calls.findall(line)]
    lines = [re.sub(r"\{\w+\}", "90", call).split() for call in advised]
    assert len(lines) > 10
    refused = {" ".join(words): complaint(words) for words in lines}
    assert not {line: said for line, said in refused.items() if said}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_flashdepot_takes_the_examples_of_its_own_help(words: tuple[str, ...]) -> None:
    examples = flashdepot_commands((COMMANDS[words].epilog or "").replace("\b", ""))
    assert examples or words[-1] in {"stats", "ls", "rm", "revoke", "path", "init", "verify"}, "one word says it all"
    assert not {" ".join(example): said for example in examples if (said := complaint(example))}


def test_every_command_is_in_a_document() -> None:
    everywhere = [tuple(words) for path in DOCUMENTS for words in shown(path)]
    assert not [words for words in COMMANDS if not any(line[: len(words)] == words for line in everywhere)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("get --fast", "--fast"),
        ("depot", "no command"),
        ("get --profile fast", "'fast' is not a profile"),
        ("get --arch 80,banana", "banana"),
    ],
)
def test_a_wrong_command_line_is_seen(line: str, said: str) -> None:
    found = complaint(line.split())
    assert found is not None
    assert said in found
