"""What a wheel must run on: the facts of a host record or of this machine, with those in their place that somebody names."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from flashdepot.errors import UsageError
from flashdepot.facts import default_cuda, default_cxx11_abi
from flashdepot.facts.gpus import parse_architecture
from flashdepot.host import probe, runtime_facts, saved_host, wheel_facts
from flashdepot.model.environment import NO_TORCH, Accelerator, Environment, Torch
from flashdepot.model.host import Gpu, HostRecord
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import Interpreter, glibc_floor, platform_of


class NamedFacts(msgspec.Struct, frozen=True):
    """Facts as spelled by the options of every command, which have these names; ``None`` where nothing was said."""

    torch: str | None = None
    torch_cuda: str | None = None
    cxx11_abi: bool | None = None
    python_tag: str | None = None
    platform: str | None = None
    glibc: str | None = None
    gpu: tuple[str, ...] = ()
    driver: str | None = None

    @property
    def architectures(self) -> tuple[Architecture, ...]:
        """The GPUs, sorted; ``--gpu 8.0,9.0`` names two."""
        return tuple(sorted({_gpu(part) for text in self.gpu for part in text.split(",")}))


def on_host(host: HostRecord, named: NamedFacts) -> HostRecord:
    """A record with the facts of the machine in their place that were named."""
    if named.platform is not None or named.glibc is not None:
        facts = override(facts_of(host), NamedFacts(platform=named.platform, glibc=named.glibc))
        host = replace(host, platform=facts.platform, libc=facts.libc, libc_name=facts.libc_name)
    if named.gpu:
        host = replace(host, gpus=tuple(Gpu(gpu.sm, gpu, 0) for gpu in named.architectures))
    if named.driver is not None:
        host = replace(host, driver=Version.parse(named.driver), driver_cuda=None)
    return host


_OPTIONS = ("platform", "libc", "python", "torch", "gpus", "driver")


def facts_of(host: HostRecord, *, recorded: bool = False) -> Environment:
    """The facts of a host record and of the Python environment in it; ``recorded``: it was read from a file."""
    found = Environment(
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
    return found.with_origins(**dict.fromkeys(_OPTIONS, "record")) if recorded else found


def override(facts: Environment, named: NamedFacts) -> Environment:
    """The facts with those in their place that were named.

    What was known of another platform's C library, or of a PyTorch that another is named instead of, is forgotten.
    """
    if named.platform is not None:
        facts = _with_platform(facts, named.platform).with_origins(platform="--platform")
    if named.glibc is not None:
        facts = replace(facts, libc_name="glibc", libc=Version.parse(named.glibc)).with_origins(libc="--glibc")
    if named.python_tag is not None:
        facts = replace(facts, python=Interpreter.named(named.python_tag)).with_origins(python="--python-tag")
    if named.gpu:
        facts = replace(facts, gpus=named.architectures).with_origins(gpus="--gpu")
    if named.driver is not None:
        driver = Version.parse(named.driver)
        facts = replace(facts, driver=driver, driver_cuda=None).with_origins(driver="--driver")
    return _with_torch(facts, named)


def _with_platform(facts: Environment, text: str) -> Environment:
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


def _with_torch(facts: Environment, named: NamedFacts) -> Environment:
    torch, implied = facts.torch, False
    if named.torch is not None:
        torch = Torch.parse(named.torch)
        facts = facts.with_origins(torch="--torch")
        if named.torch_cuda is None:
            torch, implied = _with_default_cuda(torch, facts.platform)
    if torch is None or torch == NO_TORCH:
        if named.torch_cuda is not None or named.cxx11_abi is not None:
            raise UsageError(
                "--torch-cuda and --cxx11abi describe a PyTorch, and none is named or found.",
                hint="Name its version as well: --torch 2.8.0",
            )
        return replace(facts, torch=torch)
    if named.torch_cuda == "none":
        torch = replace(torch, accelerator=Accelerator.CPU, cuda=None)
    elif named.torch_cuda is not None:
        torch = replace(torch, accelerator=Accelerator.CUDA, cuda=Version.parse(named.torch_cuda))
    if implied or named.torch_cuda is not None:
        facts = facts.with_origins(cuda="PyPI's build of that torch" if implied else "--torch-cuda")
    if named.torch is not None:
        torch = _with_abi(torch, facts.platform)
    return replace(facts, torch=torch if named.cxx11_abi is None else replace(torch, cxx11_abi=named.cxx11_abi))


def _with_default_cuda(torch: Torch, platform: Platform | None) -> tuple[Torch, bool]:
    """A release that was named without its build is PyPI's, where that is known; and whether that says its CUDA."""
    of_pypi = torch.accelerator is None and torch != NO_TORCH and torch.is_release
    cuda = default_cuda(torch.minor) if of_pypi and platform == Platform("linux", "x86_64") else None
    return (torch, False) if cuda is None else (replace(torch, accelerator=Accelerator.CUDA, cuda=cuda), True)


def _with_abi(torch: Torch, platform: Platform | None) -> Torch:
    """With the C++ ABI of PyTorch's own builds, where nothing else tells; of another builder's nothing is known."""
    if torch.cxx11_abi is not None or platform is None or platform.system != "linux" or not torch.is_release:
        return torch
    build = f"cu{torch.cuda.text.replace('.', '')}" if torch.cuda else torch.version.partition("+")[2]
    return replace(torch, cxx11_abi=default_cxx11_abi(torch.minor, build, platform.machine))


def _gpu(text: str) -> Architecture:
    gpu = parse_architecture(text)
    if gpu.suffix:
        raise UsageError(f"'{text}' is not a GPU: it names machine code. Name the compute capability, such as 9.0.")
    return gpu


class Given(msgspec.Struct, frozen=True):
    """What was said of an environment: facts, a record or its file, an interpreter."""

    named: NamedFacts = NamedFacts()
    host: HostRecord | Path | None = None
    python: str | None = None

    @property
    def saved(self) -> HostRecord | None:
        """The record that was named; ``None`` for this machine."""
        if self.host is not None and self.python is not None:
            raise UsageError("--python reads this machine, --host a saved record: give one of them.")
        return saved_host(self.host) if isinstance(self.host, Path) else self.host

    @property
    def machine(self) -> HostRecord | None:
        """The machine of the record, or this one, with what was named in its place; ``None`` for this one as it is."""
        found = self.saved
        if self.named == NamedFacts():
            return found
        return on_host(found or runtime_facts(gpus=not self.named.gpu), self.named)

    def record(self, depot: Path) -> HostRecord:
        """All that is known of the machine and its Python environment, with what was named in its place."""
        found = on_host(self.saved or probe(self.python, depot), self.named)
        if found.python is None:
            return found
        torch = override(facts_of(found), self.named).torch
        return replace(found, python=replace(found.python, torch=None if torch == NO_TORCH else torch))

    def environment(self) -> tuple[HostRecord, Environment]:
        """The record as it was found, and the facts with those in their place that were named."""
        named, saved = self.named, self.saved
        names_all = self.python is None and named.torch is not None and named.python_tag is not None
        found = saved or wheel_facts(self.python, environment=not names_all, gpus=not named.gpu)
        return found, override(facts_of(found, recorded=saved is not None), named)
