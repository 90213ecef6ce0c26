"""The rules by which a thing fits a place, as one table: what each says, where that comes from, and who judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flashdepot.facts import newest_gpu
from flashdepot.facts.gpus import newest_cuda, oldest_driver
from flashdepot.fit import needs
from flashdepot.kernels import oldest_gpu
from flashdepot.model.diagnosis import Command, Diagnosis, Reasons
from flashdepot.model.environment import NO_TORCH, Accelerator, Environment, Torch
from flashdepot.model.target import Architecture, Version, spell
from flashdepot.model.wheel import python_fits


def served_cuda(facts: Environment) -> Version | None:
    """The newest CUDA that the driver serves, as seen or by its version; ``None`` where no driver is known."""
    if facts.driver_cuda is not None or facts.driver is None or facts.platform is None:
        return facts.driver_cuda
    return newest_cuda(facts.driver, facts.platform.system)


_BY_ITS_BYTES = "flashdepot check FILE, after fetching it"

_TEGRA = frozenset(map(Architecture.parse, ("72", "87", "88", "101", "110")))
"""Jetsons: NVIDIA promises no binary compatibility between them and other GPUs (CUDA C++ Programming Guide)."""


def judge_oldest_gpu(facts: Environment, floor: Architecture) -> Diagnosis | None:
    """A GPU that has the instructions which the kernels use."""
    if not facts.gpus or any(gpu >= floor for gpu in facts.gpus):
        return None
    has = ", ".join(gpu.dotted for gpu in facts.gpus)
    text = f"Its kernels need compute capability {floor.dotted} or newer, and the GPU here has {has}."
    fix = "Use a GPU from the A100 or RTX 30 on; on older ones, PyTorch's own attention works."
    return Diagnosis.misfit("gpu", floor.dotted, has, text, fix)


def judge_code(facts: Environment, need: needs.CodeNeed) -> Diagnosis | None:
    """Machine code for every GPU that the kernels could run on."""
    wants = spell(need.sass)
    if not facts.gpus:
        text = "It is not known which GPUs it must serve."
        return Diagnosis.uncertain("sass", wants, "", text, "--gpu 9.0")
    served = facts.served(oldest_gpu())
    if (jetson := min(_TEGRA.intersection(served), default=None)) and str(facts.platform) == "linux-x86_64":
        text = f"A Jetson ({jetson.dotted}) has an Arm CPU, and this is {facts.platform}."
        return Diagnosis.misfit("sass", wants, str(jetson), text, "Name its platform: --platform linux-aarch64")
    if not need.sass and need.ptx is None:
        text = "It is not known for which GPUs it has machine code."
        return Diagnosis.uncertain("sass", "not known", spell(served), text, _BY_ITS_BYTES)
    unserved = [gpu for gpu in served if not any(code.runs_on(gpu) for code in need.sass)]
    if unserved:
        return _without_code(facts, need, unserved)
    for gpu in served:
        if gpu in _TEGRA and not any(
            code.runs_on(gpu) and Architecture(code.major, code.minor) in _TEGRA for code in need.sass
        ):
            text = f"Its machine code is for {wants}, and a Jetson ({gpu.dotted}) is not guaranteed to run it."
            return Diagnosis.uncertain("sass", wants, str(gpu), text, Command("get", {"arch": str(gpu)}))
    return None


def take_or_make(gpu: Architecture) -> str:
    """What helps where machine code for a GPU is lacking."""
    made = f"flashdepot get --arch {gpu}, or for Python flashdepot wheel --arch {gpu}"
    return f"Take a build for {gpu.sm}, or make one: {made}"


def _without_code(facts: Environment, need: needs.CodeNeed, unserved: list[Architecture]) -> Diagnosis | None:
    """A GPU that has no machine code of its own; PTX, compiled by the driver, may stand in."""
    wants, has = spell(need.sass), ",".join(str(gpu) for gpu in unserved)
    ptx = need.ptx
    if ptx is None or not all(ptx <= gpu for gpu in unserved):
        text = f"It has machine code for {wants or 'no GPU'}, none that runs on {', '.join(g.sm for g in unserved)}."
        return Diagnosis.misfit("sass", wants, has, text, take_or_make(unserved[0]))
    served = served_cuda(facts)
    if served is not None and "." in need.cuda and Version(need.cuda) <= served:
        return None
    built = need.cuda or "not known"
    text = f"For {has} it has only PTX, which needs a driver that serves the CUDA that built it ({built})."
    return Diagnosis.uncertain("sass", f"PTX {ptx}", str(facts.driver or ""), text, "--driver 580")


def judge_driver(facts: Environment, need: needs.DriverNeed) -> Diagnosis | None:
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
        return Diagnosis.uncertain("driver", wants, "", f"{needs}; the one here is not known.", "--driver 580")
    served = served_cuda(facts)
    serves = served is not None and served.major >= int(major)
    if serves and (need.oldest is None or facts.driver.reaches(need.oldest)):
        return None
    fix = f"Update the driver to {wants} or newer."
    return Diagnosis.misfit("driver", wants, str(facts.driver), f"{needs}, and this is {facts.driver}.", fix)


def judge_platform(facts: Environment, need: needs.PlatformNeed) -> Diagnosis | None:
    """Operating system and CPU."""
    wanted = facts.platform
    if wanted is None:
        text = "The platform is not known."
        return Diagnosis.uncertain("platform", need.spelled, "", text, "--platform linux-x86_64")
    if wanted in need.platforms:
        return None
    text = f"It is made for {need.spelled}, and this is {wanted}."
    return Diagnosis.misfit("platform", need.spelled, str(wanted), text, f"Take one for {wanted}.")


def judge_libc(facts: Environment, need: needs.LibcNeed) -> Diagnosis | None:
    """The C library: that which a tag or the bytes ask for, else that of the system on which it was built."""
    if facts.platform is not None and facts.platform.system != "linux":
        return None  # judge_platform says so
    if need.name == "musl" or facts.libc_name == "musl":
        return _judge_musl(facts, need)
    certain = need.certain
    if certain is None:
        return None
    if facts.libc is None:
        text = f"It needs the GNU C library {certain}, and the one here is not known."
        return Diagnosis.uncertain("libc", str(certain), "", text, "--glibc 2.35")
    if certain <= facts.libc:
        return None
    oldest = need.oldest or certain
    if facts.libc < oldest or oldest == certain:
        text = f"It needs the GNU C library {oldest}, and this system has {facts.libc}."
        fix = f"Use a system with the GNU C library {oldest} or newer, such as a newer container image."
        return Diagnosis.misfit("libc", str(oldest), str(facts.libc), text, fix)
    text = (
        f"It was built on {need.builder}, and certainly runs with the GNU C library {certain}; only its bytes "
        f"tell whether it does with {facts.libc}."
    )
    return Diagnosis.uncertain("libc", str(certain), str(facts.libc), text, _BY_ITS_BYTES)


def _judge_musl(facts: Environment, need: needs.LibcNeed) -> Diagnosis | None:
    if facts.libc_name == need.name:
        return None
    if facts.libc_name is None and facts.libc is None:
        text = "It needs the C library musl, and the one here is not known."
        return Diagnosis.uncertain("libc", "musl", "", text, "--glibc 2.35")
    has = facts.libc_name or "glibc"
    text = f"It needs the C library {need.name}, and this system has {has}; PyTorch itself has no wheels for musl."
    fix = "Use a distribution with the GNU C library (Debian, Ubuntu)."
    return Diagnosis.misfit("libc", need.name, has, text, fix)


def judge_libstdcxx(facts: Environment, need: needs.CxxNeed) -> Diagnosis | None:
    """Symbol versions of libstdc++."""
    for prefix, floor, offered in (("GLIBCXX", need.glibcxx, facts.glibcxx), ("CXXABI", need.cxxabi, facts.cxxabi)):
        if floor is None or (offered is not None and floor <= offered):
            continue
        wants = f"{prefix}_{floor}"
        if offered is None:
            text = f"It needs a libstdc++ with {wants}, and the one here is not known."
            return Diagnosis.uncertain("libstdcxx", wants, "", text, "flashdepot check FILE, on that machine")
        text = f"It needs a libstdc++ with {wants}, and the one here has up to {prefix}_{offered}."
        fix = "Use a newer system, or an environment with conda's libstdcxx-ng."
        return Diagnosis.misfit("libstdcxx", wants, f"{prefix}_{offered}", text, fix)
    return None


def judge_python(facts: Environment, need: needs.PythonNeed) -> Diagnosis | None:
    """Interpreter and its ABI."""
    python = facts.python
    if python is None:
        if all(tag == "py3" for tag, _ in need.tags):
            return None
        return Diagnosis.uncertain("python", need.spelled, "", "The Python is not known.", "--python-tag cp312")
    fits = any(python_fits(tag, abi, python) for tag, abi in need.tags)
    if fits and (need.oldest is None or python.version >= need.oldest.numbers):
        return None
    wants = f"Python {need.oldest} or newer" if fits else need.spelled
    text = f"It is made for {wants}, and this Python is {python}."
    return Diagnosis.misfit("python", wants, str(python), text, f"Use an environment of such a Python: {_venv(wants)}")


def _venv(wants: str) -> str:
    tag = wants.partition("-")[2] or wants
    version = tag[2:].removesuffix("t")
    if not version.isdecimal():
        return "uv venv --python 3.12"
    return f"uv venv --python 3.{version[1:]}{'t' if tag.endswith('t') else ''}"


_ABI = {True: "the new C++ ABI", False: "the old C++ ABI"}
_SPELLED = {True: "TRUE", False: "FALSE", None: ""}


def judge_accelerator(facts: Environment, _need: bool) -> Diagnosis | None:
    """A PyTorch is there, computes with CUDA on the GPUs that are there, and the driver serves it."""
    torch = facts.torch
    if torch is None:
        text = "It is not known which PyTorch it is for."
        return Diagnosis.uncertain("torch-with-cuda", "CUDA", "", text, "--torch 2.8.0+cu128")
    if torch == NO_TORCH:
        text = "There is no PyTorch, and flash_attn imports it."
        return Diagnosis.misfit("torch-with-cuda", "CUDA", "no PyTorch", text, "Install PyTorch first.")
    if torch.accelerator in {Accelerator.CUDA, None}:
        return judge_torch_driver(facts, torch) or judge_torch_gpus(facts, torch)
    text = f"PyTorch {torch.version} is built for {torch.accelerator.upper()}, and these kernels are called with CUDA."
    fix = "Install a PyTorch that is built with CUDA."
    return Diagnosis.misfit("torch-with-cuda", "CUDA", torch.accelerator, text, fix)


def judge_torch_driver(facts: Environment, torch: Torch) -> Diagnosis | None:
    """A driver that PyTorch itself can work with."""
    if torch.cuda is None or facts.driver is None or facts.platform is None:
        return None
    served = served_cuda(facts)
    floor = oldest_driver(torch.cuda.major, facts.platform.system)
    if floor is None or (served is not None and served.major >= torch.cuda.major):
        return None
    text = f"PyTorch {torch.version} is built with CUDA {torch.cuda}, and finds no GPU with driver {facts.driver}."
    fix = f"Update the driver to {floor} or newer, or install a PyTorch of the driver's CUDA."
    return Diagnosis.misfit("torch-with-cuda", str(floor), str(facts.driver), text, fix)


def judge_torch_gpus(facts: Environment, torch: Torch) -> Diagnosis | None:
    """GPUs that PyTorch's own kernels run on: those of its files, else those of PyTorch's builds for that CUDA."""
    unserved = torch_lacks(facts, torch)
    if not unserved or len(unserved) < len(facts.gpus):
        return None
    gpu = unserved[0]
    newest = newest_gpu(torch.cuda) if torch.cuda else None
    has = spell(torch.architectures) or (f"up to {newest.dotted}" if newest else "")
    text = f"PyTorch {torch.version} has kernels for {has}, none that runs on compute capability {gpu.dotted}."
    return Diagnosis.misfit(
        "torch-with-cuda", str(gpu), has, text, "Install a PyTorch that is built with a newer CUDA."
    )


def torch_lacks(facts: Environment, torch: Torch) -> list[Architecture]:
    """The GPUs that PyTorch's own kernels do not run on, as far as that is known."""
    if torch.architectures:
        return [gpu for gpu in facts.gpus if not any(code.runs_on(gpu) for code in torch.architectures)]
    newest = newest_gpu(torch.cuda) if torch.cuda is not None and torch.is_release else None
    return [gpu for gpu in facts.gpus if newest is not None and gpu.major > newest.major]


