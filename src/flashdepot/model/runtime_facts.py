"""What a wheel must run on: each fact as far as it is known."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flashdepot.model.architecture import KERNEL_FLOOR, Architecture
from flashdepot.model.target import Platform, Version
from flashdepot.model.wheel_tag import Interpreter

_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.\d+)*(?:\.post\d+)?(?:\+(?:cu\d+|cpu|rocm[\d.]+|xpu))?")


class Accelerator(str, Enum):
    """What a build of PyTorch computes on."""

    CUDA = "cuda"
    ROCM = "rocm"
    CPU = "cpu"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class TorchFacts:
    """A PyTorch, or by :data:`NO_TORCH` that there is none.

    ``accelerator`` and ``cuda`` are ``None`` where they are not known; so is ``cxx11_abi``, the C++ ABI of libstdc++
    (true for the new one), and on Windows, which has but one.
    """

    version: str
    accelerator: Accelerator | None = None
    cuda: Version | None = None
    cxx11_abi: bool | None = None

    @property
    def minor(self) -> str:
        """The part of the version that extensions are built for: ``2.8``."""
        match = re.match(r"\d+\.\d+", self.version)
        return match[0] if match else self.version

    @property
    def is_release(self) -> bool:
        """Whether it is a release of PyTorch's own: no pre-release, and no local version of another builder."""
        return _RELEASE.fullmatch(self.version) is not None


NO_TORCH = TorchFacts("")
"""An environment that is known to have no PyTorch."""


@dataclass(frozen=True)
class RuntimeFacts:
    """Platform, C library, Python, PyTorch, GPUs and driver; ``None`` is what nobody has told.

    ``libc_name`` is ``glibc``, ``musl``, or empty for another or none. ``gpus`` are compute capabilities, sorted and
    without repeats; an empty tuple never says more than ``None``: what is installed where no GPU is, runs elsewhere.
    """

    platform: Platform | None = None
    libc_name: str | None = None
    libc: Version | None = None
    python: Interpreter | None = None
    torch: TorchFacts | None = None
    gpus: tuple[Architecture, ...] = ()
    driver: Version | None = None

    @property
    def served(self) -> tuple[Architecture, ...]:
        """The GPUs that must be served: all that the kernels can run on, or all when there is none of those."""
        return tuple(gpu for gpu in self.gpus if gpu >= KERNEL_FLOOR) or self.gpus

    def to_json(self) -> dict[str, Any]:
        """All facts, ``null`` where unknown."""
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
