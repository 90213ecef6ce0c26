"""Whatever a command advises is accepted, and changes the answer as it says; every command answers alike."""

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashdepot.api.wheels import Question
from flashdepot.cli.app import app
from flashdepot.cli.options import _OPTIONS
from flashdepot.depot import Depot
from flashdepot.diagnose.case import Intention
from flashdepot.diagnose.examine import examine
from flashdepot.events import Events
from flashdepot.fit.rules import fatal
from flashdepot.model.diagnosis import Verdict
from flashdepot.model.request import LibraryRequest
from flashdepot.resolve.facts import Given, NamedFacts
from flashdepot.resolve.plan import helps
from support.commands import parsed, words_in

EXAMPLES = int(os.environ.get("FLASHDEPOT_FUZZ_EXAMPLES", "40"))
ANY = LibraryRequest()
RECORD = Path(__file__).parents[1] / "doctor" / "records" / "ubuntu-24.04-h100.json"

TORCHES = ["none", *(f"2.{minor}" for minor in range(14)), "2.8.0+cu128", "2.9.1+cu130", "2.6.0+cu118", "2.8.0+cpu",
    "2.9+rocm6.4", "2.10.0.dev20251101"]  # fmt: skip
PLATFORMS = ["linux-x86_64", "linux-aarch64", "win_amd64", "manylinux_2_28_x86_64", "musllinux_1_2_x86_64",
    "macosx_14_0_arm64"]  # fmt: skip
GPUS = ["7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "12.0", "12.1"]

environments = st.fixed_dictionaries(
    {},
    optional={
        "torch": st.sampled_from(TORCHES),
        "python-tag": st.sampled_from(["3.9", "cp310", "3.11", "cp312", "3.13", "3.13t", "3.14", "pp310"]),
        "platform": st.sampled_from(PLATFORMS),
        "glibc": st.sampled_from(["2.17", "2.28", "2.31", "2.35", "2.39"]),
        "driver": st.sampled_from(["450.80", "470.82", "525", "525.60.13", "535", "550", "570.1", "580", "590"]),
        "gpu": st.lists(st.sampled_from(GPUS), min_size=1, max_size=2, unique=True),
        "source": st.lists(st.sampled_from(["ours", "official", "community"]), min_size=1, max_size=2, unique=True),
        "version": st.sampled_from(["2.8.3", "2.7", ">=2.6,<2.8", "1.0.9"]),
        "allow": st.lists(st.sampled_from(["community", "uncertain"]), min_size=1, max_size=2, unique=True),
    },
)


def words_of(options: dict[str, Any], depot: Path) -> list[str]:
    named = [f"--{name}" for name, value in options.items() for _ in (value if isinstance(value, list) else [value])]
    values = [one for value in options.values() for one in (value if isinstance(value, list) else [value])]
    pairs = [word for pair in zip(named, values, strict=True) for word in pair]
    return ["resolve", "--host", str(RECORD), *pairs, "--depot", str(depot)]


def asked_by(words: list[str]) -> tuple[Depot, Question]:
    context = parsed(words)
    p = dict(context.params)
    facts = NamedFacts(**{name: p[name] for name in NamedFacts.__struct_fields__})
    rest = {name: p[name] for name in Question.__struct_fields__ if name not in {"given", "depot"}}
    given = Given(facts, p["host_file"], p["python"])
    return p["depot"], Question(given=given, **rest, depot=p["depot"].root)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=EXAMPLES == 40)
