"""resolve, check, doctor, install and the depot answer the same question in the same way."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from worlds import World, worlds

from flashdepot.depot import Depot
from flashdepot.depot.libraries import manifest_text
from flashdepot.diagnose import Intention, examine
from flashdepot.diagnose.check.evidence import Outcome
from flashdepot.diagnose.check.judge import judge_architectures, judge_binary
from flashdepot.diagnose.check.judge_wheel import judge_extension_name
from flashdepot.errors import IncompatibleError, MissingToolError
from flashdepot.fit import judge, needs_of_manifest
from flashdepot.fit.needs import needs_of_name
from flashdepot.fit.requests import unmet
from flashdepot.install.present import require_no_obstacle
from flashdepot.link.candle_check import CandleNeed, _machine_code
from flashdepot.link.candle_versions import CandleLine
from flashdepot.link.vendor.check import expected
from flashdepot.model.candidate import COMMUNITY, OURS, Origin, WheelRequest
from flashdepot.model.diagnosis import Verdict
from flashdepot.model.manifest import MANIFEST_NAME
from flashdepot.model.request import LibraryRequest
from flashdepot.model.target import Version
from flashdepot.resolve import rules
from flashdepot.resolve.facts import facts_of
from flashdepot.resolve.own_wheels import _stored
from support.depots import make_manifest, make_request

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

many = settings(max_examples=400, deadline=None)


def by_name(world: World) -> dict[str, Verdict]:
    facts = facts_of(world.host)
    return {reason.id: reason.verdict for reason in judge(needs_of_name(world.thing.as_name()), facts)}


def by_bytes(world: World) -> set[str]:
    binary, place = world.thing.as_bytes(), world.place
    lines = [
        *judge_binary(binary, [binary], place),
        *judge_extension_name(binary, place.python),
        *judge_architectures([binary], place),
    ]
    return {TOPICS[line.topic] for line in lines if line.outcome is Outcome.MISFIT and line.topic in TOPICS}


@many
@given(worlds)
def test_a_name_and_the_bytes_behind_it_are_judged_alike(world: World) -> None:
    named = {rule for rule, verdict in by_name(world).items() if verdict is Verdict.MISFIT}
    assert by_bytes(world) == named & set(TOPICS.values())


@many
@given(worlds)
def test_the_resolver_says_what_the_judge_says(world: World) -> None:
    request = WheelRequest(facts_of(world.host), sources=frozenset({COMMUNITY}))
    assert {r.id: r.verdict for r in rules.judge(request, world.thing.as_name())} == by_name(world)


@many
@given(worlds)
def test_doctor_and_install_refuse_an_environment_that_nothing_fits_and_no_other(world: World) -> None:
    found = by_name(world)
    hopeless = any(found.get(rule) is Verdict.MISFIT for rule in ENVIRONMENT) or too_old(world)
    findings = examine(world.host, Intention.INSTALL, LibraryRequest())
    assert any(f.verdict is Verdict.MISFIT for f in findings) == hopeless
    if hopeless:
        with pytest.raises((IncompatibleError, MissingToolError)):
            require_no_obstacle(findings, world.host.python.executable, lambda _: None)
    else:
        require_no_obstacle(findings, world.host.python.executable, lambda _: None)


def too_old(world: World) -> bool:
    torch = world.host.python.torch
    return torch is not None and torch.release < Version("2.2")


@many
@given(world=worlds)
def test_every_verb_says_the_same_of_a_library(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    facts, thing = facts_of(world.host), world.thing
    manifest = make_manifest(sass=",".join(thing.sass), libc_floor=Version(thing.glibc), cuda="13.0")
    misfits = {r.id for r in judge(needs_of_manifest(manifest), facts) if r.verdict is Verdict.MISFIT}
    # get, link and publish ask the depot.
    request = make_request(gpus=facts.gpus, driver=facts.driver, libc=facts.libc, cuda_major=None)
    assert len(unmet(request, manifest)) == len(misfits)
    # vendor --check, with what a project asks that names nothing.
    depot = Depot(tmp_path_factory.getbasetemp() / "no-depot")
    assert len(unmet(expected(manifest, LibraryRequest(), world.host, depot), manifest)) == len(misfits)
    # resolve and install judge the wheel of it.
    judged = _stored(WheelRequest(facts, sources=frozenset({OURS})), None, Origin.DEPOT, manifest)
    against = {r.id for r in judged.reasons if r.verdict is Verdict.MISFIT}
    assert against - {"torch-with-cuda", "torch"} == misfits
    # link candle --check reads the manifest beside the archive.
    folder = tmp_path_factory.getbasetemp() / "candle"
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST_NAME).write_bytes(manifest_text(manifest))
    found = list(_machine_code(folder, CandleNeed("0.9", cast("CandleLine", None), facts), ""))
    assert len(found) == len(misfits & {"sass", "driver"})
