"""The rules by which a thing fits a place, as one table: what each says, where that comes from, and who judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from flashdepot.families import oldest_gpu
from flashdepot.fit.gpu_rules import judge_code, judge_driver, judge_oldest_gpu
from flashdepot.fit.needs import Needs
from flashdepot.fit.system_rules import judge_libc, judge_libstdcxx, judge_platform, judge_python
from flashdepot.fit.torch_rules import judge_accelerator, judge_cuda, judge_cxx11_abi, judge_preview, judge_torch
from flashdepot.model.environment import Environment
from flashdepot.model.torch import Accelerator
from flashdepot.model.verdict import Reason, Reasons


class Rule(msgspec.Struct, frozen=True):
    """One rule: ``sentence`` says what must hold, ``source`` where the fact comes from.

    ``judge`` takes the facts of a place and the ``part`` of :class:`Needs` that the rule is about. It returns ``None``
    where the rule is kept.
    """

    id: str
    sentence: str
    source: str
    part: str
    judge: Callable[[Environment, Any], Reason | None]

    def __call__(self, facts: Environment, need: object) -> Reason | None:
        """Judge one need; none at all is always met."""
        return None if need is None else self.judge(facts, need)


RULES: Sequence[Rule] = (
    Rule(
        "platform",
        "It is made for this operating system and CPU.",
        "PEP 425; packaging guide, platform compatibility tags",
        "platform",
        judge_platform,
    ),
    Rule(
        "torch-with-cuda",
        "There is a PyTorch that computes with CUDA, and the driver serves its CUDA.",
        "upstream's flash_attn_interface.py; CUDA release notes, minimum required driver versions",
        "accelerator",
        judge_accelerator,
    ),
    Rule(
        "torch",
        "It was built for the same minor version of PyTorch, and for a release.",
        "PyTorch keeps no stable C++ ABI across minor versions; upstream's setup.py, get_wheel_url",
        "torch",
        judge_torch,
    ),
    Rule(
        "torch-preview",
        "It was not built against a development version of that PyTorch.",
        "upstream's publish.yml at each release tag",
        "preview",
        judge_preview,
    ),
    Rule(
        "cuda",
        "It was built for the CUDA major version that PyTorch brings; minor versions are compatible.",
        "CUDA Compatibility, minor version compatibility; upstream's setup.py, get_wheel_url",
        "cuda",
        judge_cuda,
    ),
    Rule(
        "cxx11-abi",
        "It was built with the C++ ABI of libstdc++ that PyTorch was built with.",
        "libstdc++ manual, Dual ABI; PyTorch release notes 2.6 and 2.7; facts/torch_builds.toml",
        "cxx11_abi",
        judge_cxx11_abi,
    ),
    Rule(
        "python",
        "Its Python and ABI tags are this interpreter's.",
        "PEP 425, PEP 384 (abi3), PEP 703 (free-threaded)",
        "python",
        judge_python,
    ),
    Rule(
        "libc",
        "The system has the C library that it needs.",
        "PEP 600 (manylinux), PEP 656 (musllinux); facts/wheel_builders.toml for tags that promise nothing",
        "libc",
        judge_libc,
    ),
    Rule(
        "libstdcxx",
        "The libstdc++ that is loaded has the symbol versions that it takes.",
        "libstdc++ manual, ABI policy and guidelines",
        "libstdcxx",
        judge_libstdcxx,
    ),
    Rule(
        "gpu",
        "A GPU has the compute capability that the kernels are written for.",
        "upstream's README, requirements",
        "oldest_gpu",
        judge_oldest_gpu,
    ),
    Rule(
        "sass",
        "It has machine code for every GPU that must be served, and PyTorch has as well.",
        "CUDA C++ Programming Guide, binary compatibility; PTX: application compatibility",
        "code",
        judge_code,
    ),
    Rule(
        "driver",
        "The driver serves the CUDA major version that it was built with.",
        "CUDA release notes, minimum required driver versions; facts/drivers.toml",
        "driver",
        judge_driver,
    ),
)
"""In the order in which a person would ask; what breaks several is counted under the first."""


def fatal(facts: Environment) -> Reason | None:
    """Why nothing of flash-attn 2 can ever work in an environment; what it is, not what it lacks."""
    if facts.platform is not None and facts.platform.system == "darwin":
        text = "This is macOS: NVIDIA GPUs have no driver there, and flash-attn has no kernels for others."
        mend = "torch.nn.functional.scaled_dot_product_attention works on Apple GPUs."
        return Reason.misfit("platform", "linux or windows", str(facts.platform), text, mend)
    if facts.torch is not None and facts.torch.accelerator is Accelerator.ROCM:
        text = f"PyTorch {facts.torch.version} is built for AMD GPUs (ROCm), and these kernels run on NVIDIA's."
        mend = "For AMD GPUs upstream's own source has a build: its README, section AMD ROCm support."
        return Reason.misfit("torch-with-cuda", "CUDA", "ROCm", text, mend)
    return judge_oldest_gpu(facts, oldest_gpu())


def judge(needs: Needs, facts: Environment) -> Reasons:
    """Every reason against a thing in a place, in the order of :data:`RULES`; empty when it fits."""
    return tuple(reason for rule in RULES if (reason := rule(facts, getattr(needs, rule.part))) is not None)


def ask(rule_id: str, facts: Environment, need: object) -> Reason | None:
    """What one rule says of one need; ``None`` where it is kept."""
    return next(rule for rule in RULES if rule.id == rule_id)(facts, need)
