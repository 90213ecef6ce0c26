"""What has changed since a vendored library was made, and whether that asks for a new one."""

from __future__ import annotations

from collections.abc import Iterator

from flashdepot.link.vendor.report import Change
from flashdepot.model.architecture import Architecture, spell
from flashdepot.model.host import HostRecord
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Request
from flashdepot.model.upstream import PUBLISHED


def changes(manifest: Manifest, host: HostRecord, request: Request, newest: str, c_layer: str) -> tuple[Change, ...]:
    """Every difference that somebody who compares two build logs would ask about.

    :param newest: the flash-attn that ``get`` takes when none is named.
    :param c_layer: the digest of this flashdepot's own C layer.
    """
    return tuple(
        change
        for finder in (_architecture, _driver, _toolkit)
        if (change := finder(manifest, host, request)) is not None
    ) + tuple(_upstream(manifest, request, newest, c_layer))


def _architecture(manifest: Manifest, host: HostRecord, request: Request) -> Change | None:
    wanted = tuple(sorted(set(request.gpus)))
    unserved = [gpu for gpu in wanted if not _serves(manifest, gpu)]
    if not wanted or wanted == manifest.sass:
        return None
    here = f"{spell(wanted)}" + (f" ({', '.join(sorted({g.name for g in host.gpus}))})" if host.gpus else "")
    if unserved:
        return Change(
            "architecture", spell(manifest.sass), here, True, f"no machine code in it runs on {unserved[0].sm}"
        )
    return Change("architecture", spell(manifest.sass), here, False, "its machine code runs on these as well")


def _serves(manifest: Manifest, gpu: Architecture) -> bool:
    return any(sass.runs_on(gpu) for sass in manifest.sass)


def _driver(manifest: Manifest, host: HostRecord, _request: Request) -> Change | None:
    if host.driver is None or not host.driver < manifest.driver_floor:
        return None
    serves = f", which serves CUDA {host.driver_cuda}" if host.driver_cuda else ""
    return Change(
        "CUDA",
        str(manifest.toolchain.cuda),
        f"driver {host.driver}{serves}",
        True,
        f"it needs driver {manifest.driver_floor}: update the driver, or build with an older CUDA",
    )


def _toolkit(manifest: Manifest, host: HostRecord, request: Request) -> Change | None:
    made = manifest.toolchain.cuda
    if request.cuda_major is not None:
        if request.cuda_major == made.major:
            return None
        return Change("CUDA", str(made), str(request.cuda_major), True, "another one was asked for")
    if not host.toolkits or any(toolkit.version.major == made.major for toolkit in host.toolkits):
        return None
    why = "it calls the driver by itself and needs no toolkit"
    return Change("CUDA toolkit", str(made), str(host.toolkits[0].version), False, why)


def _upstream(manifest: Manifest, request: Request, newest: str, c_layer: str) -> Iterator[Change]:
    made = manifest.upstream.version
    if (request.upstream.version, request.upstream.digest) != (made, manifest.upstream.digest):
        yield Change("flash-attn", made, str(request.upstream), True, "another source was asked for")
    elif made != newest and manifest.upstream.origin == PUBLISHED:
        yield Change("flash-attn", made, newest, False, "no version was asked for; this is the newest that is known")
    if manifest.c_layer != c_layer:
        why = "its header is its own; another flashdepot wrote the C layer around the kernels differently"
        yield Change("C layer", f"{manifest.c_layer[:12]} (flashdepot {manifest.flashdepot})", c_layer[:12], False, why)
