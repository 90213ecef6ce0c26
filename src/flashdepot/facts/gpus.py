"""GPU architectures, the GPUs that have them and which are meant; CUDA releases, and the drivers and host compilers that they need."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import cache

import msgspec

from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.facts import table
from flashdepot.model.host import HostRecord
from flashdepot.model.request import GpuChoice, Gpus
from flashdepot.model.target import Architecture, Version


class KnownArchitecture(msgspec.Struct, frozen=True):
    """A compute capability, its GPUs as text, and the CUDA releases (first, last) whose nvcc targets it."""

    architecture: Architecture
    gpus: str
    first_cuda: Version
    last_cuda: Version | None


def known_architectures() -> tuple[KnownArchitecture, ...]:
    """Every architecture of the table, oldest first."""
    return tuple(
        KnownArchitecture(
            Architecture.parse(row["capability"]),
            row["gpus"],
            Version.parse(row["first_cuda"]),
            Version.parse(row["last_cuda"]) if "last_cuda" in row else None,
        )
        for row in table("gpus")["architecture"]
    )


def codes_of(release: Version) -> tuple[Architecture, ...]:
    """The architectures of the table that a CUDA release's nvcc targets: what to expect where nvcc was not asked."""
    return tuple(
        known.architecture
        for known in known_architectures()
        if known.first_cuda <= release and (known.last_cuda is None or release.major <= known.last_cuda.major)
    )


def universal_architectures() -> tuple[Architecture, ...]:
    """What ``--arch universal`` stands for."""
    return tuple(Architecture.parse(text) for text in table("gpus")["universal"])


def parse_architectures(text: str) -> tuple[Architecture, ...]:
    """Read a list of compute capabilities and names of GPUs into a sorted tuple without repeats.

    ``80,90``, ``9.0;sm_120``, ``A100, RTX 4090``: in every place where a person names architectures.
    """
    parts = [part.strip() for part in re.split(r"[,;]", text) if part.strip()]
    if len(parts) == 1 and re.fullmatch(r"[\d.\s]+", parts[0]):
        parts = parts[0].split()
    if not parts:
        raise UsageError("The list of architectures is empty.", hint="Name some: --arch 80,90")
    return tuple(sorted({parse_architecture(part) for part in parts}))


def parse_architecture(text: str) -> Architecture:
    """Read ``90``, ``9.0``, ``sm_90a`` or the name of a GPU such as ``RTX 4090``."""
    with contextlib.suppress(UsageError):
        return Architecture.parse(text)
    if found := _named(text):
        return found
    raise UsageError(
        f"'{text}' is not a GPU architecture: expected a compute capability such as 80, 9.0 or sm_120, or the name "
        "of a GPU such as RTX 4090.",
        hint="flashdepot get --arch list shows the architectures that can be built.",
        meant=(text, "universal" if text == "all" else text.removesuffix("+PTX")),
    )


def _named(text: str) -> Architecture | None:
    """The architecture of the GPU with the longest name that the text begins with."""
    words = _plain(text)
    found = [(len(name), gpu) for name, gpu in _names() if words == name or words.startswith(f"{name} ")]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _plain(name: str) -> str:
    """A GPU's name without what people leave out: ``rtx 3080 ti`` of NVIDIA GeForce RTX 3080 Ti and of 3080ti."""
    parted = re.sub(r"(?<=[a-z])(?=\d{4})|(?<=\d{4})(?=ti|super)", " ", name.lower())
    words = re.sub(r"[^a-z0-9]+", " ", parted).split()
    kept = [word for word in words if word not in {"nvidia", "geforce", "tesla"}]
    consumer = bool(kept) and re.fullmatch(r"[2-9]0[5-9]0", kept[0]) is not None
    return " ".join(["rtx", *kept] if consumer else kept)


@cache
def _names() -> tuple[tuple[str, Architecture], ...]:
    return tuple(
        (_plain(name), Architecture.parse(row["capability"]))
        for row in table("gpus")["architecture"]
        for name in row["names"]
    )


class ArchitectureChoice(msgspec.Struct, frozen=True):
    """The architectures that must be served, and a sentence where the choice needs one."""

    wanted: tuple[Architecture, ...]
    note: str = ""


