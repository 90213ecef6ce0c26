"""resolve, check, doctor, install and the depot answer the same question in the same way."""

import os
import re
import shlex
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import cast

import pytest
from msgspec.structs import replace

from flashdepot.binary.fatbin import CodeKind, GpuCode
from flashdepot.binary.window import FileKind
from flashdepot.depot import Depot
from flashdepot.depot.libraries import manifest_text
from flashdepot.diagnose.case import Intention
from flashdepot.diagnose.check.judge import Outcome, judge_architectures, judge_binary
from flashdepot.diagnose.check.judge_wheel import judge_extension_name
from flashdepot.diagnose.check.place import Place, TabledTorch
from flashdepot.diagnose.check.subject import Binary
from flashdepot.diagnose.examine import examine
from flashdepot.errors import IncompatibleError, MissingToolError
from flashdepot.events import Events
from flashdepot.fit.requests import needs_of_manifest, unmet
from flashdepot.fit.rules import judge
from flashdepot.host import saved_host
from flashdepot.install.present import require_no_obstacle
from flashdepot.link.candle_check import CandleNeed, _machine_code
from flashdepot.link.candle_versions import CandleLine
from flashdepot.link.vendor_check import expected
from flashdepot.model.candidate import Origin, PublishedWheel, WheelRequest
from flashdepot.model.diagnosis import Verdict
from flashdepot.model.environment import Accelerator, PythonEnvironment, Torch
from flashdepot.model.host import Gpu, HostRecord
from flashdepot.model.manifest import MANIFEST_NAME
from flashdepot.model.request import LibraryRequest
from flashdepot.model.selection import PROFILES, select
from flashdepot.model.target import Architecture, Version
from flashdepot.model.wheel import COMMUNITY, OURS
from flashdepot.resolve import rules
from flashdepot.resolve.choice import InstallRequest, OwnWheel, choose
from flashdepot.resolve.facts import facts_of
from flashdepot.resolve.plan import _stored, plan_for
from flashdepot.resolve.project import library_request
from support.commands import parsed
from support.depots import make_manifest, make_request, store_library
from support.recipes import architectures
from support.toolkits import make_host, make_python
from support.upstreams import default_version, find_sdist
from support.wheels import needs_of_name

TORCHES = ("2.1.2+cu121", "2.4.1+cu121", "2.6.0+cu126", "2.8.0+cu128", "2.9.1+cu130", "2.11.0+cpu", "2.11.0+rocm6.4")
ABI = {"new": "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"}


@dataclass(frozen=True)
class Thing:
    """What is built: for which torch's ABI, CUDA, Python, C library and GPUs."""

    torch: str
    cuda: int
    python: str
    glibc: str
    sass: tuple[str, ...]

    def as_name(self) -> PublishedWheel:
        """As a wheel's name and a catalog tell it."""
        major, minor = self.glibc.split(".")
        return PublishedWheel(
            "flash-attn", "2.8.3", str(self.cuda), self.torch, True, self.python, self.python,
            f"manylinux_{major}_{minor}_x86_64", "mjun0812", "https://example.org/w.whl", 1, "", True, self.sass, "",
        )  # fmt: skip

    def as_bytes(self) -> Binary:
        """As its compiled file tells it."""
        codes = frozenset(GpuCode(CodeKind.SASS, Architecture.parse(s), "") for s in self.sass)
        return Binary(
            name=f"flash_attn_2_cuda.cpython-{self.python[2:]}-x86_64-linux-gnu.so",
            kind=FileKind.ELF_SHARED,
            machines=frozenset({"x86_64"}),
            needed=("libc10.so", "libtorch_cuda.so", f"libcudart.so.{self.cuda}", "libc.so.6"),
            version_needs=(f"GLIBC_{self.glibc}",),
            torch_symbols=frozenset({ABI["new"]}),
            containers=((codes, 3),),
        )


def environment(torch: str, python: str) -> PythonEnvironment:
    """An environment that has everything that an installation asks for."""
    found = Torch.parse(torch)
    known = replace(found, accelerator=found.accelerator or Accelerator.CPU, cxx11_abi=found.release >= Version("2.6"))
    return make_python(
        int(python[3:]),
        torch=known,
        packages={"torch": torch, "einops": "0.8"},
        installers=("uv",),
        base_prefix=Path("/usr"),
    )


