"""From ``--arch`` to the architectures of a request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flashdepot.errors import IncompatibleError, MissingToolError
from flashdepot.facts.gpus import fallback_architecture, known_architectures, universal_architectures
from flashdepot.model.host import HostRecord
from flashdepot.model.request import GpuChoice, Gpus
from flashdepot.model.target import Architecture, Version


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
        fallback = fallback_architecture()
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
        known = {k.architecture: k for k in known_architectures()}.get(architecture)
        if older and known and nvcc < known.first_cuda:
            chosen.add(min(older))
            continue
        newest = max((code for code in codes if not code.suffix), default=None)
        knows = f": its newest is {newest.sm}." if newest else "."
        raise MissingToolError(f"nvcc {nvcc} cannot make {architecture.sm}{knows}", hint=_fix(architecture))
    return tuple(sorted(chosen))


def _fix(architecture: Architecture) -> str:
    for known in known_architectures():
        if known.architecture == architecture:
            until = f" up to {known.last_cuda}" if known.last_cuda else ""
            return f"{architecture.sm} needs nvcc {known.first_cuda} or newer{until}: --cuda 13.0 provides one."
    return "'flashdepot get --arch list' shows the architectures that can be built."