def judge_torch(facts: Environment, need: needs.TorchNeed) -> Diagnosis | None:
    """The minor version of PyTorch: its C++ interface changes with each, and is not settled before a release."""
    torch = facts.torch
    if torch is None or torch == NO_TORCH:  # judge_accelerator says so
        return None
    if need.oldest is not None:
        if torch.release >= need.oldest:
            return None
        text = f"It needs PyTorch {need.oldest} or newer, and this is {torch.version}."
        return Diagnosis.misfit("torch", str(need.oldest), torch.version, text, "Install a newer PyTorch.")
    if not need.minor:
        text = "Its name does not say for which PyTorch it was built."
        return Diagnosis.uncertain("torch", "not known", torch.minor, text, _BY_ITS_BYTES)
    if need.minor != torch.minor:
        text = f"It is built for torch {need.minor}, and this is {torch.version}: their C++ interfaces differ."
        return Diagnosis.misfit("torch", need.minor, torch.minor, text, f"It would fit torch {need.minor}.")
    if not torch.is_release:
        text = f"It is built for the release of torch {need.minor}, and this is {torch.version}, of another build."
        return Diagnosis.uncertain("torch", need.minor, torch.version, text, _BY_ITS_BYTES)
    return None


def judge_preview(facts: Environment, wheel_torch: str) -> Diagnosis | None:
    """Official wheels that were built before the torch that they name was released."""
    torch = facts.torch
    if torch is None or torch == NO_TORCH:
        return None
    text = f"It was built against a development version of torch {wheel_torch}, before that was released."
    fix = "Take a later version of flash-attn."
    return Diagnosis.uncertain("torch-preview", f"{wheel_torch}.0.dev", torch.version, text, fix)


