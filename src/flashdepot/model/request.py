"""What somebody needs, and why something that exists does not serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flashdepot.model.architecture import Architecture, spell
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import DEFAULT_FAMILY, Selection
from flashdepot.model.target import Platform, Version
from flashdepot.model.upstream import UpstreamId, leading

_UNITS_NAMED = 3


@dataclass(frozen=True)
class Request:
    """The upstream of each family, selection, and the facts of the host that the library must run on. It says nothing of how.

    ``gpus`` are the architectures that must be served: those present, or those named. ``driver`` and ``libc`` are
    ``None`` where the host has none or they are unknown; then they restrict nothing. ``cuda_major`` is set when a
    certain one was asked for. ``front_end`` is set when a certain one was asked for. ``c_layer`` is the digest of the C
    layer of the flashdepot that asks: one of another release may lack what callers of this one expect.
    """

    upstreams: Mapping[str, UpstreamId]
    selection: Selection
    platform: Platform
    gpus: tuple[Architecture, ...]
    driver: Version | None = None
    libc: Version | None = None
    cuda_major: int | None = None
    front_end: str | None = None
    c_layer: str | None = None

    @property
    def upstream(self) -> UpstreamId:
        """The source that gives the library its version."""
        return leading(self.upstreams)


def unmet(request: Request, manifest: Manifest) -> tuple[str, ...]:
    """Why a stored library does not satisfy a request; empty when it does.

    Which compiler made the library does not matter to who runs it, so no rule asks for it.
    """
    reasons: list[str] = []
    for family, wanted in request.upstreams.items():
        project = "flash-attn" if family == DEFAULT_FAMILY else family
        made = manifest.upstreams.get(family)
        if made is None:
            reasons.append(f"lacks the family {family}")
        elif (made.version, made.digest) != (wanted.version, wanted.digest):
            other = (
                "another source of the same version" if made.version == wanted.version else f"{project} {made.version}"
            )
            reasons.append(f"made from {other}")
    if manifest.platform != request.platform:
        reasons.append(f"made for {manifest.platform}, needed on {request.platform}")
    if missing := sorted(request.selection.units - manifest.selection.units):
        more = f" and {len(missing) - _UNITS_NAMED} more" if len(missing) > _UNITS_NAMED else ""
        reasons.append(f"lacks {', '.join(map(str, missing[:_UNITS_NAMED]))}{more}")
    if lost := sorted(f.value for f in request.selection.features - manifest.selection.features):
        reasons.append(f"lacks the features {', '.join(lost)}")
    reasons += [
        f"has machine code for {spell(manifest.sass)}, none that runs on {gpu.sm}"
        for gpu in request.gpus
        if not any(sass.runs_on(gpu) for sass in manifest.sass)
    ]
    if request.driver and request.driver < manifest.driver_floor:
        reasons.append(f"needs NVIDIA driver {manifest.driver_floor}, the host has {request.driver}")
    if request.libc and manifest.libc_floor and request.libc < manifest.libc_floor:
        reasons.append(f"needs GNU libc {manifest.libc_floor}, the host has {request.libc}")
    if request.cuda_major is not None and manifest.toolchain.cuda.major != request.cuda_major:
        reasons.append(f"made with CUDA {manifest.toolchain.cuda.major}, {request.cuda_major} was asked for")
    if request.front_end is not None and manifest.front_end != request.front_end:
        reasons.append(f"made with the {manifest.front_end} front end, {request.front_end} was asked for")
    if request.c_layer is not None and manifest.c_layer != request.c_layer:
        reasons.append(f"has the C layer of another flashdepot ({manifest.flashdepot})")
    return tuple(reasons)
