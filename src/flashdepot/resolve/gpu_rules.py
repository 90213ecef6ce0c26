"""Rules about GPUs and their driver."""

from __future__ import annotations

from functools import cache

from flashdepot.facts.drivers import newest_cuda, oldest_driver
from flashdepot.families import oldest_gpu
from flashdepot.model.architecture import Architecture
from flashdepot.model.candidate import Reason
from flashdepot.model.target import Version
from flashdepot.model.wheel_request import FLASH_ATTN, WheelRequest

_FIRST_GENERATION = Architecture(7, 5)
"""The oldest GPU of flash-attn 1: Turing (its README)."""

_TEGRA = frozenset(
    {Architecture(7, 2), Architecture(8, 7), Architecture(8, 8), Architecture(10, 1), Architecture(11, 0)}
)
"""Jetsons: NVIDIA promises no binary compatibility between them and other GPUs (CUDA C++ Programming Guide)."""


def judge_gpu(request: WheelRequest, distribution: str, version: str) -> Reason | None:
    """A GPU that has the instructions which the kernels use."""
    gpus = request.facts.gpus
    floor = _FIRST_GENERATION if distribution == FLASH_ATTN and version.startswith("1.") else oldest_gpu()
    if not gpus or any(gpu >= floor for gpu in gpus):
        return None
    has = ", ".join(gpu.dotted for gpu in gpus)
    text = f"Its kernels need compute capability {floor.dotted} or newer, and the GPU here has {has}."
    mend = "Use a GPU from the A100 or RTX 30 on; on older ones, PyTorch's own attention works."
    return Reason.misfit("gpu", floor.dotted, has, text, mend)


def judge_sass(request: WheelRequest, sass: tuple[str, ...], ptx: str, cuda: str) -> Reason | None:
    """Machine code for every GPU that the kernels could run on."""
    facts = request.facts
    codes = _parse(sass)
    wants = ",".join(sass)
    if not facts.gpus:
        text = "It is not known which GPUs it must serve."
        return Reason.uncertain("sass", wants, "", text, "--gpu 9.0")
    unserved = [gpu for gpu in facts.served(oldest_gpu()) if not any(code.runs_on(gpu) for code in codes)]
    if not sass and not ptx:
        text = "It is not known for which GPUs it has machine code."
        has = ",".join(str(gpu) for gpu in facts.served(oldest_gpu()))
        return Reason.uncertain("sass", "not told", has, text, "flashdepot check FILE, after fetching it")
    if unserved:
        return _without_code(request, unserved, wants, ptx, cuda)
    for gpu in facts.served(oldest_gpu()):
        if gpu in _TEGRA and not any(code.runs_on(gpu) and _is_tegra(code) for code in codes):
            text = f"Its machine code is for {wants}, and a Jetson ({gpu.dotted}) is not promised to run that."
            return Reason.uncertain("sass", wants, str(gpu), text, f"flashdepot get --arch {gpu}")
    return None


def _without_code(
    request: WheelRequest, unserved: list[Architecture], wants: str, ptx: str, cuda: str
) -> Reason | None:
    """A GPU that has no machine code of its own; PTX, compiled by the driver, may stand in."""
    has = ",".join(str(gpu) for gpu in unserved)
    compiled = bool(ptx) and all(_parse((ptx,))[0] <= gpu for gpu in unserved)
    if not compiled:
        text = f"It has machine code for {wants or 'no GPU'}, none that runs on {has}."
        mend = f"Take a build for sm_{unserved[0]}, or make one: flashdepot get --arch {unserved[0]}"
        return Reason.misfit("sass", wants, has, text, mend)
    driver, platform = request.facts.driver, request.facts.platform
    served = newest_cuda(driver, platform.system) if driver and platform else None
    if served is not None and "." in cuda and Version(cuda) <= served:
        return None
    text = (
        f"It has PTX alone for {has}, which needs a driver that serves the CUDA that built it ({cuda or 'not told'})."
    )
    return Reason.uncertain("sass", f"PTX {ptx}", str(driver or ""), text, "--driver 580")


def judge_driver(request: WheelRequest, cuda: str) -> Reason | None:
    """The driver serves every release of a CUDA major version, from the first one on."""
    facts = request.facts
    major = cuda.partition(".")[0]
    if not major or facts.platform is None or facts.platform.system not in {"linux", "windows"}:
        return None
    floor = oldest_driver(int(major), facts.platform.system) or f"of CUDA {major}"
    needs = f"It is built with CUDA {cuda}, which needs NVIDIA driver {floor} or newer"
    if facts.driver is None:
        torch_cuda = facts.torch.cuda if facts.torch else None
        if torch_cuda is not None and torch_cuda.major >= int(major):
            return None  # torch itself needs that driver
        return Reason.uncertain("driver", str(floor), "", f"{needs}; the one here is not known.", "--driver 580")
    served = newest_cuda(facts.driver, facts.platform.system)
    if served is not None and served.major >= int(major):
        return None
    mend = f"Update the driver to {floor} or newer."
    return Reason.misfit("driver", str(floor), str(facts.driver), f"{needs}, and this is {facts.driver}.", mend)


def _is_tegra(code: Architecture) -> bool:
    return Architecture(code.major, code.minor) in _TEGRA


@cache
def _parse(codes: tuple[str, ...]) -> tuple[Architecture, ...]:
    return tuple(Architecture.parse(code) for code in codes)
