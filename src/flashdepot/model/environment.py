"""Where something must run: each fact as far as it is known, and where it comes from."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.model.architecture import Architecture
from flashdepot.model.target import Platform, Version
from flashdepot.model.torch import Torch
from flashdepot.model.wheel_tag import Interpreter


class Environment(msgspec.Struct, frozen=True):
    """Platform, C library, Python, PyTorch, GPUs and driver; ``None`` is what nobody has told.

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
        """The GPUs that must be served: all that the kernels can run on, or all when there is none of those.

        :param oldest: the oldest GPU that the kernels run on.
        """
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
