"""The rules by which a wheel fits, as one table: what each says, where that comes from, and the function that judges.

A rule reads a few fields of a wheel and nothing else of it. Thousands of wheels have few distinct values in those, so
each rule runs once for each distinct value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from flashdepot.model.candidate import Reason, Verdict
from flashdepot.model.published_wheel import PublishedWheel
from flashdepot.model.wheel_request import WheelRequest
from flashdepot.resolve.gpu_rules import judge_driver, judge_gpu, judge_sass
from flashdepot.resolve.tag_rules import judge_libc, judge_platform, judge_python
from flashdepot.resolve.torch_rules import judge_accelerator, judge_cuda, judge_cxx11_abi, judge_preview, judge_torch
from flashdepot.resolve.wish_rules import judge_distribution, judge_source, judge_version


@dataclass(frozen=True)
class Rule:
    """One rule: ``sentence`` says what must hold, ``source`` where the fact comes from.

    ``judge`` takes the request and the wheel's ``fields``, and returns ``None`` for a wheel that keeps the rule.
    """

    id: str
    sentence: str
    source: str
    fields: tuple[str, ...]
    judge: Callable[..., Reason | None]

    def reads(self) -> Callable[[PublishedWheel], Any]:
        """What takes the fields out of a wheel: one value, or a tuple of several."""
        return itemgetter(*map(PublishedWheel._fields.index, self.fields))

    def __call__(self, request: WheelRequest, wheel: PublishedWheel) -> Reason | None:
        """Judge one wheel."""
        return self.judge(request, *(getattr(wheel, field) for field in self.fields))


RULES: Sequence[Rule] = (
    Rule(
        "distribution",
        "It is the distribution that was asked for.",
        "import names in upstream's setup.py and hopper/setup.py",
        ("distribution",),
        judge_distribution,
    ),
    Rule(
        "version",
        "It has the version that was asked for; without one, a version 2 of flash-attn.",
        "PEP 440; upstream's README on version 1 and 2",
        ("distribution", "version"),
        judge_version,
    ),
    Rule(
        "platform",
        "It is made for this operating system and CPU.",
        "PEP 425; packaging guide, platform compatibility tags",
        ("platform",),
        judge_platform,
    ),
    Rule(
        "torch-with-cuda",
        "There is a PyTorch that computes with CUDA, and the driver serves its CUDA.",
        "upstream's flash_attn_interface.py; CUDA release notes, minimum required driver versions",
        ("distribution",),
        lambda request, _: judge_accelerator(request),
    ),
    Rule(
        "torch",
        "It was built for the same minor version of PyTorch, and for a release.",
        "PyTorch keeps no stable C++ ABI across minor versions; upstream's setup.py, get_wheel_url",
        ("source", "torch"),
        judge_torch,
    ),
    Rule(
        "torch-preview",
        "It was not built against a development version of that PyTorch.",
        "upstream's publish.yml at each release tag",
        ("source", "version", "torch"),
        judge_preview,
    ),
    Rule(
        "cuda",
        "It was built for the CUDA major version that PyTorch brings; minor versions are compatible.",
        "CUDA Compatibility, minor version compatibility; upstream's setup.py, get_wheel_url",
        ("source", "cuda"),
        judge_cuda,
    ),
    Rule(
        "cxx11-abi",
        "It was built with the C++ ABI of libstdc++ that PyTorch was built with.",
        "libstdc++ manual, Dual ABI; PyTorch release notes 2.6 and 2.7; facts/torch_builds.toml",
        ("source", "torch", "cuda", "cxx11_abi", "platform"),
        judge_cxx11_abi,
    ),
    Rule(
        "python",
        "Its Python and ABI tags are this interpreter's.",
        "PEP 425, PEP 384 (abi3), PEP 703 (free-threaded)",
        ("source", "python", "abi"),
        judge_python,
    ),
    Rule(
        "libc",
        "The system has the C library that it needs.",
        "PEP 600 (manylinux), PEP 656 (musllinux); resolve/wheel_builders.toml for tags that promise nothing",
        ("source", "version", "platform"),
        judge_libc,
    ),
    Rule(
        "gpu",
        "A GPU has the compute capability that the kernels are written for.",
        "upstream's README, requirements",
        ("distribution", "version"),
        judge_gpu,
    ),
    Rule(
        "sass",
        "It has machine code for every GPU that must be served.",
        "CUDA C++ Programming Guide, binary compatibility; PTX: application compatibility",
        ("sass", "ptx", "cuda"),
        judge_sass,
    ),
    Rule(
        "driver",
        "The driver serves the CUDA major version that it was built with.",
        "CUDA release notes, minimum required driver versions; facts/drivers.toml",
        ("cuda",),
        judge_driver,
    ),
    Rule(
        "source",
        "It is of a source that may be taken.",
        "official sources are taken by default, others by those who name them",
        ("source",),
        judge_source,
    ),
)
"""In the order in which a person would ask; a wheel that breaks several is counted under the first."""

Reasons = tuple[Reason, ...]


def judge(request: WheelRequest, wheel: PublishedWheel) -> Reasons:
    """Every reason against one wheel, in the order of :data:`RULES`; empty when it fits."""
    return tuple(reason for rule in RULES if (reason := rule(request, wheel)) is not None)


def verdict_of(reasons: Iterable[Reason]) -> Verdict:
    """The worst verdict of some reasons; ``FITS`` without any."""
    return max((reason.verdict for reason in reasons), key=lambda verdict: verdict.rank, default=Verdict.FITS)


def judge_all(request: WheelRequest, wheels: Sequence[PublishedWheel]) -> list[Reasons]:
    """The reasons against each of many wheels, in their order.

    A wheel that has broken two rules is not asked about more of them: nothing but :func:`judge` wants to know.
    """
    found: list[Reasons] = [()] * len(wheels)
    asked = range(len(wheels))
    for rule in RULES:
        read, several, known = rule.reads(), len(rule.fields) > 1, {}
        still: list[int] = []
        for index in asked:
            key = read(wheels[index])
            if key not in known:
                known[key] = rule.judge(request, *key) if several else rule.judge(request, key)
            if (reason := known[key]) is not None:
                found[index] = before = (*found[index], reason)
                if sum(r.verdict is Verdict.MISFIT for r in before) > 1:
                    continue
            still.append(index)
        asked = still  # type: ignore[assignment]
    return found