@given(options=environments)
def test_each_command_that_resolve_prints_is_accepted_and_gives_what_it_promises(options, tmp_path_factory) -> None:
    depot = tmp_path_factory.getbasetemp() / "a-depot-that-is-not-there"
    if options.get("torch") == "none":
        options.pop("glibc", None)
    opened, asked = asked_by(words_of(options, depot))
    decision = asked.ask(ANY, opened, Events())
    commands = [(one, asked.with_help(one)) for one in helps(decision)]
    take = asked.taking(decision) if decision.chosen else ""
    facts = decision.facts
    never = fatal(facts)
    if never is not None and not options.get("version", "").startswith("1"):
        assert (decision.fatal, decision.chosen, commands) == (never, None, [])
        return
    # The one to take is the best: none that needs a compiler stands above one that fits as well without.
    if decision.chosen and decision.chosen.candidate.origin.compiles:
        assert not [j for j in decision.ranked if j.verdict is Verdict.FITS and not j.candidate.origin.compiles
                    and j.verified]  # fmt: skip
    # What it promises is what the next run shows.
    for helped, command in commands:
        assert words_in(str(command))[0] == "flashdepot"
        again, asked_again = asked_by(words_in(str(command))[1:])
        then = asked_again.ask(ANY, again, Events())
        assert then.chosen is not None, str(command)
        assert (len(then.ranked), then.chosen.candidate.name) == (helped.fitting, helped.first.candidate.name), str(
            command
        )
    # The command that takes it is one that the program accepts, and asks for the GPUs that were meant.
    if take.startswith("flashdepot "):
        words = words_in(take)[1:]
        taken = parsed(words)
        if words[0] == "wheel":
            assert taken.params["arch"]
            assert not taken.params["yes"], "a build that takes long is asked for"


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=EXAMPLES == 40)
@given(gpu=st.sampled_from(GPUS), driver=st.sampled_from(["450.80", "535", "570.1", "580"]))
def test_doctor_stops_where_resolve_stops(gpu, driver) -> None:
    said = Given(NamedFacts(gpu=(gpu,), driver=driver), RECORD)
    facts = said.environment()[1]
    blockers = [f for f in examine(said.record(Path("nowhere")), Intention.INSTALL, ANY) if f.verdict is Verdict.MISFIT]
    if fatal(facts) is not None:
        assert blockers, f"resolve says {fatal(facts)}"


def test_each_fact_has_one_option_with_one_meaning_in_every_command() -> None:
    assert set(_OPTIONS) == set(NamedFacts.__struct_fields__)
    seen: dict[str, set[str]] = {}
    for name in app.list_commands(click.Context(app)):
        command = app.get_command(click.Context(app), name)
        for parameter in getattr(command, "params", ()):
            for word in parameter.opts:
                if word in {"--torch", "--torch-cuda", "--python-tag", "--glibc", "--gpu", "--driver"}:
                    seen.setdefault(word, set()).add(str(parameter.help))
    assert {word: len(helps) for word, helps in seen.items()} == dict.fromkeys(seen, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gpu": ["7.5"]}, "compute capability 8.0 or newer"),
        ({"platform": "macosx_14_0_arm64"}, "macOS"),
        ({"torch": "2.9+rocm6.4"}, "AMD GPUs"),
    ],
)
def test_a_fatal_reason_ends_the_answer(options, said, tmp_path) -> None:
    depot, asked = asked_by(words_of({"torch": "2.8", "python-tag": "3.12", **options}, tmp_path / "none"))
    decision = asked.ask(ANY, depot, Events())
    assert decision.fatal is not None
    assert said in decision.fatal.text
    assert json.loads(json.dumps(decision.to_json()))["fatal"]["text"] == decision.fatal.text
    assert decision.considered == 0


def test_a_driver_of_cuda_12_is_offered_a_build_with_12_8(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("FLASHDEPOT_CUDA_ARCHIVES")
    options = {"torch": "2.8", "python-tag": "3.12", "gpu": ["9.0"], "driver": "535", "source": ["ours"]}
    depot, asked = asked_by(words_of(options, tmp_path / "none"))
    plan = asked.ask(ANY, depot, Events())
    chosen = plan.chosen
    command = asked.taking(plan)
    assert chosen is not None
    assert chosen.candidate.cuda == "12.8"
    assert parsed(words_in(command)[1:]).params["cuda"] == "12.8"
