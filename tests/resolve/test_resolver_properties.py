"""What holds for every set of facts and wheels: hypothesis looks for a counterexample."""

from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from flashdepot.catalog import Collection, Listing
from flashdepot.catalog.load import decode, encode
from flashdepot.facts.gpus import newest_cuda
from flashdepot.model.candidate import Candidate, Judged, Origin, Plan, PublishedWheel, WheelRequest
from flashdepot.model.diagnosis import Diagnosis, Verdict, verdict_of
from flashdepot.model.environment import NO_TORCH, Accelerator, Environment, Torch
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import Interpreter
from flashdepot.resolve.decide import decide, rank, why_before
from flashdepot.resolve.rules import judge, judge_all

some = settings(max_examples=60, deadline=None)

ANY = {
    "distribution": ["flash-attn", "flash-attn-3"],
    "version": ["1.0.9", "2.7.3", "2.7.4.post1", "2.8.0", "2.8.3", "2.8.3.post1"],
    "cuda": ["", "11", "11.8", "12", "12.8", "13.0"],
    "torch": ["", "2.5", "2.6", "2.8", "2.9", "2.9.1"],
    "cxx11_abi": [None, True, False],
    "tags": [("cp312", "cp312"), ("cp313", "cp313t"), ("cp313", "cp313"), ("cp39", "abi3"), ("py3", "none")],
    "platform": ["linux_x86_64", "manylinux_2_28_x86_64", "manylinux_2_24_x86_64.manylinux_2_28_x86_64", "linux_aarch64",
        "manylinux_2_34_aarch64", "win_amd64", "musllinux_1_2_x86_64", "any"],
    "source": ["official", "mjun0812", "lldacing"],
    "sass": [(), ("80",), ("80", "90"), ("80", "90", "100", "120"), ("90a",), ("75", "80")],
}  # fmt: skip
"""All values of a wheel's fields that differ in how they are judged."""

USUAL = {
    "distribution": ["flash-attn"],
    "version": ["2.8.3", "2.8.3.post1"],
    "cuda": ["12", "12.8"],
    "torch": ["2.8"],
    "cxx11_abi": [None, True],
    "tags": [("cp312", "cp312")],
    "platform": ["linux_x86_64", "manylinux_2_28_x86_64"],
    "source": ["official"],
    "sass": [("80", "90"), ("80", "90", "100", "120")],
}
"""Values of wheels that fit the usual facts, so that hypothesis meets choices, and wheels that break only one rule."""


