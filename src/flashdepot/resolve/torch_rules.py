"""Rules about PyTorch: its version, its CUDA, and the C++ ABI that it was compiled with."""

from __future__ import annotations

from flashdepot.facts.drivers import newest_cuda, oldest_driver
from flashdepot.facts.torch_builds import default_cxx11_abi
from flashdepot.model.candidate import Reason
from flashdepot.model.runtime_facts import RuntimeFacts
from flashdepot.model.torch import NO_TORCH, Accelerator, Torch
from flashdepot.model.wheel_needs import OLDEST_TORCH
from flashdepot.model.wheel_request import MADE_HERE, OFFICIAL, WheelRequest
from flashdepot.resolve.tag_rules import is_preview

_ABI = {True: "the new C++ ABI", False: "the old C++ ABI"}


def judge_accelerator(request: WheelRequest) -> Reason | None:
    """A PyTorch is there and computes with CUDA, which the driver serves."""
    torch = request.facts.torch
    if torch is None:
        text = "It is not known which PyTorch it is for."
        return Reason.uncertain("torch-with-cuda", "CUDA", "", text, "--torch 2.8.0+cu128")
    if torch == NO_TORCH:
        text = "There is no PyTorch, and flash_attn imports it."
        return Reason.misfit("torch-with-cuda", "CUDA", "no PyTorch", text, "Install PyTorch first.")
    if torch.accelerator in {Accelerator.CUDA, None}:
        return _judge_torch_driver(request.facts, torch)
    text = f"PyTorch {torch.version} is built for {torch.accelerator.upper()}, and these kernels are called with CUDA."
    mend = "Install a PyTorch that is built with CUDA."
    return Reason.misfit("torch-with-cuda", "CUDA", torch.accelerator, text, mend)


def _judge_torch_driver(facts: RuntimeFacts, torch: Torch) -> Reason | None:
    """A driver that PyTorch itself can work with."""
    if torch.cuda is None or facts.driver is None or facts.platform is None:
        return None
    served = newest_cuda(facts.driver, facts.platform.system)
    floor = oldest_driver(torch.cuda.major, facts.platform.system)
    if floor is None or (served is not None and served.major >= torch.cuda.major):
        return None
    text = f"PyTorch {torch.version} is built with CUDA {torch.cuda}, and finds no GPU with driver {facts.driver}."
    mend = f"Update the driver to {floor} or newer, or install a PyTorch of the driver's CUDA."
    return Reason.misfit("torch-with-cuda", str(floor), str(facts.driver), text, mend)


def judge_torch(request: WheelRequest, source: str, wheel_torch: str) -> Reason | None:
    """The minor version of PyTorch: its C++ interface changes with each, and is not settled before a release."""
    torch = request.facts.torch
    if torch in {None, NO_TORCH}:  # judge_accelerator says so
        return None
    assert torch is not None  # noqa: S101  (for mypy)
    if source in MADE_HERE:
        if torch.release >= OLDEST_TORCH:
            return None
        text = f"It needs PyTorch {OLDEST_TORCH} or newer, and this is {torch.version}."
        return Reason.misfit("torch", str(OLDEST_TORCH), torch.version, text, "Install a newer PyTorch.")
    if not wheel_torch:
        text = "Its name does not say for which PyTorch it was built."
        return Reason.uncertain("torch", "not told", torch.minor, text, "flashdepot check FILE, after fetching it")
    minor = ".".join(wheel_torch.split(".")[:2])
    if minor != torch.minor:
        text = f"It is built for torch {minor}, and this is {torch.version}: their C++ interfaces differ."
        return Reason.misfit("torch", minor, torch.minor, text, f"With torch {minor} it could.")
    if not torch.is_release:
        text = f"It is built for the release of torch {minor}, and this is {torch.version}, of another build."
        return Reason.uncertain("torch", minor, torch.version, text, "flashdepot check FILE, after fetching it")
    return None


