"""The project's documents: their pages, their command lines, and their commands as one script."""

import copy
import os
import re
import shlex
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE
from typing import Any

import click
from markdown_it import MarkdownIt
from markdown_it.token import Token

from flashdepot.cli.app import app
from flashdepot.cli.options import Wanted
from flashdepot.depot import Depot
from flashdepot.errors import FlashdepotError
from flashdepot.host import saved_host
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.library import resolve_library
from support.tools import has

ROOT = Path(__file__).parents[2]
PATTERNS = ("README*.md", "CONTRIBUTING.md", "docs/*.md", "examples/**/README.md", "benchmarks/*.md")
DOCUMENTS = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


_MARK = re.compile(r"<!--\s*(needs|file)\b:?\s*(.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Mark:
    """The comment right before a code block: ``<!-- needs gpu: why -->`` or ``<!-- file: NAME -->``."""

    kind: str
    text: str


@dataclass(frozen=True)
class Fence:
    language: str
    text: str
    line: int
    mark: Mark | None


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    anchor: str


@dataclass(frozen=True)
class Page:
    path: Path
    headings: tuple[Heading, ...]
    links: tuple[str, ...]
    fences: tuple[Fence, ...]
    spans: tuple[str, ...]
    table_rows: tuple[int, ...]
    """Rows of each table, its head counted in."""


@cache
def read_page(path: Path) -> Page:
    return parse_page(path, path.read_text(encoding="utf-8"))


def parse_page(path: Path, text: str) -> Page:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    targets = (str(child.attrGet("href") or child.attrGet("src") or "") for child in inline)
    return Page(
        path,
        headings=tuple(_headings(tokens)),
        links=tuple(target for target in targets if target),
        fences=tuple(_fences(tokens)),
        spans=tuple(child.content for child in inline if child.type == "code_inline"),
        table_rows=tuple(_table_rows(tokens)),
    )


def _headings(tokens: list[Token]) -> Iterator[Heading]:
    """Headings with the anchors that Git hosts and MyST give them."""
    seen: Counter[str] = Counter()
    for opened, content in pairwise(tokens):
        if opened.type == "heading_open":
            text = "".join(child.content for child in content.children or ())
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            yield Heading(int(opened.tag[1]), text, f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1


def _fences(tokens: list[Token]) -> Iterator[Fence]:
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "fence":
            comment = _MARK.fullmatch(before.content.strip()) if before and before.type == "html_block" else None
            mark = Mark(comment[1], comment[2]) if comment else None
            line = token.map[0] + 1 if token.map else 0
            yield Fence(token.info.split()[0] if token.info.strip() else "", token.content, line, mark)


def _table_rows(tokens: list[Token]) -> Iterator[int]:
    rows = 0
    for token in tokens:
        rows += token.type == "tr_open"
        if token.type == "table_close":
            yield rows
            rows = 0


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
    """The parameter without what it would do to the user's disk."""
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
    wanted = Wanted(words)
    for one in wanted.each_target() if several else [wanted]:
        resolve_library(one.named, saved_host(_RECORDED_HOST), Depot(Path("/nonexistent")))


COMMAND_LANGUAGES = frozenset({"sh", "bash", "shell", "console", "zsh", "bat", "cmd", "batch", "powershell", "ps1"})
RUNNABLE = "sh"
NEEDS = frozenset({"gpu", "windows", "network", "time", "docker", "failure"})
"""What a block may need that the tests have not; ``time`` is minutes of compiling, ``failure`` something that is broken."""

_NEED = re.compile(r"(\w+(?:, \w+)*): \S.{9,}", re.DOTALL)
_TOOLS = frozenset({"cargo", "cc", "c++", "cmake", "ctest", "g++", "gcc", "git", "git-lfs", "pkg-config", "readelf"})


@dataclass(frozen=True)
class DocumentScript:
    """A script for bash, how many blocks it runs, and the missing tools for which others are left out."""

    text: str
    blocks: int
    missing: tuple[str, ...]


def unmarked(page: Page) -> list[str]:
    """Complaints about blocks of commands that neither run nor say what they need, and why."""
    return [f"line {fence.line}: {said}" for fence in page.fences if (said := _complaint(fence))]


def _complaint(fence: Fence) -> str:
    if fence.mark is not None and fence.mark.kind == "file":
        return ""
    if fence.mark is None:
        if fence.language in COMMAND_LANGUAGES - {RUNNABLE}:
            return f"a block of {fence.language} is not run: say before it <!-- needs windows: why -->, or write sh"
        if fence.language != RUNNABLE and re.search(r"^(\$ |flashdepot |pip )", fence.text, re.MULTILINE):
            return "commands in a block that is not sh"
        return ""
    match = _NEED.fullmatch(fence.mark.text)
    if match is None:
        return f"'{fence.mark.text}' is not 'gpu: why it is needed'"
    unknown = set(match[1].split(", ")) - NEEDS
    return f"there is no need called {', '.join(unknown)}" if unknown else ""


def document_script(page: Page, *, having: frozenset[str] = frozenset()) -> DocumentScript | None:
    """What the unmarked blocks of a page and its marked files come to, or ``None`` where no block runs.

    :param having: needs that are met here, so that the blocks that name only those run as well.
    """
    parts = ["set -eo pipefail", "trap 'echo \"the block in line $line failed\" >&2' ERR"]
    blocks, missing = 0, set[str]()
    for fence in page.fences:
        if fence.mark is not None and fence.mark.kind == "file":
            parts += [_file(fence.mark.text, fence.text)]
        elif fence.language == RUNNABLE and _needs(fence) <= having:
            absent = {tool for tool in _tools(fence.text) if not has(tool)}
            missing |= absent
            if not absent:
                blocks += 1
                parts += [f"line={fence.line}", fence.text]
    return DocumentScript("\n".join(parts), blocks, tuple(sorted(missing))) if blocks or missing else None


def _needs(fence: Fence) -> set[str]:
    return set(fence.mark.text.partition(":")[0].split(", ")) if fence.mark else set()


def _tools(script: str) -> set[str]:
    found = {words[0] for words in commands(script) if words}
    found |= {"git-lfs" for words in commands(script) if words[:2] == ["git", "lfs"]}
    return found & _TOOLS


def _file(name: str, text: str) -> str:
    return f"mkdir -p \"$(dirname '{name}')\"\ncat > '{name}' <<'END OF FILE'\n{text}END OF FILE"


def run(
    script: DocumentScript, folder: Path, environment: Mapping[str, str], *, limit: float = 60
) -> subprocess.CompletedProcess[str]:
    """Type a script into bash in a folder; at the limit, in seconds, all that it started is ended."""
    command = ["bash", "-c", script.text]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # a block that compiles for an hour ends here, with its compilers
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
