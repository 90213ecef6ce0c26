"""The Python environment that something is to be installed into, and its PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

from flashdepot.diagnose.case import Case, Intention, blocker, misfit, note, warning
from flashdepot.fit.needs import PythonNeed, TorchNeed
from flashdepot.fit.rules import ask, judge_torch_driver, judge_torch_gpus, torch_lacks
from flashdepot.host.python_environment import get_installer
from flashdepot.model.diagnosis import Diagnosis
from flashdepot.model.environment import PythonEnvironment, Torch
from flashdepot.model.limits import joined, removing
from flashdepot.model.target import Platform, Version
from flashdepot.model.wheel import IMPORTED, OLDEST_PYTHON, OLDEST_TORCH

_NEWEST_PUBLISHED = Version("3.13")
"""The newest Python that flash-attention 2.8.3's own wheels are built for (its publish.yml)."""

_BUILD_TOOLS = ("packaging", "wheel", "setuptools", "ninja", "psutil")

_SMALL = ("win32", "linux-i686", "linux-armv7l")


def of_environment(case: Case) -> Iterator[Diagnosis]:
    """All that concerns the environment that something is to be installed into."""
    python = case.python
    if python is None:
        seen = case.record.no_python or "No Python environment is known."
        fix = "flashdepot doctor install --python /path/to/python"
        yield blocker("python-missing", seen, "So it is not known what would prevent an installation.", fix)
        return
    yield from _interpreter(case, python)
    yield from _environment(case, python)
    yield from _torch(case, python)
    if python.torch is not None:
        yield from _imports(python)
        yield from torch_on_gpu(case)
        yield from _abi(python.torch)
    yield from _published(case, python)
    yield from _builds(python)


def _interpreter(case: Case, python: PythonEnvironment) -> Iterator[Diagnosis]:
    """An interpreter that PyTorch and FlashAttention have no packages for."""
    named = f"{python.executable} is {python.implementation} {python.version}"
    if python.implementation != "CPython":
        seen, why = f"{named}.", "PyTorch has packages for CPython only."
        yield misfit("wheel-tag-mismatch", seen, why, "Use CPython: uv venv --python cpython-3.12")
    elif python.platform in _SMALL:
        seen, why = f"{named} for {python.platform}.", "PyTorch with CUDA has packages for 64 bits only."
        yield misfit("wheel-tag-mismatch", seen, why, "Install a 64-bit Python.")
    elif ask("python", case.facts, PythonNeed((("py3", "none"),), "py3", OLDEST_PYTHON)) is not None:
        seen, why = f"{named}.", f"flash-attn needs Python {OLDEST_PYTHON} or newer."
        yield misfit("wheel-tag-mismatch", seen, why, "Use a newer one: uv venv --python 3.12")


def _published(case: Case, python: PythonEnvironment) -> Iterator[Diagnosis]:
    """Interpreters that upstream has published no wheel for, so that pip would compile."""
    platform = case.record.platform
    if python.implementation != "CPython":
        return
    fix = "Use flashdepot's wheel, which fits every Python, or: uv venv --python 3.12"
    why = "flash-attention has published no wheel for it: pip would compile for hours, without saying why."
    major_minor = Version(".".join(python.version.text.split(".")[:2]))
    if python.free_threaded:
        yield warning("wheel-tag-mismatch", f"{python.executable} is free-threaded ({python.tag}).", why, fix)
    elif major_minor > _NEWEST_PUBLISHED:
        yield note("wheel-404-fallback", f"{python.executable} is Python {python.version}.", why, fix)
    if (platform.system, platform.machine) == ("linux", "aarch64"):
        why = "flash-attention 2.8.3 has published no wheel for it: pip would compile for hours, without saying why."
        yield note("wheel-404-fallback", f"This is {platform}.", why, "Use flashdepot's own wheel.")


