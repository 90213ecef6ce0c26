"""Rules about GPUs and their driver."""

from __future__ import annotations

from flashdepot.facts.drivers import oldest_driver
from flashdepot.families import oldest_gpu
from flashdepot.fit.driver import served_cuda
from flashdepot.fit.needs import CodeNeed, DriverNeed
from flashdepot.model.architecture import Architecture, spell
from flashdepot.model.environment import Environment
from flashdepot.model.target import Version
from flashdepot.model.verdict import Reason

_TEGRA = frozenset(
    {Architecture(7, 2), Architecture(8, 7), Architecture(8, 8), Architecture(10, 1), Architecture(11, 0)}
)
"""Jetsons: NVIDIA promises no binary compatibility between them and other GPUs (CUDA C++ Programming Guide)."""


def judge_oldest_gpu(facts: Environment, floor: Architecture) -> Reason | None:
    """A GPU that has the instructions which the kernels use."""
    if not facts.gpus or any(gpu >= floor for gpu in facts.gpus):
        return None
    has = ", ".join(gpu.dotted for gpu in facts.gpus)
    text = f"Its kernels need compute capability {floor.dotted} or newer, and the GPU here has {has}."
    mend = "Use a GPU from the A100 or RTX 30 on; on older ones, PyTorch's own attention works."
    return Reason.misfit("gpu", floor.dotted, has, text, mend)


def judge_code(facts: Environment, need: CodeNeed) -> Reason | None:
    """Machine code for every GPU that the kernels could run on."""
    wants = spell(need.sass)
    if not facts.gpus:
        text = "It is not known which GPUs it must serve."
        return Reason.uncertain("sass", wants, "", text, "--gpu 9.0")
    served = facts.served(oldest_gpu())
    if not need.sass and need.ptx is None:
        text = "It is not known for which GPUs it has machine code."
        return Reason.uncertain("sass", "not told", spell(served), text, "flashdepot check FILE, after fetching it")
    unserved = [gpu for gpu in served if not any(code.runs_on(gpu) for code in need.sass)]
    if unserved:
        return _without_code(facts, need, unserved)
    for gpu in served:
        if gpu in _TEGRA and not any(code.runs_on(gpu) and _is_tegra(code) for code in need.sass):
            text = f"Its machine code is for {wants}, and a Jetson ({gpu.dotted}) is not promised to run that."
            return Reason.uncertain("sass", wants, str(gpu), text, f"flashdepot get --arch {gpu}")
    return None


def _without_code(facts: Environment, need: CodeNeed, unserved: list[Architecture]) -> Reason | None:
    """A GPU that has no machine code of its own; PTX, compiled by the driver, may stand in."""
    wants, has = spell(need.sass), ",".join(str(gpu) for gpu in unserved)
    ptx = need.ptx
    if ptx is None or not all(ptx <= gpu for gpu in unserved):
        text = f"It has machine code for {wants or 'no GPU'}, none that runs on {', '.join(g.sm for g in unserved)}."
        mend = f"Take a build for sm_{unserved[0]}, or make one: flashdepot get --arch {unserved[0]}"
        return Reason.misfit("sass", wants, has, text, mend)
    served = served_cuda(facts)
    if served is not None and "." in need.cuda and Version(need.cuda) <= served:
        return None
    built = need.cuda or "not told"
    text = f"For {has} it has only PTX, which needs a driver that serves the CUDA that built it ({built})."
    return Reason.uncertain("sass", f"PTX {ptx}", str(facts.driver or ""), text, "--driver 580")


def judge_driver(facts: Environment, need: DriverNeed) -> Reason | None:
    """The driver serves every release of a CUDA major version, from the first one on."""
    major = need.cuda.partition(".")[0]
    if not major or facts.platform is None or facts.platform.system not in {"linux", "windows"}:
        return None
    floor = need.oldest or oldest_driver(int(major), facts.platform.system)
    needs = f"It is built with CUDA {need.cuda}, which needs NVIDIA driver {floor or f'of CUDA {major}'} or newer"
    wants = str(floor or f"of CUDA {major}")
    if facts.driver is None:
        torch_cuda = facts.torch.cuda if facts.torch else None
        if torch_cuda is not None and torch_cuda.major >= int(major):
            return None  # torch itself needs that driver
        return Reason.uncertain("driver", wants, "", f"{needs}; the one here is not known.", "--driver 580")
    served = served_cuda(facts)
    serves = served is not None and served.major >= int(major)
    if serves and (need.oldest is None or facts.driver >= need.oldest):
        return None
    mend = f"Update the driver to {wants} or newer."
    return Reason.misfit("driver", wants, str(facts.driver), f"{needs}, and this is {facts.driver}.", mend)


def _is_tegra(code: Architecture) -> bool:
    return Architecture(code.major, code.minor) in _TEGRA
