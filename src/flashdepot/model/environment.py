"""Where something must run: PyTorch, the Python environment, and each fact as far as it is known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.errors import UsageError
from flashdepot.model.codec import FixedWord
from flashdepot.model.limits import joined
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import Interpreter

_SPELLING = r"\d+\.\d+[\w.]*(?:\+[\w.]+)?"
_RELEASE = r"(\d+)\.(\d+)(?:\.\d+)*(?:\.post\d+)?(?:\+(?:cu\d+|cpu|rocm[\d.]+|xpu))?"


class Accelerator(FixedWord):
    """What a build of PyTorch computes on."""

    CUDA = "cuda"
    ROCM = "rocm"
    CPU = "cpu"


class Torch(msgspec.Struct, frozen=True):
    """A PyTorch, or by :data:`NO_TORCH` that there is none.

    ``version`` is as torch spells it, ``2.8.0+cu128``. ``accelerator`` and ``cuda`` are ``None`` where they are not
    known; ``cuda`` is ``None`` as well in a build without CUDA, ``hip`` in one without ROCm. ``cxx11_abi`` is true for
    the new C++ ABI of libstdc++, and ``None`` where it is not known and on Windows, which has only one.

    What only its files tell is empty elsewhere: ``folder``, where it is installed; ``architectures``, which its own
    kernels are compiled for; ``libraries``, the names of the files in its ``lib``.
    """

    version: str
    accelerator: Accelerator | None = None
    cuda: Version | None = None
    hip: str | None = None
    cxx11_abi: bool | None = None
    folder: str = ""
    architectures: tuple[Architecture, ...] = ()
    libraries: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Torch:
        """Read ``2.8``, ``2.8.0+cu128`` or ``none``. What the local version does not say stays unknown."""
        version = text.strip()
        if version.lower() == "none":
            return NO_TORCH
        if re.fullmatch(_SPELLING, version) is None:
            raise UsageError(f"'{text}' is not a version of PyTorch: expected one such as 2.8.0+cu128, or none.")
        local = version.partition("+")[2]
        if match := re.fullmatch(r"cu(\d+)(\d)", local):
            return cls(version, Accelerator.CUDA, Version(f"{match[1]}.{match[2]}"))
        if match := re.fullmatch(r"rocm(\d[\d.]*)", local):
            return cls(version, Accelerator.ROCM, hip=match[1])
        return cls(version, Accelerator.CPU if local == "cpu" else None)

    @property
    def label(self) -> str:
        """``torch 2.8.0+cu128``."""
        return f"torch {self.version}" if self.version else "no torch"

    @property
    def release(self) -> Version:
        """The numbers of the version, without a pre-release or a local part: ``2.8.0`` of ``2.8.0a0+cu128``."""
        match = re.match(r"\d+(?:\.\d+)*", self.version)
        return Version(match[0]) if match else Version("0")

    @property
    def minor(self) -> str:
        """The part of the version that extensions are built for: ``2.8``."""
        match = re.match(r"\d+\.\d+", self.version)
        return match[0] if match else self.version

    @property
    def is_release(self) -> bool:
        """Whether it is a release of PyTorch's own: no pre-release, and no local version of another builder."""
        return re.fullmatch(_RELEASE, self.version) is not None


NO_TORCH = Torch("")
"""An environment that is known to have no PyTorch."""


class Extension(msgspec.Struct, frozen=True):
    """A compiled module of FlashAttention in an environment: its import name and its file."""

    module: str
    path: str


