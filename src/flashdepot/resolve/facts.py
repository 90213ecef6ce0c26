"""What a wheel must run on: the facts of a host record, with those in their place that somebody names."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from flashdepot.errors import UsageError
from flashdepot.facts.gpus import parse_architecture
from flashdepot.facts.torch_builds import default_cxx11_abi
from flashdepot.model.architecture import Architecture
from flashdepot.model.host import HostRecord
from flashdepot.model.runtime_facts import RuntimeFacts
from flashdepot.model.target import Platform, Version
from flashdepot.model.torch import NO_TORCH, Accelerator, Torch
from flashdepot.model.wheel_tag import Interpreter, glibc_floor, platform_of


class NamedFacts(msgspec.Struct, frozen=True):
    """Facts as spelled on the command line; ``None`` where nothing was said."""

    torch: str | None = None
    cuda: str | None = None
    cxx11_abi: bool | None = None
    python_tag: str | None = None
    platform: str | None = None
    glibc: str | None = None
    gpus: tuple[str, ...] = ()
    driver: str | None = None


def facts_of(host: HostRecord) -> RuntimeFacts:
    """The facts of a host record and of the Python environment in it."""
    return RuntimeFacts(
        platform=host.platform,
        libc_name=host.libc_name if host.libc_name is not None else "glibc" if host.libc else None,
        libc=host.libc,
        python=host.python.interpreter if host.python else None,
        torch=_with_abi(host.python.torch or NO_TORCH, host.platform) if host.python else None,
        gpus=tuple(sorted({gpu.architecture for gpu in host.gpus})),
        driver=host.driver,
        driver_cuda=host.driver_cuda,
        glibcxx=host.libstdcxx,
        cxxabi=host.cxxabi,
    )


def override(facts: RuntimeFacts, named: NamedFacts) -> RuntimeFacts:
    """The facts with those in their place that were named.

    What was told of another platform's C library, or of a PyTorch that another is named instead of, is forgotten.

    :raises UsageError: for a value that cannot be understood.
    """
    if named.platform is not None:
        facts = _with_platform(facts, named.platform)
    if named.glibc is not None:
        facts = replace(facts, libc_name="glibc", libc=Version.parse(named.glibc))
    if named.python_tag is not None:
        facts = replace(facts, python=Interpreter.named(named.python_tag))
    if named.gpus:
        facts = replace(facts, gpus=tuple(sorted({_gpu(text) for text in named.gpus})))
    if named.driver is not None:
        facts = replace(facts, driver=Version.parse(named.driver), driver_cuda=None)
    return replace(facts, torch=_named_torch(facts, named))


def _with_platform(facts: RuntimeFacts, text: str) -> RuntimeFacts:
    """``linux-x86_64``, or a wheel's platform tag, which may tell the C library as well."""
    platform, floor = platform_of(text), glibc_floor(text)
    if platform is None:
        platform = Platform.parse(text)
    if platform.system not in {"linux", "windows", "darwin"}:
        raise UsageError(
            f"'{text}' is not a platform: expected one such as linux-x86_64, win_amd64 or manylinux_2_28_x86_64."
        )
    if platform != facts.platform:
        facts = replace(facts, platform=platform, libc_name=None if platform.system == "linux" else "", libc=None)
    if text.startswith("musllinux"):
        return replace(facts, libc_name="musl", libc=None)
    return replace(facts, libc_name="glibc", libc=floor) if floor else facts


def _named_torch(facts: RuntimeFacts, named: NamedFacts) -> Torch | None:
    torch = facts.torch
    cuda = Version.parse(named.cuda) if named.cuda not in {None, "none"} else None
    if named.torch is not None:
        torch = _parse_torch(named.torch, cuda, facts.platform)
    if named.cuda is None and named.cxx11_abi is None:
        return torch
    if torch in {None, NO_TORCH}:
        raise UsageError(
            "--cuda and --cxx11abi are facts of a PyTorch, and none is known.",
            hint="Name its version as well: --torch 2.8.0",
        )
    if named.cuda == "none":
        torch = replace(torch, accelerator=Accelerator.CPU, cuda=None)
    elif cuda is not None:
        torch = replace(torch, accelerator=Accelerator.CUDA, cuda=cuda)
    return torch if named.cxx11_abi is None else replace(torch, cxx11_abi=named.cxx11_abi)


def _parse_torch(text: str, cuda: Version | None, platform: Platform | None) -> Torch:
    """A version of PyTorch as it is named, with the CUDA that is named beside it, or else that of its local version."""
    torch = Torch.parse(text)
    if cuda and torch != NO_TORCH:
        torch = replace(torch, accelerator=Accelerator.CUDA, cuda=cuda)
    return _with_abi(torch, platform)


def _with_abi(torch: Torch, platform: Platform | None) -> Torch:
    """With the C++ ABI of PyTorch's own builds, where nothing else tells; of another builder's nothing is known."""
    if torch.cxx11_abi is not None or platform is None or platform.system != "linux" or not torch.is_release:
        return torch
    build = f"cu{torch.cuda.text.replace('.', '')}" if torch.cuda else torch.version.partition("+")[2]
    return replace(torch, cxx11_abi=default_cxx11_abi(torch.minor, build, platform.machine))


def _gpu(text: str) -> Architecture:
    gpu = parse_architecture(text)
    if gpu.suffix:
        raise UsageError(
            f"'{text}' is not a GPU: a suffix is machine code's. Name its compute capability, such as 9.0."
        )
    return gpu
