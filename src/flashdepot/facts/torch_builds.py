"""What PyTorch's own binary builds are like, where their files are not at hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from flashdepot.facts import read_table
from flashdepot.model.target import Architecture, Version


@cache
def _data() -> dict[str, Any]:
    return read_table(Path(__file__).with_suffix(".toml"))


def default_cxx11_abi(minor: str, local: str, machine: str) -> bool | None:
    """Whether a Linux build has the C++11 ABI of libstdc++; ``None`` where the builds of that version differ.

    :param minor: of the version, such as ``2.6``.
    :param local: the local version of the build, such as ``cu126``; empty where it is not known.
    """
    rule, version = _data()["cxx11_abi"], Version.parse(minor)
    if version <= Version(rule["old_until"]):
        return False
    if version >= Version(rule["new_since"]) or machine == "aarch64":
        return True
    return local in rule["new_cuda"].get(minor, ()) if local else None


def default_cuda(minor: str) -> Version | None:
    """The CUDA of PyPI's wheels of a minor version for Linux on x86-64; ``None`` for a version outside the table."""
    rows = _data()["default_cuda"]
    if Version.parse(minor) > Version(rows["newest_checked"]):
        return None
    known = [cuda for first, cuda in rows["since"].items() if Version(first) <= Version.parse(minor)]
    return Version(known[-1]) if known else None


@cache
def newest_gpu(cuda: Version) -> Architecture | None:
    """The newest GPU that PyTorch's own builds with a CUDA have kernels for; ``None`` for a CUDA before the table."""
    rows = [row for row in _data()["newest_gpu"] if Version.parse(row["from_cuda"]) <= cuda]
    return Architecture.parse(rows[-1]["gpu"]) if rows else None
