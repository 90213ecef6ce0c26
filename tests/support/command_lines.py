"""Command lines as a shell would see them, and whether those of flashdepot are ones that it takes."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from flashdepot.cli.app import app
from flashdepot.cli.common import load_host
from flashdepot.cli.options import each_target
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.library import understand
from flashdepot.resolve.project import library_request

_RECORDED_HOST = Path(__file__).parents[1] / "doctor/records/ubuntu-24.04-h100.json"
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
_PLACEHOLDER = re.compile(r"<[\w .-]+>")
_REDIRECTION = re.compile(r"(?<!\S)\d?(?:>>?|<)&?\s*[^\s|;&]+")
_OPERATORS = frozenset("();<>|&")
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)


def commands(script: str) -> Iterator[list[str]]:
    """The words of each simple command of a shell script, without assignments and redirections before and after it.

    ``$(...)`` counts as a command of its own, and as one word where it stands; so does a placeholder like ``<jobs>``.
    """
    script = _PLACEHOLDER.sub("80", script.replace("\\\n", " "))
    while _SUBSTITUTION.search(script):
        for inner in _SUBSTITUTION.findall(script):
            yield from commands(inner)
        script = _SUBSTITUTION.sub("SUBSTITUTED", script)
    for line in script.splitlines():
        yield from _commands_of_line(line)


def _commands_of_line(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(_REDIRECTION.sub("", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for token in lexer:
        if set(token) <= _OPERATORS:
            yield from [_without_assignments(words)] if words else []
            words = []
        else:
            words.append(token)
    if words:
        yield _without_assignments(words)


def _without_assignments(words: list[str]) -> list[str]:
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    return words


def flashdepot_commands(script: str) -> list[list[str]]:
    """The arguments of every call of flashdepot in a script."""
    found = (words for words in commands(script) if words)
    return [
        words[1:] for words in found if words[0] == "flashdepot" or words[0].endswith(("/flashdepot", "\\flashdepot"))
    ]


def complaint(words: Sequence[str]) -> str | None:
    """What flashdepot has against a command line before it does anything, or ``None``: files need not be there."""
    try:
        _parse(app, "flashdepot", list(words), None)
    except click.UsageError as error:
        return error.format_message()
    except FlashdepotError as error:
        return error.message
    return None


def _parse(command: click.Command, name: str, words: list[str], parent: click.Context | None) -> None:
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    if isinstance(command, click.Group):
        found = command.get_command(context, words[0]) if words else None
        if found is not None:
            _parse(found, words[0], words[1:], context)
        elif not any(word in parameter.opts for word in words[:1] for parameter in command.get_params(context)):
            raise click.UsageError(f"There is no command {' '.join([name, *words[:1]])!r}.")
        return
    values, rest, order = command.make_parser(context).parse_args(list(words))
    if values.get("help"):
        return
    for parameter in click.core.iter_params_for_processing(order, command.get_params(context)):
        _, rest = _without_files(parameter).handle_parse_result(context, values, rest)
    if rest:
        raise click.UsageError(f"'{rest[0]}' is one argument too many for {name!r}.")
    _require_understood(context.params, several=command.name == "wheel")


def _without_files(parameter: click.Parameter) -> click.Parameter:
    """The parameter without what it would do to the disk of whoever uses it."""
    tame = copy.copy(parameter)
    tame.callback = None
    if isinstance(tame.type, click.Path | click.File):
        tame.type = click.STRING
    return tame


def _require_understood(values: dict[str, Any], *, several: bool) -> None:
    """A selection's words mean something, on a machine with a GPU; :raises FlashdepotError: if they do not."""
    asked = {name: values.get(name) for name in LibraryRequest.__struct_fields__}
    words = {name: value for name, value in asked.items() if isinstance(value, str) and value}
    if words.get("arch") == "list":
        return
    if not re.fullmatch(r"\d[\w.]*", words.get("upstream", "")):
        words.pop("upstream", None)  # a folder or a commit would be fetched
    if "/" in words.get("cuda", ""):
        words.pop("cuda")  # a toolkit's folder would be read
    for one in each_target(words) if several else [words]:
        understand(library_request(**one), load_host(_RECORDED_HOST), Depot(Path("/nonexistent")))