class PythonEnvironment(msgspec.Struct, frozen=True, rename={"purelib": "site"}):
    """One interpreter and what is installed for it.

    ``tag`` is the interpreter's tag as wheels spell it (``cp312``, ``cp313t``), ``platform`` is sysconfig's
    (``linux-x86_64``, ``win-amd64``). ``virtual``: a virtual environment. ``managed``: marked by its distribution as
    not to be changed (PEP 668). ``conda``: a conda environment. ``writable``: its package folder ``purelib`` is.
    ``packages`` has the versions of those installed that matter here. ``shadow`` is a ``flash_attn`` folder in the
    working folder, which Python would import before any installed one.

    ``purelib``, ``platlib``, ``scripts`` and ``data`` are where the parts of a wheel are installed (PEP 427), and
    ``search`` is where modules are imported from, neither the user's site nor ``PYTHONPATH`` included. ``library`` is
    the shared library of an interpreter that has one. ``found_by`` says why it is this environment. ``embedded``: the
    embeddable Python for Windows, which portable applications bring (ComfyUI's ``python_embeded``).
    """

    executable: Path
    version: Version
    implementation: str
    tag: str
    platform: str
    free_threaded: bool
    prefix: Path
    purelib: Path
    virtual: bool
    managed: bool
    conda: bool
    writable: bool
    torch: Torch | None
    packages: Mapping[str, str] = msgspec.field(default_factory=dict)
    extensions: tuple[Extension, ...] = ()
    installers: tuple[str, ...] = ()
    shadow: str | None = None
    base_prefix: Path = Path()
    platlib: Path = Path()
    scripts: Path = Path()
    data: Path = Path()
    search: tuple[Path, ...] = ()
    libc: Version | None = None
    library: Path | None = None
    found_by: str = ""
    embedded: bool = False

    def command(self, *words: str) -> str:
        """The line that starts its interpreter with these words, in a shell of this system."""
        return joined([self.executable, *words])

    @property
    def is_system(self) -> bool:
        """Whether it is an interpreter's own, which other programs may need: no virtual, conda or portable one."""
        return not (self.virtual or self.conda or self.embedded)

    @property
    def interpreter(self) -> Interpreter:
        """The interpreter as far as tags of wheels go."""
        major, minor, *_ = (*self.version.numbers, 0)
        return Interpreter(self.implementation.lower(), (major, minor), self.free_threaded)

    @property
    def label(self) -> str:
        """``Python 3.11``."""
        return self.interpreter.label

    @property
    def runs_on(self) -> Platform:
        """The system and CPU that the interpreter is for: a 32-bit one differs from its machine."""
        system, _, machine = self.platform.partition("-")
        return Platform.of("windows", machine) if system == "win" else Platform(system, machine)


class Environment(msgspec.Struct, frozen=True):
    """Platform, C library, Python, PyTorch, GPUs and driver; ``None`` is what is not known.

    ``libc_name`` is ``glibc``, ``musl``, or empty for another or none. ``gpus`` are compute capabilities, sorted and
    without repeats; an empty tuple never says more than ``None``: what is installed where no GPU is, runs elsewhere.
    ``driver_cuda`` is the newest CUDA that the driver was seen to serve: more than its version says where there is
    ``cuda-compat``. ``glibcxx`` and ``cxxabi`` are the newest symbol versions of the libstdc++ that is loaded.
    ``origins`` are pairs of a fact's name and where it comes from, such as ``record`` or ``--driver``; a fact that is in
    none was probed.
    """

    platform: Platform | None = None
    libc_name: str | None = None
    libc: Version | None = None
    python: Interpreter | None = None
    torch: Torch | None = None
    gpus: tuple[Architecture, ...] = ()
    driver: Version | None = None
    driver_cuda: Version | None = None
    glibcxx: Version | None = None
    cxxabi: Version | None = None
    origins: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        known = {name: value for name, value in self.to_json().items() if value}
        return f"<Environment {', '.join(f'{name}={value}' for name, value in known.items())}>"

    def origin_of(self, fact: str) -> str:
        """Where a fact comes from: ``probed``, ``record``, an option, or what it follows from."""
        return dict(self.origins).get(fact, "probed")

    def with_origins(self, **origins: str) -> Environment:
        """The same facts, some of them known to come from elsewhere."""
        return replace(self, origins=tuple(sorted({**dict(self.origins), **origins}.items())))

    def served(self, oldest: Architecture) -> tuple[Architecture, ...]:
        """The GPUs that must be served: those that kernels from ``oldest`` on can run on, or all where none can."""
        return tuple(gpu for gpu in self.gpus if gpu >= oldest) or self.gpus

    def to_json(self) -> dict[str, Any]:
        """All facts, ``null`` where unknown, without where they come from."""
        torch = self.torch
        return {
            "platform": str(self.platform) if self.platform else None,
            "libc_name": self.libc_name,
            "libc": str(self.libc) if self.libc else None,
            "python": str(self.python) if self.python else None,
            "torch": torch.version if torch else None,
            "accelerator": str(torch.accelerator) if torch and torch.accelerator else None,
            "cuda": str(torch.cuda) if torch and torch.cuda else None,
            "cxx11_abi": torch.cxx11_abi if torch else None,
            "gpus": [gpu.dotted for gpu in self.gpus],
            "driver": str(self.driver) if self.driver else None,
        }
