"""Documents and help texts are in plain words: none of those in ``retired_words.toml``."""

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from flashdepot.cli.app import app
from flashdepot.diagnose.explain.rules import load_rules
from flashdepot.files.documents import read_toml
from support.documents import DOCUMENTS, ROOT, name_of

SOURCES = ("src/flashdepot", "tests", "scripts", "benchmarks", "examples")
"""Folders of Python and TOML, from the root, whose strings, comments and names of tests are read as well."""

IN_KEYS = ("kernels/fa4/worker", "native/test_families.py")
"""Sources that are not read: their bytes are in keys, as are those of ``native``, whose messages the last quotes."""

_CODE_OR_QUOTED = re.compile(
    r"^ *(?P<fence>```|~~~).*?^ *(?P=fence)|<!--.*?-->|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|\]\([^)]*\)|"
    r"(?<!\w)\"[^\"\n]{1,200}\"|:param \w+:",
    re.DOTALL | re.MULTILINE,
)
_LIST = read_toml(Path(__file__).with_name("retired_words.toml"))
_WORDS = {pattern: better for better, patterns in _LIST["instead"].items() for pattern in patterns}
_NAMES = {noun: better for better, nouns in _LIST["names"].items() for noun in nouns}


def words(*patterns: str) -> re.Pattern[str]:
    """Any of these as whole words."""
    return re.compile(rf"(?<![\w-])(?:{'|'.join(patterns)})(?![\w-])", re.IGNORECASE)


_RETIRED = [(words(pattern), better) for pattern, better in _WORDS.items()]
_ANY_RETIRED = words(*_WORDS)  # four times as fast as one after the other, and most texts have none


def complaints(name: str, text: str) -> list[str]:
    """Each retired word in prose, with its file and line and what to write instead."""
    prose = _CODE_OR_QUOTED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    one_line = prose.replace("\n", " ")
    if not _ANY_RETIRED.search(one_line):
        return []
    found = [(word.start(), word[0], better) for said, better in _RETIRED for word in said.finditer(one_line)]
    return [f"{name}:{prose.count(chr(10), 0, start) + 1}: '{word}': {better}" for start, word, better in sorted(found)]


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """The texts of a command's help and of those in it."""
    options = (option.help or "" for option in command.params if isinstance(option, click.Option))
    yield name, "\n".join([command.help or "", command.epilog or "", *options])
    if isinstance(command, click.Group):
        for inner in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), inner)
            if found is not None:
                yield from helps(found, f"{name} {inner}")


def strings_and_comments(path: Path) -> str:
    """What a Python file says in words, each in its line."""
    text = path.read_text(encoding="utf-8")
    lines = [" ".join(re.findall(r"def (test_\w+)", line)).replace("_", " ") for line in [*text.split("\n"), ""]]
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            said = token.type in {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", None)}
            if said and not re.fullmatch(r"\w?[\"']\w+[\"']", token.string):  # a key is a name, not prose
                prose = re.sub(r"\{[^{}]*\}", "", token.string)
                for number, line in enumerate(prose.splitlines(), token.start[0] - 1):
                    lines[number] += " " + line.strip("\"'#")
    return "\n".join(lines)


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.name != "c-api.md"], ids=name_of)
def test_a_document_is_in_plain_words(path) -> None:
    assert not complaints(name_of(path), path.read_text(encoding="utf-8"))


def test_every_rule_of_explain_is_in_plain_words() -> None:
    said = {
        rule.id: "\n".join((rule.title, rule.why, *rule.fix, *rule.fix_windows, *rule.fix_amd)) for rule in load_rules()
    }
    assert not [line for name, text in said.items() for line in complaints(name, text)]


def test_every_help_is_in_plain_words() -> None:
    assert not [said for name, text in helps(app, "flashdepot") for said in complaints(f"{name} --help", text)]


def sources(folder: str, pattern: str) -> list[Path]:
    """The files below a folder that are read."""
    found = sorted((ROOT / folder).rglob(pattern))
    return [file for file in found if not any(part in file.as_posix() for part in IN_KEYS)]


@pytest.mark.parametrize("folder", SOURCES)
def test_the_sources_are_in_plain_words(folder) -> None:
    said = {file: strings_and_comments(file) for file in sources(folder, "*.py")}
    for file in sources(folder, "*.toml"):
        lines = file.read_text(encoding="utf-8").split("\n")
        said[file] = "\n".join(line if re.match(r"# |name = ", line) else "" for line in lines)
    assert not [wrong for file, text in said.items() for wrong in complaints(name_of(file), text)]


def test_nothing_has_a_retired_word_for_a_name() -> None:
    found = []
    for path in (path for folder in SOURCES[:2] for path in sources(folder, "*.py")):
        names = [path.stem]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names.append(node.name)
            elif isinstance(node, ast.arg):
                names.append(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
        words = {word.lower() for name in names for word in re.findall(r"[A-Z]?[a-z]+", name)}
        found += [f"{name_of(path)}: '{word}': {_NAMES[word]}" for word in sorted(words & _NAMES.keys())]
    assert not found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("It\nmends\nit.", ["page.md:2: 'mends': fix"]),
        ("This is no\nlibrary.", ["page.md:1: 'is no library': is not a"]),
        ("There is no library. `mend` [x](mend.md)", []),
        ('```\nmend\n```\nThe message is "it mends".', []),
    ],
)
def test_a_retired_word_is_seen_in_prose_only(text, said) -> None:
    assert complaints("page.md", text) == said