@dataclass(frozen=True)
class World:
    """A machine with its environment, and a thing that may fit it."""

    host: HostRecord
    thing: Thing

    @property
    def python(self) -> PythonEnvironment:
        assert self.host.python is not None
        return self.host.python

    @property
    def place(self) -> Place:
        """As ``check`` sees it."""
        assert self.python.torch is not None
        torch = TabledTorch(self.python.torch, "x86_64")
        return Place(self.host, self.python, torch, is_here=False, environment=facts_of(self.host))


def hosts(gpus: list[str], driver: str, libc: str, torch: str, python: str) -> HostRecord:
    found = tuple(Gpu(f"GPU {g}", Architecture.parse(g), 80 * 10**9) for g in gpus)
    host = make_host(gpus=found, driver=driver)
    return replace(host, libc=Version(libc), libc_name="glibc", python=environment(torch, python))


EXAMPLES = int(os.environ.get("FLASHDEPOT_FUZZ_EXAMPLES", "16"))


def world(chance: Random) -> World:
    gpus = chance.sample(["8.0", "8.6", "9.0", "12.0"], chance.choice([1, 2]))
    driver, libc = chance.choice(["470.1", "535.2", "570.1", "580.95"]), chance.choice(["2.28", "2.35", "2.39"])
    thing = Thing(
        chance.choice(["2.6", "2.8", "2.9"]),
        chance.choice([12, 13]),
        chance.choice(["cp310", "cp312"]),
        chance.choice(["2.17", "2.28", "2.35"]),
        chance.choice([("80",), ("80", "90"), ("90",), ("80", "90", "120")]),
    )
    return World(hosts(gpus, driver, libc, chance.choice(TORCHES), chance.choice(["cp310", "cp312"])), thing)


WORLDS = [world(Random(number)) for number in range(max(400, EXAMPLES))]


TOPICS = {
    "platform": "platform",
    "torch": "torch-with-cuda",
    "C++ ABI": "cxx11-abi",
    "python": "python",
    "libc": "libc",
    "architectures": "sass",
    "driver": "driver",
}
"""What check calls the rules whose facts a file's bytes tell as well as its name."""

ENVIRONMENT = {"torch-with-cuda"}
"""What speaks against the environment, whatever is installed."""


def by_name(world: World) -> dict[str, Verdict]:
    facts = facts_of(world.host)
    return {reason.id: reason.verdict for reason in judge(needs_of_name(world.thing.as_name()), facts)}


def by_bytes(world: World) -> set[str]:
    binary, place = world.thing.as_bytes(), world.place
    lines = [
        *judge_binary(binary, [binary], place),
        *judge_extension_name(binary, place),
        *judge_architectures([binary], place),
    ]
    return {TOPICS[line.topic] for line in lines if line.outcome is Outcome.MISFIT and line.topic in TOPICS}


def test_a_name_and_the_bytes_behind_it_are_judged_alike() -> None:
    for world in WORLDS:
        named = {rule for rule, verdict in by_name(world).items() if verdict is Verdict.MISFIT}
        assert by_bytes(world) == named & set(TOPICS.values()), world


def test_the_resolver_says_what_the_judge_says() -> None:
    for world in WORLDS:
        request = WheelRequest(facts_of(world.host), sources=frozenset({COMMUNITY}))
        assert {r.id: r.verdict for r in rules.judge(request, world.thing.as_name())} == by_name(world), world


def test_doctor_and_install_refuse_an_environment_that_nothing_fits_and_no_other() -> None:
    for world in WORLDS:
        found = by_name(world)
        hopeless = any(found.get(rule) is Verdict.MISFIT for rule in ENVIRONMENT)
        findings = examine(world.host, Intention.INSTALL, LibraryRequest())
        assert any(f.verdict is Verdict.MISFIT for f in findings) == hopeless, world
        refused = pytest.raises((IncompatibleError, MissingToolError)) if hopeless else nullcontext()
        with refused:
            require_no_obstacle(findings, world.python.executable, lambda _: None)