def judge_preview(request: WheelRequest, source: str, version: str, wheel_torch: str) -> Reason | None:
    """Official wheels that were built before the torch that they name was released."""
    torch = request.facts.torch
    if source != OFFICIAL or torch in {None, NO_TORCH} or not is_preview(wheel_torch, version):
        return None
    has = torch.version if torch else ""
    text = f"It was built against a development version of torch {wheel_torch}, before that was released."
    return Reason.uncertain("torch-preview", f"{wheel_torch}.0.dev", has, text, "Take a later version of flash-attn.")


def judge_cuda(request: WheelRequest, source: str, cuda: str) -> Reason | None:
    """The major version of CUDA: a wheel uses the runtime library that comes with torch."""
    torch = request.facts.torch
    if source in MADE_HERE or torch in {None, NO_TORCH}:
        return None
    assert torch is not None  # noqa: S101  (for mypy)
    if torch.accelerator not in {Accelerator.CUDA, None}:  # judge_accelerator says so
        return None
    has = str(torch.cuda) if torch.cuda else ""
    if not cuda:
        text = "Its name does not say for which CUDA it was built."
        return Reason.uncertain(
            "cuda", "not told", has or "not known", text, "flashdepot check FILE, after fetching it"
        )
    if torch.cuda is None:
        text = f"It is built for CUDA {cuda}, and which CUDA PyTorch {torch.version} has is not known."
        return Reason.uncertain("cuda", cuda, "", text, "--cuda 12.8")
    major = cuda.partition(".")[0]
    if major == str(torch.cuda.major):
        return None
    text = f"It is built for CUDA {cuda}, and torch {torch.version} brings CUDA {torch.cuda}."
    mend = f"With a torch that is built with CUDA {major} it could."
    return Reason.misfit("cuda", major, str(torch.cuda.major), text, mend)


def judge_cxx11_abi(
    request: WheelRequest, source: str, wheel_torch: str, cuda: str, wheel_abi: bool | None, platform: str
) -> Reason | None:
    """The C++ ABI of libstdc++, which decides the names of torch's functions that take a string."""
    torch = request.facts.torch
    host = request.facts.platform
    if source in MADE_HERE or torch in {None, NO_TORCH} or "linux" not in platform:
        return None
    if host is not None and host.system != "linux":  # judge_platform says so
        return None
    assert torch is not None  # noqa: S101  (for mypy)
    if wheel_abi is None:
        wheel_abi = _implied_abi(wheel_torch, cuda, "aarch64" if platform.endswith("aarch64") else "x86_64")
    if wheel_abi is None:
        text = "Its name does not say with which C++ ABI it was built, and torch's own builds of that version differ."
        has = _spell(torch.cxx11_abi) or "not known"
        return Reason.uncertain("cxx11-abi", "not told", has, text, "flashdepot check FILE, after fetching it")
    if torch.cxx11_abi is None:
        text = f"It is built with {_ABI[wheel_abi]}, and that of torch {torch.version} is not known."
        mend = "--cxx11abi or --no-cxx11abi: python -c 'import torch; print(torch.compiled_with_cxx11_abi())'"
        return Reason.uncertain("cxx11-abi", _spell(wheel_abi), "", text, mend)
    if wheel_abi == torch.cxx11_abi:
        return None
    text = f"It is built with {_ABI[wheel_abi]}, and torch {torch.version} with {_ABI[torch.cxx11_abi]}."
    mend = f"Take a wheel with cxx11abi{_spell(torch.cxx11_abi)}."
    return Reason.misfit("cxx11-abi", _spell(wheel_abi), _spell(torch.cxx11_abi), text, mend)


def _implied_abi(wheel_torch: str, cuda: str, machine: str) -> bool | None:
    """That of torch's own build for the CUDA that a wheel names, because its builder has installed that one."""
    minor = ".".join(wheel_torch.split(".")[:2])
    return default_cxx11_abi(minor, f"cu{cuda.replace('.', '')}" if "." in cuda else "", machine) if minor else None


def _spell(abi: bool | None) -> str:
    return {True: "TRUE", False: "FALSE", None: ""}[abi]