def judge_cuda(facts: Environment, cuda: str) -> Diagnosis | None:
    """The major version of CUDA: a wheel uses the runtime library that comes with torch."""
    torch = facts.torch
    if torch is None or torch == NO_TORCH or torch.accelerator not in {Accelerator.CUDA, None}:
        return None  # judge_accelerator says so
    has = str(torch.cuda) if torch.cuda else ""
    if cuda == needs.UNKNOWN:
        text = "Its name does not say for which CUDA it was built."
        return Diagnosis.uncertain("cuda", "not known", has or "not known", text, _BY_ITS_BYTES)
    if torch.cuda is None:
        text = f"It is built for CUDA {cuda}, and which CUDA PyTorch {torch.version} has is not known."
        return Diagnosis.uncertain("cuda", cuda, "", text, "--torch-cuda 12.8")
    major = cuda.partition(".")[0]
    if major == str(torch.cuda.major):
        return None
    text = f"It is built for CUDA {cuda}, and torch {torch.version} brings CUDA {torch.cuda}."
    fix = f"It would fit a torch that is built with CUDA {major}."
    return Diagnosis.misfit("cuda", major, str(torch.cuda.major), text, fix)


def judge_cxx11_abi(facts: Environment, need: needs.AbiNeed) -> Diagnosis | None:
    """The C++ ABI of libstdc++, which decides the names of torch's functions that take a string."""
    torch = facts.torch
    if torch is None or torch == NO_TORCH or (facts.platform is not None and facts.platform.system != "linux"):
        return None  # judge_accelerator and judge_platform say so
    if need.new is None:
        text = "Its name does not say with which C++ ABI it was built, and torch's own builds of that version differ."
        has = _SPELLED[torch.cxx11_abi] or "not known"
        return Diagnosis.uncertain("cxx11-abi", "not known", has, text, _BY_ITS_BYTES)
    if torch.cxx11_abi is None:
        text = (
            f"It is built with {_ABI[need.new]}; torch.compiled_with_cxx11_abi() tells that of torch {torch.version}."
        )
        return Diagnosis.uncertain("cxx11-abi", _SPELLED[need.new], "", text, "--cxx11abi")
    if need.new == torch.cxx11_abi:
        return None
    text = f"It is built with {_ABI[need.new]}, and torch {torch.version} with {_ABI[torch.cxx11_abi]}."
    fix = f"Take a wheel with cxx11abi{_SPELLED[torch.cxx11_abi]}."
    return Diagnosis.misfit("cxx11-abi", _SPELLED[need.new], _SPELLED[torch.cxx11_abi], text, fix)


