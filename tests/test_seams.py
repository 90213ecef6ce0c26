"""A rule, a kind of candidate, a fact, a verb, a Python name, an executor and a target each join in one place.

A family: tests/kernels/test_toy_family.py.
"""

import ast
import hashlib
import inspect
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import flashdepot
from flashdepot import Client
from flashdepot.api import resolve
from flashdepot.build.engine import Ended, Engine, Executor, Task
from flashdepot.build.schedule import Capacity
from flashdepot.cli.app import app
from flashdepot.cli.options import _OPTIONS as OPTIONS
from flashdepot.cli.output import View
from flashdepot.cli.resolve_commands import describe
from flashdepot.depot import Depot
from flashdepot.errors import UsageError
from flashdepot.events import BuildProgress, Events
from flashdepot.fit import rules
from flashdepot.fit.needs import Needs, PlatformNeed
from flashdepot.fit.rules import judge
from flashdepot.host import saved_host
from flashdepot.model.candidate import Candidate, Judged, Origin, PublishedWheel, WheelRequest
from flashdepot.model.diagnosis import Diagnosis, Verdict
from flashdepot.model.environment import Environment
from flashdepot.model.recipe import Action
from flashdepot.model.target import Platform
from flashdepot.model.wheel import OURS
from flashdepot.process.child import Cost
from flashdepot.resolve import plan
from flashdepot.resolve.choice import InstallRequest, choose
from flashdepot.resolve.facts import NamedFacts, facts_of, override
from flashdepot.resolve.plan import OwnWheels
from flashdepot.resolve.project import library_request
from flashdepot.resolve.wheel_files import WheelAddress
from flashdepot.toolchain import targets
from flashdepot.wheel import NAMES, Name, build_names, parse_names
from support.recipes import TOOLS, make_recipe

LINUX = Platform("linux", "x86_64")
H100 = saved_host(Path(__file__).parent / "doctor" / "records" / "ubuntu-24.04-h100.json")


def test_a_rule_is_an_entry_in_the_table_of_rules(monkeypatch) -> None:
    def judge_toy(facts: Environment, need: PlatformNeed) -> Diagnosis:
        return Diagnosis.misfit("toy", need.spelled, str(facts.platform), "It is a toy.", "Do not play.")

    toy = rules.Rule("toy", "platform", judge_toy)
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, toy))
    needs = Needs(platform=PlatformNeed((LINUX,), "linux-x86_64"))
    assert [reason.id for reason in judge(needs, Environment(platform=LINUX))] == ["toy"]


def test_a_kind_of_candidate_is_an_entry_in_the_table_of_kinds(monkeypatch, tmp_path) -> None:
    url = "https://example.org/toy.whl"
    wheel = PublishedWheel("flash-attn", "9.9", "13.0", "", None, "py3", "none", "any", OURS, url, seen=True)

    def toys(request: WheelRequest, ours: OwnWheels) -> Iterable[Judged]:
        yield Judged(Candidate(Origin.INDEX, "toy.whl", wheel, 0.1), Verdict.FITS, ())

    monkeypatch.setattr(plan, "KINDS", (*plan.KINDS, toys))
    found = resolve(host=H100, depot=Depot(tmp_path))
    assert found.chosen is not None
    assert found.chosen.candidate.name == "toy.whl"
    assert "take       toy.whl" in describe(found)
    assert choose(InstallRequest(), H100, Depot(tmp_path), Events()).wheel == WheelAddress(OURS, "toy.whl", url, "", 0)


FACTS = {"torch": "2.7", "torch_cuda": "12.4", "cxx11_abi": False, "python_tag": "cp39", "platform": "win_amd64",
    "glibc": "2.20", "gpu": ("12.1",), "driver": "470.1"}  # fmt: skip


def test_a_fact_is_a_field_that_the_environment_the_options_and_the_client_know() -> None:
    known = override(facts_of(H100), NamedFacts(torch="2.8.0+cu128", platform="linux-x86_64"))
    fields = NamedFacts.__struct_fields__
    assert set(fields) == set(FACTS) == set(OPTIONS) <= set(inspect.signature(Client.__init__).parameters)
    for name in fields:
        named = override(known, NamedFacts(**{name: FACTS[name]}))
        assert named != known, name
        if name != "cxx11_abi":
            assert f"--{name.replace('_', '-')}" in dict(named.origins).values(), name