def _environment(case: Case, python: PythonEnvironment) -> Iterator[Diagnosis]:
    """An environment that nothing can, or should, be installed into."""
    program = "py" if case.record.platform.system == "windows" else "python3"
    new = f"{program} -m venv .venv, then: flashdepot doctor install --python .venv"
    if python.managed and python.conda:
        seen = f"The Python in {python.prefix} is conda's own (PEP 668)."
        why = "pip and uv refuse to install into it, because they could break conda itself."
        make = f"conda create --name work python={python.version} pip && conda activate work"
        yield blocker(
            "externally-managed", seen, why, f"{make}; install PyTorch there, and run the same command again."
        )
    elif python.managed:
        seen = f"The Python in {python.prefix} is managed by the operating system (PEP 668)."
        why = "pip and uv refuse to install into it, because they could break programs of the system."
        yield blocker("externally-managed", seen, why, new)
    elif python.is_system:
        seen = f"{python.executable} is the system's Python, not that of an environment."
        yield blocker("externally-managed", seen, "What other programs need could break.", new)
    elif not python.writable:
        seen = f"{python.purelib} cannot be written by this user."
        yield blocker("externally-managed", seen, "Packages are installed there.", new)
    if not python.installers:
        seen = f"Neither uv nor pip is there for {python.executable}."
        yield blocker("build-dep-missing", seen, "One of them installs.", get_installer(python))
    if python.shadow:
        seen = f"There is a folder {python.shadow}."
        why = "Python started in this folder imports it instead of what is installed: 'No module named flash_attn_2_cuda'."
        yield warning("extension-not-built", seen, why, "Start Python in another folder.")


def source_build(case: Case) -> Iterator[Diagnosis]:
    """What a source build by pip or uv would miss."""
    python = case.python
    if python is None or python.torch is None:
        return
    if lacking := [name for name in _BUILD_TOOLS if name not in python.packages]:
        seen = f"The environment has no {', '.join(lacking)}."
        why = "upstream's source build needs them; an installation of a wheel does not."
        fix = f"For a source build: {_install(python, *lacking)}"
        yield note("build-dep-missing", seen, why, fix)
    if "pip" not in python.packages and "uv" in python.installers:
        why = "uv builds in isolation, where upstream's setup.py finds no torch; wheels are not affected."
        fix = "For a source build: uv pip install --no-build-isolation flash-attn"
        yield note("uv-build-isolation", "The environment has uv and no pip.", why, fix)


def _torch(case: Case, python: PythonEnvironment) -> Iterator[Diagnosis]:
    """A PyTorch that is not there, or cannot use an NVIDIA GPU."""
    found = python.torch
    get_torch = command_for_torch(python, case.record.platform)
    if found is None:
        seen = f"{python.prefix} has no PyTorch."
        why = "flash_attn is for PyTorch's tensors, and imports it; a source build stops at 'No module named torch'."
        yield blocker("build-isolation-no-torch", seen, why, get_torch)
    elif found.hip:
        seen = f"PyTorch {found.version} is built for AMD GPUs (ROCm {found.hip})."
        why = "These kernels are for NVIDIA GPUs."
        yield blocker("torch-without-cuda", seen, why, "Use AMD's flash-attention, or install PyTorch for CUDA.")
    elif found.cuda is None:
        seen = f"PyTorch {found.version} in {python.prefix} is built without CUDA."
        why = "It has no tensors on a GPU, and flash_attn takes no others."
        yield blocker("torch-without-cuda", seen, why, _replace_torch(python, "cu128"))
    elif ask("torch", case.facts, TorchNeed(oldest=OLDEST_TORCH)) is not None:
        seen = f"{python.prefix} has torch {found.version}."
        why = f"For one older than {OLDEST_TORCH} there are only old wheels."
        yield warning("torch-lib-missing", seen, why, get_torch)


def _imports(python: PythonEnvironment) -> Iterator[Diagnosis]:
    """What flash_attn imports next to PyTorch."""
    if lacking := [name for name in IMPORTED if name != "torch" and name not in python.packages]:
        seen = f"{python.prefix} has no {' and no '.join(lacking)}."
        yield note("build-dep-missing", seen, "flash_attn imports it.", "'flashdepot install' adds it.")