class Rule(NamedTuple):
    """``judge`` takes the facts of a place and the ``part`` of :class:`Needs` that the rule is about.

    It returns ``None`` where the rule is kept.
    """

    id: str
    part: str
    judge: Callable[[Environment, Any], Diagnosis | None]

    def __call__(self, facts: Environment, need: object) -> Diagnosis | None:
        """Judge one need; none at all is always met."""
        return None if need is None else self.judge(facts, need)


RULES: Sequence[Rule] = (
    # PEP 425; packaging guide, platform compatibility tags
    Rule("platform", "platform", judge_platform),
    # upstream's flash_attn_interface.py; CUDA release notes, minimum required driver versions
    Rule("torch-with-cuda", "accelerator", judge_accelerator),
    # PyTorch keeps no stable C++ ABI across minor versions; upstream's setup.py, get_wheel_url
    Rule("torch", "torch", judge_torch),
    # upstream's publish.yml at each release tag
    Rule("torch-preview", "preview", judge_preview),
    # CUDA Compatibility, minor version compatibility; upstream's setup.py, get_wheel_url
    Rule("cuda", "cuda", judge_cuda),
    # libstdc++ manual, Dual ABI; PyTorch release notes 2.6 and 2.7; facts/torch_builds.toml
    Rule("cxx11-abi", "cxx11_abi", judge_cxx11_abi),
    # PEP 425, PEP 384 (abi3), PEP 703 (free-threaded)
    Rule("python", "python", judge_python),
    # PEP 600 (manylinux), PEP 656 (musllinux); facts/wheel_builders.toml for tags that promise nothing
    Rule("libc", "libc", judge_libc),
    # libstdc++ manual, ABI policy and guidelines
    Rule("libstdcxx", "libstdcxx", judge_libstdcxx),
    # upstream's README, requirements
    Rule("gpu", "oldest_gpu", judge_oldest_gpu),
    # CUDA C++ Programming Guide, binary compatibility; PTX: application compatibility
    Rule("sass", "code", judge_code),
    # CUDA release notes, minimum required driver versions; facts/drivers.toml
    Rule("driver", "driver", judge_driver),
)
"""In the order in which a person would ask, each with its source; what breaks several is counted under the first."""


