"""Every link, file name and command line that a document shows exists, and pages that are made are as their scripts make them."""

import re
import runpy
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from flashdepot.cli.app import app
from flashdepot.diagnose.explain.rules import load_rules
from support.documents import DOCUMENTS, ROOT, Page, complaint, flashdepot_commands, name_of, read_page


def broken_links(page: Page) -> list[str]:
    """Targets that are no file, or no heading of the file."""
    return [target for target in page.links if "://" not in target and not _is_there(page, unquote(target))]


def _is_there(page: Page, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = page.path.parent / name if name else page.path
    if name and (not path.exists() or Path(name).is_absolute()):
        return False
    linked = page if not name else read_page(path) if anchor else None
    return linked is None or anchor in {heading.anchor for heading in linked.headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_of_a_document_leads_to_a_file_and_a_heading(path) -> None:
    assert not broken_links(read_page(path))


def test_every_page_of_the_docs_can_be_reached_from_their_index() -> None:
    docs = Path(__file__).parents[2] / "docs"
    linked = {(docs / target.partition("#")[0]).resolve() for target in read_page(docs / "index.md").links}
    assert not {name_of(path) for path in docs.glob("*.md")} - {"docs/index.md"} - set(map(name_of, linked))


HEADER = ROOT / "src/flashdepot/native/include/flash_attention.h"
structure = runpy.run_path(str(ROOT / "scripts/write_structure.py"))["page"]
matrix = runpy.run_path(str(ROOT / "scripts/write_matrix.py"))["page"]
page_of = runpy.run_path(str(ROOT / "scripts/write_c_reference.py"))["page"]


def test_the_c_reference_is_what_the_header_says() -> None:
    assert (ROOT / "docs/c-api.md").read_text() == page_of(HEADER.read_text()), "run scripts/write_c_reference.py"


def test_the_c_reference_has_every_declaration_under_its_name() -> None:
    page = (ROOT / "docs/c-api.md").read_text()
    code = "".join(page.split("```")[1::2])
    _, _, declared = HEADER.read_text().partition('extern "C" {\n#endif\n')
    declared, _, _ = declared.partition("#ifdef __cplusplus")
    lines = [line for line in re.sub(r"^/\*.*?\*/$", "", declared, flags=re.DOTALL | re.MULTILINE).splitlines() if line]
    assert len(lines) > 200
    assert [line for line in lines if line not in code] == []
    assert {f"### {name}" for name in re.findall(r"\b(fa_\w+)\([^()]*\) FA_NOEXCEPT", declared)} <= set(
        page.splitlines()
    )


def test_the_matrix_is_what_the_tables_and_the_catalog_say() -> None:
    assert (ROOT / "docs/matrix.md").read_text() == matrix(), "run scripts/write_matrix.py"


def test_the_packages_are_those_that_there_are() -> None:
    text = (ROOT / "docs/structure.md").read_text()
    assert text == structure(text), "run scripts/write_structure.py"
    packages = {path.parent.name for path in (ROOT / "src/flashdepot").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/structure.md"])
def test_every_file_that_is_named_is_there(name) -> None:
    spans = read_page(ROOT / name).spans
    named = {word for span in spans for word in span.split() if re.fullmatch(r"\.?\w+(/[\w.*-]+)+", word)}
    folders = (ROOT, ROOT / "src/flashdepot")
    assert len(named) > 15
    assert not {path for path in named if not any(any(folder.glob(path)) for folder in folders)}


ENGLISH, RUSSIAN = (read_page(ROOT / name) for name in ("README.md", "README.RU.md"))


def differences(one: Page, other: Page) -> list[str]:
    """The parts of two pages in two languages that should be the same, and are not."""
    own = {one.path.name, other.path.name}
    parts = {
        "headings": lambda page: [heading.level for heading in page.headings],
        "code blocks": lambda page: [(fence.language, fence.mark, fence.text) for fence in page.fences],
        "links": lambda page: [target for target in page.links if target not in own],
        "code spans": lambda page: sorted(page.spans),
        "rows of tables": lambda page: page.table_rows,
    }
    return [name for name, part in parts.items() if part(one) != part(other)]


def test_the_two_readmes_say_the_same() -> None:
    assert not differences(ENGLISH, RUSSIAN)
    assert RUSSIAN.path.name in ENGLISH.links
    assert ENGLISH.path.name in RUSSIAN.links


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
def test_flashdepot_takes_every_command_line_of_a_document(path) -> None:
    lines = [words for words in shown(path) if tuple(words) not in NAMES]
    refused = {" ".join(words): complaint(words) for words in lines}
    assert not {line: said for line, said in refused.items() if said}


def test_flashdepot_takes_every_command_line_that_explain_advises() -> None:
    calls = re.compile(r"(?<![\w'-])flashdepot ((?:get|build|install|link|depot|check|vendor|doctor)\b[^#;,)&]*)")
    advised = [call.strip() for rule in load_rules() for line in rule.fix for call in calls.findall(line)]
    lines = [re.sub(r"\{\w+\}", "90", call).split() for call in advised]
    assert len(lines) > 10
    refused = {" ".join(words): complaint(words) for words in lines}
    assert not {line: said for line, said in refused.items() if said}


def test_each_command_has_the_option_that_a_sentence_of_the_source_names() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src/flashdepot").rglob("*.py")]
    named = {call for text in sources for call in re.findall(r"flashdepot (\w+) (?:(\w+) )?(?:\w+ )*(--[a-z-]+)", text)}
    assert len(named) > 20
    for first, second, option in named:
        found = COMMANDS.get((first, second)) or COMMANDS[(first,)]
        assert option in {name for one in found.params for name in one.opts}, (first, second, option)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_flashdepot_takes_the_examples_of_its_own_help(words) -> None:
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
def test_a_wrong_command_line_is_seen(line, said) -> None:
    found = complaint(line.split())
    assert found is not None
    assert said in found