def test_every_verb_says_the_same_of_a_library(tmp_path) -> None:
    depot, candle = Depot(tmp_path / "no-depot"), tmp_path / "candle"
    candle.mkdir()
    for world in WORLDS:
        facts, thing = facts_of(world.host), world.thing
        manifest = make_manifest(sass=",".join(thing.sass), libc_floor=Version(thing.glibc), cuda="13.0")
        misfits = {r.id for r in judge(needs_of_manifest(manifest), facts) if r.verdict is Verdict.MISFIT}
        # get, link and publish ask the depot.
        request = make_request(gpus=facts.gpus, driver=facts.driver, libc=facts.libc, cuda_major=None)
        assert len(unmet(request, manifest)) == len(misfits), world
        # vendor --check, with what a project asks that names nothing.
        assert len(unmet(expected(manifest, LibraryRequest(), world.host, depot), manifest)) == len(misfits), world
        # resolve and install judge the wheel of it.
        judged = _stored(WheelRequest(facts, sources=frozenset({OURS})), None, Origin.DEPOT, manifest)
        against = {r.id for r in judged.reasons if r.verdict is Verdict.MISFIT}
        assert against - {"torch-with-cuda", "torch"} == misfits, world
        # link candle --check reads the manifest next to the archive.
        (candle / MANIFEST_NAME).write_bytes(manifest_text(manifest))
        found = list(_machine_code(candle, CandleNeed("0.9", cast("CandleLine", None), facts), ""))
        assert len(found) == len(misfits & {"sass", "driver"}), world


@pytest.mark.parametrize("number", range(EXAMPLES))
def test_install_takes_what_resolve_chooses_and_nothing_where_doctor_finds_an_obstacle(number, tmp_path) -> None:
    host, depot = WORLDS[number].host, Depot(tmp_path / "depot")
    for sass in (["80"], ["90"], ["80,90,120"], [])[number % 4]:
        known = find_sdist(default_version()).identified
        full = select(PROFILES["full"], known.units)
        floors = {"driver_floor": Version("580"), "libc_floor": Version("2.17")}
        store_library(depot, tmp_path, upstreams={"fa2": known.id}, selection=full, sass=architectures(sass), **floors)
    asked, fa2 = WheelRequest(facts_of(host), allow_uncertain=True), library_request(families="fa2")
    plan = plan_for(asked, fa2, host, depot, lambda _: None)
    blocked = any(f.verdict is Verdict.MISFIT for f in examine(host, Intention.INSTALL, fa2))
    if plan.chosen is None:
        with pytest.raises(IncompatibleError):
            choose(InstallRequest(fa2), host, depot, Events())
        return
    assert not (blocked and plan.chosen.verdict is Verdict.FITS)
    taken, chosen = choose(InstallRequest(fa2), host, depot, Events()).wheel, plan.chosen.candidate
    if isinstance(taken, OwnWheel):
        assert taken.library == chosen.need
        assert (depot.find(chosen.need.request).taken is not None) == (chosen.origin is Origin.DEPOT)
    else:
        assert (taken.url, taken.sha256) == (chosen.wheel.url, chosen.wheel.sha256)
    # What is only possible never stands before what is certain.
    certain = plan_for(replace(asked, allow_uncertain=False), fa2, host, depot, lambda _: None).chosen
    assert certain is None or certain.candidate == chosen


RECORDS = sorted((Path(__file__).parents[1] / "doctor" / "records").glob("*.json"))


def test_each_command_that_doctor_prints_is_accepted() -> None:
    hosts = [saved_host(path) for path in RECORDS if not path.name.endswith(".findings.json")]
    found = {f for host in hosts for intention in Intention for f in examine(host, intention, LibraryRequest())}
    commands = re.findall(
        r"""(?m)(?:^|: |['"])flashdepot ((?:[^'",\n]|,(?! ))+)""", "\n".join(str(f.fix) for f in found)
    )
    assert {"doctor run", "get --cuda 12.8", "get --target windows-x86_64 --out flashattention"} <= {*commands}
    for command in commands:
        parsed(shlex.split(command, comments=True))