def choose_architectures(option: GpuChoice, host: HostRecord, oldest: Architecture) -> ArchitectureChoice:
    """The architectures that are meant, for a host.

    :param oldest: the oldest GPU that the kernels run on.
    """
    if option is Gpus.UNIVERSAL:
        return ArchitectureChoice(universal_architectures())
    if isinstance(option, tuple):
        for architecture in option:
            _require_floor(architecture, architecture.sm, oldest)
        return ArchitectureChoice(option)
    if not host.gpus:
        fallback = Architecture.parse(table("gpus")["fallback"])
        note = f"No NVIDIA GPU was found, so '--arch native' takes {fallback}. Name another with --arch."
        return ArchitectureChoice((fallback,), note)
    usable = [g for g in host.gpus if g.architecture >= oldest]
    if not usable:
        _require_floor(host.gpus[0].architecture, f"{host.gpus[0].name} ({host.gpus[0].architecture.dotted})", oldest)
    ignored = [g.name for g in host.gpus if g not in usable]
    note = f"Left out, older than compute capability {oldest.dotted}: {', '.join(ignored)}." if ignored else ""
    return ArchitectureChoice(tuple(sorted({g.architecture for g in usable})), note)


def _require_floor(architecture: Architecture, named: str, oldest: Architecture) -> None:
    if architecture < oldest:
        raise IncompatibleError(
            f"{named} cannot run FlashAttention-2: its kernels use instructions of compute capability "
            f"{oldest.dotted} (Ampere) and newer.",
            hint="Use a GPU from the A100 or RTX 30 on; on older ones, PyTorch's own attention works.",
        )


def choose_sass(
    wanted: Sequence[Architecture], nvcc: Version, codes: Sequence[Architecture]
) -> tuple[Architecture, ...]:
    """The machine code to build for the wanted architectures.

    What is asked for by name is built by name. Where this nvcc is too old to know it, code for the first GPUs of its
    generation is built instead, because all later ones of the generation run that.

    :param codes: what the available nvcc can target (``nvcc --list-gpu-code``).
    """
    chosen = set()
    for architecture in wanted:
        if architecture in codes:
            chosen.add(architecture)
            continue
        older = [c for c in codes if c.runs_on(architecture) and not c.suffix]
        known = next((known for known in known_architectures() if known.architecture == architecture), None)
        if older and known and nvcc < known.first_cuda:
            chosen.add(min(older))
            continue
        newest = max((code for code in codes if not code.suffix), default=None)
        knows = f": its newest is {newest.sm}." if newest else "."
        hint = "'flashdepot get --arch list' shows the architectures that can be built."
        if known:
            until = f" up to {known.last_cuda}" if known.last_cuda else ""
            hint = f"{architecture.sm} needs nvcc {known.first_cuda} or newer{until}: --cuda {known.last_cuda or '13.0'} provides one."
        raise MissingToolError(f"nvcc {nvcc} cannot make {architecture.sm}{knows}", hint=hint)
    return tuple(sorted(chosen))


def newest_cuda(driver: Version, system: str) -> Version | None:
    """The newest CUDA release that a driver serves; ``None`` for one older than the table, or another system."""
    served = [cuda for cuda, branch in _branches(system).items() if branch <= driver.major]
    return Version.parse(served[-1]) if served else None


def oldest_driver(cuda_major: int, system: str) -> Version | None:
    """The first branch that serves a CUDA major version; ``None`` for one that the table does not have."""
    branch = _branches(system).get(f"{cuda_major}.0")
    return Version(str(branch)) if branch else None


def _branches(system: str) -> dict[str, int]:
    """The first branch of the driver that serves each CUDA release, in order; none for a system without a driver."""
    return {row["cuda"]: row[system] for row in table("drivers")["branch"] if system in row}


def cuda_of_ptx(version: tuple[int, int]) -> Version | None:
    """The oldest CUDA release whose driver compiles PTX of a version; ``None`` for one that the table lacks."""
    release = dict(table("drivers")["ptx"]).get(f"{version[0]}.{version[1]}")
    return Version.parse(release) if release else None


def cuda_of_elf(abi: int) -> Version | None:
    """The oldest CUDA release whose driver loads machine code of an ELF ABI; ``None`` where every one does."""
    newer = [Version.parse(cuda) for known, cuda in table("drivers")["elf_abi"].items() if int(known) <= abi]
    return max(newer, default=None)


def driver_floor(cuda_major: int, system: str, *, compressed: bool) -> Version:
    """The oldest NVIDIA driver that runs what that CUDA major version builds for ``linux`` or ``windows``."""
    for row in table("drivers")["driver_floor"]:
        if row["cuda_major"] == cuda_major:
            return Version.parse(row[f"compressed_{system}" if compressed else system])
    known = ", ".join(str(row["cuda_major"]) for row in table("drivers")["driver_floor"])
    raise IncompatibleError(f"CUDA {cuda_major} is not supported: builds are made with CUDA {known}.")


BUILD_TOOLS = (
    "winget install Microsoft.VisualStudio.2022.BuildTools --override "
    '"--passive --wait --add Microsoft.VisualStudio.Workload.VCTools --includeRecommended"'
)
"""The command that installs Microsoft's compiler, its libraries and a Windows SDK without the rest."""