def torch_on_gpu(case: Case) -> Iterator[Diagnosis]:
    """A PyTorch whose CUDA the driver does not serve, or that has no code for the GPUs."""
    found = case.python.torch if case.python else None
    if case.python is None or found is None or found.cuda is None:
        return
    must = case.intention is Intention.INSTALL
    served = case.driver_cuda
    if judge_torch_driver(case.facts, found) is not None:
        seen = f"PyTorch {found.version} is built with CUDA {found.cuda}, and the NVIDIA driver is {case.record.driver}"
        seen += f", which serves CUDA up to {served}." if served else "."
        why = "PyTorch finds no GPU with that driver."
        fix = "Update the driver, or install a PyTorch of its CUDA" + (
            f": {_replace_torch(case.python, 'cu126')}" if served and served.major >= 12 else "."  # noqa: PLR2004
        )
        yield (misfit if must else warning)("driver-too-old", seen, why, fix)
    unserved = torch_lacks(case.facts, found)
    if unserved:
        gpu = next(g for g in case.record.gpus if g.architecture == unserved[0])
        seen = f"PyTorch {found.version}, built with CUDA {found.cuda}, has no code for {gpu.name}"
        seen += f" ({gpu.architecture.dotted})."
        why = "PyTorch's own kernels fail there: 'no kernel image is available for execution on the device'."
        must = must and judge_torch_gpus(case.facts, found) is not None
        yield (blocker if must else warning)("no-kernel-image", seen, why, _replace_torch(case.python, "cu128"))


def _abi(found: Torch) -> Iterator[Diagnosis]:
    """What decides which published wheels fit this PyTorch."""
    if found.cuda is None:
        return
    if found.cxx11_abi is False:
        seen = f"PyTorch {found.version} uses the old C++ ABI (cxx11abiFALSE)."
        why = "A published wheel with cxx11abiTRUE in its name fails at import: 'undefined symbol'. Ours fits both."
        yield note("abi-undefined-symbol", seen, why, "Take those with cxx11abiFALSE, or flashdepot's own.")
    if found.cuda.major < 12:  # noqa: PLR2004
        seen = f"PyTorch {found.version} is built with CUDA {found.cuda}."
        why = "flash-attention's own wheels need libcudart.so.12 since 2.8, which that PyTorch does not bring."
        yield warning("cudart-missing", seen, why, "Use flashdepot's own wheel: it needs no CUDA runtime.")


def _builds(python: PythonEnvironment) -> Iterator[Diagnosis]:
    """Builds of FlashAttention that are there already."""
    two = [e.path for e in python.extensions if e.module == "flash_attn_2_cuda"]
    version = python.packages.get("flash-attn")
    if version and not two:
        seen = f"flash-attn {version} is installed without its compiled module flash_attn_2_cuda."
        why = "It imports, and fails at the first use: it was built with FLASH_ATTENTION_SKIP_CUDA_BUILD, or on a host without nvcc."
        yield warning("extension-not-built", seen, why, _install(python, "--reinstall", "flash-attn"))
    elif two and not version:
        seen = f"{two[0]} belongs to no installed flash-attn."
        why = "Python imports it no matter what is installed, and it may be of another PyTorch."
        yield warning("extension-version-mixup", seen, why, f"Delete it: {removing(two[0])}")
    elif version:
        why = "An installation replaces it."
        yield note("extension-version-mixup", f"flash-attn {version} is installed.", why, "Nothing needs to be done.")
    if len(two) > 1:
        seen = f"There are {len(two)} modules flash_attn_2_cuda: {', '.join(two)}."
        yield warning(
            "extension-version-mixup", seen, "Python takes the first.", f"Delete the others: {removing(*two[1:])}"
        )
    if first := next((e.path for e in python.extensions if e.module == "flash_attn_cuda"), None):
        seen = f"{first} is a module of flash-attn 1."
        why = "Version 2 does not use it; code for version 1 would."
        yield note("extension-version-mixup", seen, why, f"If nothing needs it: {removing(first)}")


def command_for_torch(python: PythonEnvironment, platform: Platform) -> str:
    """What gives an environment PyTorch; PyPI's for Windows has no CUDA."""
    command = _install(python, "--upgrade", "torch")
    return _of_cuda(command, "cu128") if platform.system == "windows" else command


def _install(python: PythonEnvironment, *arguments: str) -> str:
    if python.managed:
        return f"In an environment of your own: .venv/bin/python -m pip install {' '.join(arguments)}"
    if "pip" in python.packages:
        words = ("--force-reinstall" if a == "--reinstall" else a for a in arguments)
        return python.command("-m", "pip", "install", *words)
    return joined(["uv", "pip", "install", "--python", python.executable, *arguments])


def _replace_torch(python: PythonEnvironment, build: str) -> str:
    return _of_cuda(_install(python, "--reinstall", "torch"), build)


def _of_cuda(command: str, build: str) -> str:
    return f"With the URL of PyTorch's own index for {build} ('Get started' on pytorch.org shows it): {command} --index-url URL"
