"""Every rule by itself: one thing that breaks it and no other, and what fits."""

import pytest
from msgspec.structs import replace

from flashdepot.fit.needs import (
    AbiNeed,
    CodeNeed,
    CxxNeed,
    DriverNeed,
    LibcNeed,
    Needs,
    PlatformNeed,
    PythonNeed,
    TorchNeed,
)
from flashdepot.fit.rules import RULES, judge
from flashdepot.model.diagnosis import Verdict, verdict_of
from flashdepot.model.environment import NO_TORCH, Accelerator, Environment, Torch
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import Interpreter
from support.recipes import architectures

LINUX = Platform("linux", "x86_64")
FACTS = Environment(
    platform=LINUX,
    libc_name="glibc",
    libc=Version("2.35"),
    python=Interpreter.parse("cp312"),
    torch=Torch("2.8.0+cu128", Accelerator.CUDA, Version("12.8"), cxx11_abi=True),
    gpus=(Architecture(9, 0),),
    driver=Version("580.95"),
    glibcxx=Version("3.4.30"),
    cxxabi=Version("1.3.13"),
)
NEEDS = Needs(
    platform=PlatformNeed((LINUX,), "linux-x86_64"),
    accelerator=True,
    torch=TorchNeed("2.8"),
    cuda="12.4",
    cxx11_abi=AbiNeed(new=True),
    python=PythonNeed((("cp312", "cp312"),), "cp312"),
    libc=LibcNeed("glibc", Version("2.28"), Version("2.28")),
    libstdcxx=CxxNeed(Version("3.4.30"), Version("1.3.13")),
    oldest_gpu=Architecture(8, 0),
    code=CodeNeed(architectures("80,90"), None, "12.4"),
    driver=DriverNeed("12.4"),
)

BROKEN = {
    "platform": replace(NEEDS, platform=PlatformNeed((Platform("windows", "x86_64"),), "windows-x86_64")),
    "torch": replace(NEEDS, torch=TorchNeed("2.7")),
    "torch-preview": replace(NEEDS, preview="2.8"),
    "cuda": replace(NEEDS, cuda="11.8"),
    "cxx11-abi": replace(NEEDS, cxx11_abi=AbiNeed(new=False)),
    "python": replace(NEEDS, python=PythonNeed((("cp311", "cp311"),), "cp311")),
    "libc": replace(NEEDS, libc=LibcNeed("glibc", Version("2.38"), Version("2.38"))),
    "libstdcxx": replace(NEEDS, libstdcxx=CxxNeed(Version("3.4.32"))),
    "gpu": replace(NEEDS, oldest_gpu=Architecture(10, 0)),
    "sass": replace(NEEDS, code=CodeNeed(architectures("80"), None, "12.4")),
    "driver": replace(NEEDS, driver=DriverNeed("13.0", Version("590"))),
}
"""Needs of which the facts break one rule."""

WORSE_FACTS = {"torch-with-cuda": replace(FACTS, torch=replace(FACTS.torch, accelerator=Accelerator.ROCM))}


def test_what_is_made_for_the_place_fits() -> None:
    assert judge(NEEDS, FACTS) == ()


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_only_one_rule_speaks_against_what_breaks_it(rule) -> None:
    facts = WORSE_FACTS.get(rule, FACTS)
    (reason,) = judge(BROKEN.get(rule, NEEDS), facts)
    assert reason.id == rule
    assert reason.text.endswith(".")
    assert reason.fix


UNKNOWN = {
    "platform": {"platform": None},
    "torch-with-cuda": {"torch": None},
    "cuda": {"torch": replace(FACTS.torch, cuda=None)},
    "cxx11-abi": {"torch": replace(FACTS.torch, cxx11_abi=None)},
    "python": {"python": None},
    "libc": {"libc": None},
    "libstdcxx": {"glibcxx": None},
    "sass": {"gpus": ()},
}


@pytest.mark.parametrize("rule", UNKNOWN)
def test_a_missing_fact_is_never_a_fit(rule) -> None:
    reasons = judge(NEEDS, replace(FACTS, **UNKNOWN[rule]))
    assert verdict_of(reasons) is Verdict.UNCERTAIN
    assert rule in {reason.id for reason in reasons}


def test_a_driver_is_asked_for_where_torch_does_not_imply_it() -> None:
    older = replace(FACTS, driver=None, torch=replace(FACTS.torch, cuda=Version("11.8")))
    reasons = judge(replace(NEEDS, cuda=None), older)
    assert [(r.id, r.verdict) for r in reasons] == [("driver", Verdict.UNCERTAIN)]


@pytest.mark.parametrize(
    ("torch", "gpu", "misfit"),
    [
        ("2.4.1+cu121", "12.0", True),
        ("2.4.1+cu121", "9.0", False),
        ("2.7.1+cu128", "12.0", False),
        ("2.7.1+cu126", "12.0", True),
        ("2.11.0+cpu", "9.0", True),
        ("2.11.0+rocm6.4", "9.0", True),
        ("none", "9.0", True),
    ],
)
def test_a_torch_that_cannot_compute_on_the_gpu_is_found_whatever_the_wheel(torch, gpu, misfit) -> None:
    facts = replace(FACTS, torch=Torch.parse(torch), gpus=(Architecture.parse(gpu),))
    found = judge(Needs(accelerator=True), facts)
    assert (verdict_of(found) is Verdict.MISFIT) == misfit


def test_what_torch_was_compiled_for_counts_before_the_table() -> None:
    own = Torch("2.4.1+cu121", Accelerator.CUDA, Version("12.1"), architectures=architectures("120"))
    assert judge(Needs(accelerator=True), replace(FACTS, torch=own, gpus=(Architecture(12, 0),))) == ()


@pytest.mark.parametrize(("name", "verdict"), [("musl", Verdict.MISFIT), ("glibc", Verdict.FITS)])
def test_a_library_for_the_gnu_c_library_does_not_run_on_musl(name, verdict) -> None:
    facts = replace(FACTS, libc_name=name, libc=None if name == "musl" else FACTS.libc)
    assert verdict_of(judge(Needs(libc=NEEDS.libc), facts)) is verdict


def test_no_torch_does_not_matter_to_what_needs_none() -> None:
    assert judge(Needs(platform=NEEDS.platform, code=NEEDS.code), replace(FACTS, torch=NO_TORCH)) == ()
