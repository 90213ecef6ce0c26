"""Rules about PyTorch: its version, its CUDA, and the C++ ABI that it was compiled with."""

from __future__ import annotations

from flashdepot.facts.drivers import oldest_driver
from flashdepot.facts.torch_builds import newest_gpu
from flashdepot.fit.driver import served_cuda
from flashdepot.fit.needs import UNKNOWN, AbiNeed, CudaNeed, TorchNeed
from flashdepot.model.architecture import Architecture, spell
from flashdepot.model.environment import Environment
from flashdepot.model.torch import NO_TORCH, Accelerator, Torch
from flashdepot.model.verdict import Reason

_ABI = {True: "the new C++ ABI", False: "the old C++ ABI"}


def judge_accelerator(facts: Environment, _need: bool) -> Reason | None:
    """A PyTorch is there, computes with CUDA on the GPUs that are there, and the driver serves it."""
    torch = facts.torch
    if torch is None:
        text = "It is not known which PyTorch it is for."
        return Reason.uncertain("torch-with-cuda", "CUDA", "", text, "--torch 2.8.0+cu128")
    if torch == NO_TORCH:
        text = "There is no PyTorch, and flash_attn imports it."
        return Reason.misfit("torch-with-cuda", "CUDA", "no PyTorch", text, "Install PyTorch first.")
    if torch.accelerator in {Accelerator.CUDA, None}:
        return judge_torch_driver(facts, torch) or judge_torch_gpus(facts, torch)
    text = f"PyTorch {torch.version} is built for {torch.accelerator.upper()}, and these kernels are called with CUDA."
    mend = "Install a PyTorch that is built with CUDA."
    return Reason.misfit("torch-with-cuda", "CUDA", torch.accelerator, text, mend)


def judge_torch_driver(facts: Environment, torch: Torch) -> Reason | None:
    """A driver that PyTorch itself can work with."""
    if torch.cuda is None or facts.driver is None or facts.platform is None:
        return None
    served = served_cuda(facts)
    floor = oldest_driver(torch.cuda.major, facts.platform.system)
    if floor is None or (served is not None and served.major >= torch.cuda.major):
        return None
    text = f"PyTorch {torch.version} is built with CUDA {torch.cuda}, and finds no GPU with driver {facts.driver}."
    mend = f"Update the driver to {floor} or newer, or install a PyTorch of the driver's CUDA."
    return Reason.misfit("torch-with-cuda", str(floor), str(facts.driver), text, mend)


def judge_torch_gpus(facts: Environment, torch: Torch) -> Reason | None:
    """GPUs that PyTorch's own kernels run on: those of its files, else those of PyTorch's builds for that CUDA."""
    unserved = torch_lacks(facts, torch)
    if not unserved or len(unserved) < len(facts.gpus):
        return None
    gpu = unserved[0]
    newest = newest_gpu(torch.cuda) if torch.cuda else None
    has = spell(torch.architectures) or (f"up to {newest.dotted}" if newest else "")
    text = f"PyTorch {torch.version} has kernels for {has}, none that runs on compute capability {gpu.dotted}."
    return Reason.misfit("torch-with-cuda", str(gpu), has, text, "Install a PyTorch that is built with a newer CUDA.")


def torch_lacks(facts: Environment, torch: Torch) -> list[Architecture]:
    """The GPUs that PyTorch's own kernels do not run on, as far as that is known."""
    if torch.architectures:
        return [gpu for gpu in facts.gpus if not any(code.runs_on(gpu) for code in torch.architectures)]
    newest = newest_gpu(torch.cuda) if torch.cuda is not None and torch.is_release else None
    return [gpu for gpu in facts.gpus if newest is not None and gpu.major > newest.major]