def fatal(facts: Environment) -> Diagnosis | None:
    """Why nothing of flash-attn 2 can ever work in an environment; what it is, not what it lacks."""
    if facts.platform is not None and facts.platform.system == "darwin":
        text = "This is macOS: NVIDIA GPUs have no driver there, and flash-attn has no kernels for others."
        fix = "torch.nn.functional.scaled_dot_product_attention works on Apple GPUs."
        return Diagnosis.misfit("platform", "linux or windows", str(facts.platform), text, fix)
    if facts.torch is not None and facts.torch.accelerator is Accelerator.ROCM:
        text = f"PyTorch {facts.torch.version} is built for AMD GPUs (ROCm), and these kernels run on NVIDIA's."
        fix = "For AMD GPUs upstream's own source has a build: its README, section AMD ROCm support."
        return Diagnosis.misfit("torch-with-cuda", "CUDA", "ROCm", text, fix)
    return judge_oldest_gpu(facts, oldest_gpu())


def judge(thing: needs.Needs, facts: Environment) -> Reasons:
    """Every reason against a thing in a place, in the order of :data:`RULES`; empty when it fits."""
    return tuple(reason for rule in RULES if (reason := rule(facts, getattr(thing, rule.part))) is not None)


def ask(rule_id: str, facts: Environment, need: object) -> Diagnosis | None:
    """What one rule says of one need; ``None`` where it is kept."""
    return next(rule for rule in RULES if rule.id == rule_id)(facts, need)
