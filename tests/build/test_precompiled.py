"""A header that several actions begin with is compiled once, and nothing that is made depends on it."""

import os
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.inputs import PlaceNames
from flashdepot.build.local import LocalExecutor
from flashdepot.build.schedule import History
from flashdepot.depot import Depot
from flashdepot.errors import CompileError
from flashdepot.events import BuildProgress, Snapshot
from flashdepot.kernels.fa2 import parse_unit
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import GNU_OUTPUTS, Action, PrecompiledHeader
from flashdepot.process.confinement import Confinement, confinement_here
from support.recipes import TOOLS, make_recipe

FAKE = Path(__file__).parents[1] / "support" / "fake_compiler.py"
WORDS = ("{python}", str(FAKE), "-begin", "common.h")
HEADER = PrecompiledHeader((*WORDS, *GNU_OUTPUTS), ("-header", "{header}"))
PLAIN = Action("", "src", "", WORDS, TOOLS, unit=parse_unit("flash_fwd_hdim64_bf16_sm80"))
UNITS = "abcdef"


def made(folder: Path, outcome: BuildOutcome) -> dict[str, str]:
    """What came of each action, from the depot called ``depot``."""
    blobs = Depot(folder.parent / "depot").blobs
    return {name: blobs.verified_path(record.object.digest).read_text() for name, record in outcome.actions.items()}


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAKE_JOURNAL", str(tmp_path / "journal"))
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "common.h").write_text("common ")
    for name in UNITS:
        (folder / f"{name}.src").write_text(f"include {name}.h")
        (folder / f"{name}.h").write_text(name)
    return folder


class Editor(BuildProgress):
    """Somebody who changes the header when ``c`` is compiled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        if name == "c":
            (self.folder / "common.h").write_text("changed ")


def build(
    folder: Path,
    depot: str,
    header: PrecompiledHeader | None = HEADER,
    progress: BuildProgress | None = None,
    action: Action = PLAIN,
    confinement: Confinement = Confinement.NONE,
) -> BuildOutcome:
    """One after the other, so that it is known which of them makes the header."""
    actions = [replace(action, name=name, source=f"{name}.src", header=header) for name in UNITS]
    recipe, place = make_recipe(), Depot(folder.parent / depot)
    history = History(place.layout.estimates)
    for seconds, each in enumerate(reversed(actions), 1):
        history.add(each, recipe, seconds, 1)  # the longest is begun first
    history.save()
    with place.workspace() as work:
        places, programs = PlaceNames((("src", folder),)), {"python": sys.executable}
        executor = LocalExecutor(places, programs, dict(os.environ), Limits(jobs=1), work, confinement)
        return Engine(place, recipe, executor, {}, progress or BuildProgress(), work).run(actions)


def compiled(folder: Path) -> list[str]:
    lines = (folder.parent / "journal").read_text().split("\n")
    return [line.removeprefix("start ") for line in lines if line.startswith("start ")]


def test_it_is_made_for_the_third_that_wants_it_and_what_is_made_and_read_is_the_same_without(sources) -> None:
    plain = build(sources, "plain", None)
    assert compiled(sources) == list(UNITS)
    (sources.parent / "journal").unlink()
    made = build(sources, "made")
    assert compiled(sources) == ["a", "b", "empty", *"cdef"]
    assert {name: (r.action_key, r.object, r.inputs) for name, r in made.actions.items()} == {
        name: (r.action_key, r.object, r.inputs) for name, r in plain.actions.items()
    }
    assert build(sources, "plain").compiled == frozenset(), "what was made without it serves"


def test_a_source_that_cannot_begin_with_it_is_compiled_without_and_so_are_the_others(sources) -> None:
    (sources / "d.src").write_text("include d.h\nno-header")
    assert build(sources, "depot").compiled == set(UNITS)
    assert compiled(sources) == ["a", "b", "empty", "c", "d", "d", "e", "f"]


def test_a_header_that_is_refused_stops_nothing(sources) -> None:
    broken = replace(HEADER, make=("{python}", "-c", "raise SystemExit(1)"))
    assert build(sources, "depot", broken).compiled == set(UNITS)
    assert compiled(sources) == list(UNITS)


def test_a_source_that_is_wrong_is_refused_in_the_words_of_its_own_compiler(sources) -> None:
    (sources / "e.src").write_text("fail e.src:1: error: no such thing")
    with pytest.raises(CompileError, match="no such thing"):
        build(sources, "depot")
    assert compiled(sources)[-3:] == ["d", "e", "e"]


def test_what_changes_after_it_was_made_is_compiled_again(sources) -> None:
    outcome = build(sources, "depot", progress=Editor(sources))
    assert compiled(sources) == ["a", "b", "empty", "c", "d", "d", "e", "f"]
    objects = made(sources, outcome)
    assert objects["c"].startswith("common ")
    assert all(objects[name].startswith("changed") for name in "def")


def test_a_confined_compiler_makes_and_reads_it(sources) -> None:
    by = confinement_here()
    if by is Confinement.NONE:
        pytest.skip("nothing here confines a program")
    # A shell, which sees no more than it must: what it makes says whether it began with a header.
    plain = 'cat common.h "$2" > "$0"; echo "$0 : common.h $2" > "$1"'
    script = f'if [ $# = 3 ]; then cat "$0" "$3" > "$1"; echo "$1 : $3" > "$2"; else {plain}; fi'
    words = ("/bin/sh", "-c", script)
    outputs = ("{output}", "{depfile}", "{source}")
    header = PrecompiledHeader(
        ("/bin/sh", "-c", 'echo "header " > "$0"; echo "$0 : common.h" > "$1"', *outputs), ("{header}",)
    )
    outcome = build(
        sources, "depot", header, action=Action("", "src", "", words, TOOLS, outputs=outputs), confinement=by
    )
    assert [text.split()[0] for text in made(sources, outcome).values()] == [*["common"] * 2, *["header"] * 4]
