"""Whether our library serves a request: what was asked for, and every rule of fit."""

from __future__ import annotations

from collections.abc import Iterator

from flashdepot.fit.needs import CodeNeed, DriverNeed, LibcNeed, Needs, PlatformNeed
from flashdepot.fit.rules import judge
from flashdepot.model.diagnosis import Verdict
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Request
from flashdepot.model.selection import DEFAULT_FAMILY


def needs_of_manifest(manifest: Manifest) -> Needs:
    """What the library asks of the machine that it is loaded on. It asks for no PyTorch and no Python."""
    cuda = str(manifest.toolchain.cuda)
    return Needs(
        platform=PlatformNeed((manifest.platform,), str(manifest.platform)),
        libc=LibcNeed("glibc", manifest.libc_floor, manifest.libc_floor) if manifest.libc_floor else None,
        code=CodeNeed(manifest.sass, None, cuda),
        driver=DriverNeed(cuda, manifest.driver_floor),
    )


_UNITS_NAMED = 3


def unmet(request: Request, manifest: Manifest) -> tuple[str, ...]:
    """Why a library does not serve a request; empty when it does, as far as the facts of the host are known.

    Which compiler made the library does not matter to who runs it, as long as nobody named one: what a compiler made that
    somebody named serves only who names the same, since nobody else has a reason to trust it.
    """
    misfits = (r.clause for r in judge(needs_of_manifest(manifest), request.facts) if r.verdict is Verdict.MISFIT)
    return (*_lacking(request, manifest), *misfits)


def _lacking(request: Request, manifest: Manifest) -> Iterator[str]:
    for family, wanted in request.upstreams.items():
        project = "flash-attn" if family == DEFAULT_FAMILY else family
        made = manifest.upstreams.get(family)
        if made is None:
            yield f"lacks the family {family}"
        elif (made.version, made.digest) != (wanted.version, wanted.digest):
            same = made.version == wanted.version
            yield f"was made from {'another source of the same version' if same else f'{project} {made.version}'}"
    if extra := sorted(set(manifest.selection.families) - request.upstreams.keys()):
        yield f"has kernels of {', '.join(extra)} too, which were not asked for (--families all)"
    if missing := [*dict.fromkeys(map(str, sorted(request.selection.units - manifest.selection.units)))]:
        more = f" and {len(missing) - _UNITS_NAMED} more" if len(missing) > _UNITS_NAMED else ""
        yield f"lacks {', '.join(missing[:_UNITS_NAMED])}{more}"
    if lost := sorted(f.value for f in request.selection.features - manifest.selection.features):
        yield f"lacks the features {', '.join(lost)}"
    if request.cuda_major is not None and manifest.toolchain.cuda.major != request.cuda_major:
        yield f"was made with CUDA {manifest.toolchain.cuda.major}, and {request.cuda_major} was asked for"
    if request.compiler is not None and manifest.toolchain.device_compiler != request.compiler:
        yield "was made with another nvcc than the one that is named"
    if request.compiler is None and manifest.toolchain.named:
        yield "was made with an nvcc that was named by its folder: it serves only requests that name it with --cuda"
    if request.c_layer is not None and manifest.c_layer != request.c_layer:
        yield f"has the C layer of another flashdepot ({manifest.flashdepot})"