def test_a_verb_is_a_function_and_a_row_in_the_table_of_commands(monkeypatch) -> None:
    @click.command()
    def toy() -> View:
        return View({"toy": 1}, ["a toy"])

    monkeypatch.setattr(app, "_sections", {**app._sections, "Toys": {"toy": ("library_commands", "Play.")}})
    monkeypatch.setattr("flashdepot.cli.library_commands.toy", toy, raising=False)
    run = CliRunner().invoke
    assert run(app, ["toy"]).output == "a toy\n"
    assert json.loads(run(app, ["toy", "--json"]).output) == {"toy": 1}
    assert "Play." in run(app, ["--help"]).output
    assert "--offline" in run(app, ["toy", "--help"]).output


def test_a_python_name_is_an_entry_in_the_table_of_names(monkeypatch, tmp_path) -> None:
    toy = Name("flash-attn-toy", "1.0", "flash_attn_toy", {"flash_attn_toy.py": "answer = 42\n"})
    monkeypatch.setitem(NAMES, toy.distribution, toy)
    (wheel,) = build_names(parse_names("flash-attn-toy"), tmp_path)
    monkeypatch.syspath_prepend(str(wheel.path))
    assert __import__("flash_attn_toy").answer == 42
    monkeypatch.delitem(sys.modules, "flash_attn_toy")


def test_a_target_is_a_row(monkeypatch) -> None:
    with pytest.raises(UsageError):
        library_request(target="linux-riscv64")
    row = replace(targets.TARGETS[0], platform=Platform("linux", "riscv64"), zig="riscv64-linux-gnu", clang="riscv64")
    monkeypatch.setattr(targets, "TARGETS", (*targets.TARGETS, row))
    assert library_request(target="linux-riscv64").target == row.platform
    assert targets.target_of(row.platform) is row


class Copier(Executor):
    """An executor that copies each source instead of compiling it."""

    def __init__(self, sources: Path, work: Path) -> None:
        self.sources, self.work, self.done = sources, work, list[Ended]()

    def prepare(self) -> None:
        pass

    def capacity(self) -> Capacity:
        return Capacity(1, 10**9)

    def start(self, task: Task) -> None:
        output = self.work / task.action.name
        output.write_bytes((self.sources / task.action.source).read_bytes())
        self.done.append(Ended(task, Cost(0, 0.1, 0.1, 1), output, {f"src/{task.action.source}": self._hash(output)}))

    def ended(self, seconds: float) -> Sequence[Ended]:
        done, self.done = self.done, []
        return done

    def release(self, ended: Ended) -> None:
        ended.output.unlink()

    def elapsed(self, name: str) -> float:
        return 0.0

    def memory(self) -> int:
        return 0

    def digest(self, name: str) -> str | None:
        return self._hash(self.sources / name.removeprefix("src/"))

    def stop(self) -> None:
        pass

    @staticmethod
    def _hash(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_executor_is_a_class(tmp_path) -> None:
    sources = tmp_path / "src"
    sources.mkdir()
    (sources / "toy.src").write_text("a toy")
    action = Action("toy", "src", "toy.src", ("{python}", "copy"), TOOLS)
    depot = Depot(tmp_path / "depot")
    for compiled in (1, 0):
        with depot.workspace() as work:
            engine = Engine(depot, make_recipe(), Copier(sources, work), {}, BuildProgress(), work)
            outcome = engine.run([action])
            assert depot.layout.blob(outcome.actions["toy"].object.digest).read_text() == "a toy"
            assert len(outcome.compiled) == compiled


PACKAGE = Path(flashdepot.__file__).parent
ELSEWHERE = (
    "wheel/runtime",
    "kernels/fa4/worker",
    "prove/numeric",
    "prove/speed",
    "host/python_facts",
    "process/confine",
)
"""What runs as a program of its own: in the user's environment, next to CuTe DSL, in a process that is confined."""


def test_no_two_modules_define_a_class_of_one_name() -> None:
    places = defaultdict(list)
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(modules) > 200
    for module, path in modules.items():
        if not module.startswith(ELSEWHERE):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports each only by its name."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names))