def mostly(usual: list[Any], others: list[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from([*usual * (1 + 9 * len(others) // len(usual)), *others])


def versions(usual: str, *others: str) -> st.SearchStrategy[Version | None]:
    return mostly([Version(usual)], [None, *map(Version, others)])


torches = st.builds(
    Torch,
    mostly(["2.8.0+cu128"], ["2.5.1+cu124", "2.6.0", "2.6.0+cu126", "2.9.1+cu130", "2.8.0.dev20250901+cu128"]),
    mostly([Accelerator.CUDA], [Accelerator.CPU, None]),
    versions("12.8", "11.8", "12.4", "13.0"),
    mostly([True], [False, None]),
)
gpus = mostly([["90"], ["80", "86"]], [[], ["75"], ["75", "80"], ["87"], ["90", "120"], ["100"], ["120"]])
facts = st.builds(
    Environment,
    platform=mostly([Platform("linux", "x86_64")], [None, *map(Platform.parse, ("linux-aarch64", "windows-x86_64"))]),
    libc_name=mostly(["glibc"], [None, "musl", ""]),
    libc=versions("2.35", "2.28", "2.31", "2.34", "2.39"),
    python=mostly([Interpreter.parse("cp312")], [None, *map(Interpreter.parse, ("cp38", "cp313", "cp313t", "pp310"))]),
    torch=mostly([False], [True]).flatmap(lambda none: st.sampled_from([None, NO_TORCH]) if none else torches),
    gpus=gpus.map(lambda texts: tuple(sorted(map(Architecture.parse, texts)))),
    driver=versions("580.95", "470.1", "525.60.13", "570.1"),
)
requests = st.builds(
    WheelRequest,
    facts,
    distribution=mostly(["flash-attn"], ["flash-attn-3"]),
    version=mostly([""], ["2.8.3", "2.7", ">=2.7"]),
    sources=mostly(
        [frozenset({"official"})],
        [frozenset(), frozenset({"official", "community"}), frozenset({"community:mjun0812"})],
    ),
    allow_uncertain=st.booleans(),
)


@st.composite
def wheels(draw: st.DrawFn) -> PublishedWheel:
    values = {field: draw(mostly(USUAL[field], ANY[field])) for field in ANY}
    python, abi = values.pop("tags")
    number = draw(st.integers(0, 10**6))
    return PublishedWheel(
        **values,
        python=python,
        abi=abi,
        url=f"https://example.org/{number}/flash_attn-{values['version']}-{python}-{abi}-any.whl",
        size=draw(st.sampled_from([0, 10**8])),
        sha256="",
        seen=draw(st.booleans()),
        ptx=draw(mostly([""], ["90"])),
    )


catalogs = st.lists(wheels(), min_size=3, max_size=8, unique_by=lambda wheel: wheel.url)


def taken(decision: Plan) -> PublishedWheel | None:
    return decision.chosen.candidate.wheel if decision.chosen else None


@some
@given(requests, catalogs)
def test_what_is_certain_runs_by_the_facts_themselves(request, published) -> None:
    """The rules again in the plainest words, to judge the judge."""
    decision = decide(request, published)
    wheel, known = taken(decision), request.facts
    if wheel is None or decision.chosen is None or decision.chosen.verdict is not Verdict.FITS:
        return
    torch, python = known.torch, known.python
    assert torch is not None
    assert torch.cuda is not None
    assert torch.version.split(".")[:2] == wheel.torch.split(".")[:2]
    assert "dev" not in torch.version
    assert wheel.cuda.split(".")[0] == str(torch.cuda.major)
    assert python is not None or wheel.python == "py3"
    assert "t" not in str(python) or wheel.abi in {"cp313t", "none"}
    assert all(
        any(Architecture.parse(s).runs_on(g) for s in wheel.sass) or wheel.ptx
        for g in known.gpus
        if g >= Architecture(8, 0)
    )
    assert any(g >= Architecture(8, 0) for g in known.gpus)
    if "linux" in wheel.platform:
        assert known.libc is not None or known.libc_name == "musl"
        assert wheel.cxx11_abi in {None, torch.cxx11_abi}
        assert torch.cxx11_abi is not None
    if known.driver is not None and known.platform is not None:
        served = newest_cuda(known.driver, known.platform.system)
        assert served is not None
        assert served.major >= torch.cuda.major
    assert "community" in request.sources or wheel.source == "official" or "community:mjun0812" in request.sources


def test_the_examples_have_certain_choices_among_them() -> None:
    _, published = find(
        st.tuples(requests, catalogs),
        lambda pair: (chosen := decide(*pair).chosen) is not None and chosen.verdict is Verdict.FITS,
        settings=settings(max_examples=500, phases=[Phase.generate]),
    )
    assert published


@some
@given(requests, catalogs)
def test_a_choice_breaks_no_rule_and_uncertain_wheels_are_taken_only_where_allowed(request, published) -> None:
    for judged in decide(request, published).ranked:
        verdict = verdict_of(judge(request, judged.candidate.wheel))
        assert verdict is Verdict.FITS or (request.allow_uncertain and verdict is Verdict.UNCERTAIN)


@some
@given(requests, catalogs, wheels())
def test_another_candidate_never_makes_the_choice_worse(request, published, more) -> None:
    before, after = decide(request, published).chosen, decide(request, [*published, more]).chosen
    if before is not None:
        assert after is not None
        assert rank([before, after], request.facts)[0] == after


@some
@given(requests, catalogs.flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
def test_neither_verdicts_nor_the_choice_depend_on_the_order(request, orders) -> None:
    first, second = orders
    assert decide(request, first).to_json() == decide(request, second).to_json()
    assert decide(request, first).ranked == decide(request, second).ranked


@some
@given(requests, catalogs)
def test_judging_all_at_once_and_one_by_one_agree(request, published) -> None:
    found = list(judge_all(request, published))
    assert [wheel for wheel, _, _ in found] == published
    for wheel, misfit, said in found:
        reasons = judge(request, wheel)
        misfits = [reason for reason in reasons if reason.verdict is Verdict.MISFIT]
        assert misfit == (misfits[0] if misfits else None)
        assert said == (reasons if len(misfits) < 2 else ())


@some
@given(requests, catalogs)
def test_a_packed_listing_is_judged_like_the_wheels_in_it(request, published) -> None:
    for source in {wheel.source for wheel in published}:
        wheels = [spelled_out(wheel) for wheel in published if wheel.source == source]
        packed = decode(encode([Listing(Collection(source, "community", "", "", ""), tuple(wheels))]), name="it")[
            0
        ].wheels
        assert list(packed) == wheels
        assert decide(request, packed) == decide(request, wheels)


def spelled_out(wheel: PublishedWheel) -> PublishedWheel:
    """With a name that tells all of it."""
    local = "".join(
        (
            f"cu{wheel.cuda.replace('.', '')}" if wheel.cuda else "",
            f"torch{wheel.torch}" if wheel.torch else "",
            f"cxx11abi{str(wheel.cxx11_abi).upper()}" if wheel.cxx11_abi is not None else "",
        )
    )
    name = f"{wheel.distribution.replace('-', '_')}-{wheel.version}{'+' if local else ''}{local}"
    place = wheel.url.rpartition("/")[0]
    return wheel._replace(url=f"{place}/{name}-{wheel.python}-{wheel.abi}-{wheel.platform}.whl")


@some
@given(requests, catalogs)
def test_a_wheel_that_nothing_is_known_of_is_never_certain(request, published) -> None:
    blank = [wheel._replace(sass=(), ptx="") for wheel in published]
    assert all(judged.verdict is not Verdict.FITS for judged in decide(request, blank).ranked)


FACTS = Environment(torch=Torch("2.8.0+cu128", Accelerator.CUDA, Version("12.8")))
WHEEL = PublishedWheel("flash-attn", "2.8.3", "12.8", "2.8", True, "cp312", "cp312", "manylinux_2_28_x86_64", "official",
    "https://example.org/a.whl", 0, "", seen=True)  # fmt: skip
UNKNOWN = Diagnosis.uncertain("libc", "2.28", "", "It is not known.", "--glibc 2.35")


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ({"reasons": 1}, "the first is certain to work"),
        ({"origin": Origin.OURS}, "the first needs no compiler"),
        ({"seen": False}, "the first is known to exist"),
        ({"origin": Origin.COMMUNITY}, "official comes before community"),
        ({"version": "2.8.2"}, "2.8.3 is newer than 2.8.2"),
        ({"cuda": "12.6"}, "the first has a CUDA nearer to torch's"),
        ({"platform": "linux_x86_64", "seconds": 1.0}, "the name of the first says which C library it needs"),
        ({"seconds": 3.0}, "the first takes less time"),
        ({"name": "b"}, ""),
    ],
)
def test_the_reason_why_one_comes_first_is_what_put_it_there(second, why) -> None:
    better, worse = judged(), judged(**second)
    assert rank([worse, better], FACTS) == (better, worse)
    assert why_before(better, worse, FACTS) == why


def test_of_two_that_are_uncertain_the_one_of_which_more_is_known_comes_first() -> None:
    better, worse = judged(reasons=1), judged(reasons=2, version="2.9.0")
    assert rank([worse, better], FACTS) == (better, worse)
    assert why_before(better, worse, FACTS) == "fewer things about the first are uncertain"


def judged(
    reasons: int = 0, origin: Origin = Origin.OFFICIAL, seconds: float = 2.0, name: str = "a", **wheel
) -> Judged:
    candidate = Candidate(origin, name, WHEEL._replace(**wheel), seconds)
    return Judged(candidate, Verdict.UNCERTAIN if reasons else Verdict.FITS, (UNKNOWN,) * reasons)
