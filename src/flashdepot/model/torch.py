"""PyTorch, as far as it is known: from its files, from a record, or from what somebody names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from flashdepot.errors import UsageError
from flashdepot.model.architecture import Architecture
from flashdepot.model.target import Version

_SPELLING = r"\d+\.\d+[\w.]*(?:\+[\w.]+)?"
_RELEASE = r"(\d+)\.(\d+)(?:\.\d+)*(?:\.post\d+)?(?:\+(?:cu\d+|cpu|rocm[\d.]+|xpu))?"


class Accelerator(str, Enum):
    """What a build of PyTorch computes on."""

    CUDA = "cuda"
    ROCM = "rocm"
    CPU = "cpu"

    def __str__(self) -> str:
        return self.value


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
        """Read ``2.8``, ``2.8.0+cu128`` or ``none``. What the local version does not say stays unknown.

        :raises UsageError: for anything else.
        """
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
        return f"torch {self.version}" if self.version else "torch of an unknown version"

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

    def to_json(self) -> dict[str, Any]:
        """All fields; what the files did not tell, or nobody looked at, is left out or ``null``."""
        seen = {"architectures": [str(a) for a in self.architectures], "libraries": list(self.libraries)}
        return {
            "version": self.version,
            "cuda": str(self.cuda) if self.cuda else None,
            "hip": self.hip,
            "cxx11_abi": self.cxx11_abi,
            "folder": self.folder,
            **{name: values for name, values in seen.items() if values},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Torch:
        """Read what :meth:`to_json` wrote of an installed one, or what its files said."""
        cuda = Version.parse(data["cuda"]) if data["cuda"] else None
        return cls(
            version=str(data["version"]),
            accelerator=Accelerator.ROCM if data["hip"] else Accelerator.CUDA if cuda else Accelerator.CPU,
            cuda=cuda,
            hip=data["hip"],
            cxx11_abi=data["cxx11_abi"],
            folder=str(data["folder"]),
            architectures=tuple(Architecture.parse(text) for text in data.get("architectures", ())),
            libraries=tuple(map(str, data.get("libraries", ()))),
        )


NO_TORCH = Torch("")
"""An environment that is known to have no PyTorch."""