def judge_torch(facts: Environment, need: TorchNeed) -> Reason | None:
    """The minor version of PyTorch: its C++ interface changes with each, and is not settled before a release."""
    torch = facts.torch
    if torch is None or torch == NO_TORCH:  # judge_accelerator says so
        return None
    if need.oldest is not None:
        if torch.release >= need.oldest:
            return None
        text = f"It needs PyTorch {need.oldest} or newer, and this is {torch.version}."
        return Reason.misfit("torch", str(need.oldest), torch.version, text, "Install a newer PyTorch.")
    if not need.minor:
        text = "Its name does not say for which PyTorch it was built."
        return Reason.uncertain("torch", "not told", torch.minor, text, "flashdepot check FILE, after fetching it")
    if need.minor != torch.minor:
        text = f"It is built for torch {need.minor}, and this is {torch.version}: their C++ interfaces differ."
        return Reason.misfit("torch", need.minor, torch.minor, text, f"With torch {need.minor} it could.")
    if not torch.is_release:
        text = f"It is built for the release of torch {need.minor}, and this is {torch.version}, of another build."
        return Reason.uncertain("torch", need.minor, torch.version, text, "flashdepot check FILE, after fetching it")
    return None


def judge_preview(facts: Environment, wheel_torch: str) -> Reason | None:
    """Official wheels that were built before the torch that they name was released."""
    torch = facts.torch
    if torch is None or torch == NO_TORCH:
        return None
    text = f"It was built against a development version of torch {wheel_torch}, before that was released."
    mend = "Take a later version of flash-attn."
    return Reason.uncertain("torch-preview", f"{wheel_torch}.0.dev", torch.version, text, mend)


def judge_cuda(facts: Environment, need: CudaNeed) -> Reason | None:
    """The major version of CUDA: a wheel uses the runtime library that comes with torch."""
    torch, cuda = facts.torch, need.cuda
    if torch is None or torch == NO_TORCH or torch.accelerator not in {Accelerator.CUDA, None}:
        return None  # judge_accelerator says so
    has = str(torch.cuda) if torch.cuda else ""
    if cuda == UNKNOWN:
        text = "Its name does not say for which CUDA it was built."
        return Reason.uncertain(
            "cuda", "not told", has or "not known", text, "flashdepot check FILE, after fetching it"
        )
    if torch.cuda is None:
        text = f"It is built for CUDA {cuda}, and which CUDA PyTorch {torch.version} has is not known."
        return Reason.uncertain("cuda", cuda, "", text, "--torch-cuda 12.8")
    major = cuda.partition(".")[0]
    if major == str(torch.cuda.major):
        return None
    text = f"It is built for CUDA {cuda}, and torch {torch.version} brings CUDA {torch.cuda}."
    mend = f"With a torch that is built with CUDA {major} it could."
    return Reason.misfit("cuda", major, str(torch.cuda.major), text, mend)


def judge_cxx11_abi(facts: Environment, need: AbiNeed) -> Reason | None:
    """The C++ ABI of libstdc++, which decides the names of torch's functions that take a string."""
    torch = facts.torch
    if torch is None or torch == NO_TORCH or (facts.platform is not None and facts.platform.system != "linux"):
        return None  # judge_accelerator and judge_platform say so
    if need.new is None:
        text = "Its name does not say with which C++ ABI it was built, and torch's own builds of that version differ."
        has = _spell(torch.cxx11_abi) or "not known"
        return Reason.uncertain("cxx11-abi", "not told", has, text, "flashdepot check FILE, after fetching it")
    if torch.cxx11_abi is None:
        text = f"It is built with {_ABI[need.new]}, and that of torch {torch.version} is not known."
        mend = "--cxx11abi or --no-cxx11abi: python -c 'import torch; print(torch.compiled_with_cxx11_abi())'"
        return Reason.uncertain("cxx11-abi", _spell(need.new), "", text, mend)
    if need.new == torch.cxx11_abi:
        return None
    text = f"It is built with {_ABI[need.new]}, and torch {torch.version} with {_ABI[torch.cxx11_abi]}."
    mend = f"Take a wheel with cxx11abi{_spell(torch.cxx11_abi)}."
    return Reason.misfit("cxx11-abi", _spell(need.new), _spell(torch.cxx11_abi), text, mend)


def _spell(abi: bool | None) -> str:
    return {True: "TRUE", False: "FALSE", None: ""}[abi]
