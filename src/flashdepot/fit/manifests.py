"""What a library of ours needs, from its manifest."""

from __future__ import annotations

from flashdepot.fit.needs import CodeNeed, DriverNeed, LibcNeed, Needs, PlatformNeed
from flashdepot.model.manifest import Manifest


def needs_of_manifest(manifest: Manifest) -> Needs:
    """What the library asks of the machine that it is loaded on. It asks for no PyTorch and no Python."""
    cuda = str(manifest.toolchain.cuda)
    return Needs(
        platform=PlatformNeed((manifest.platform,), str(manifest.platform)),
        libc=LibcNeed("glibc", manifest.libc_floor, manifest.libc_floor) if manifest.libc_floor else None,
        code=CodeNeed(manifest.sass, None, cuda),
        driver=DriverNeed(cuda, manifest.driver_floor),
    )
