"""The version and the tags of a wheel of ours, from the manifest of its library."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from flashdepot.errors import UsageError
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import DEFAULT_FAMILY
from flashdepot.model.wheel_tag import platform_tag

DISTRIBUTION = "flash_attn"
"""Upstream's name, as wheel and dist-info names spell it (PEP 427)."""


def wheel_version(manifest: Manifest) -> str:
    """Upstream's version with a local part: the CUDA major version, families besides fa2, and the architectures.

    ``2.8.3.post2+cu13.sm90``: two wheels of one upstream that run on different machines differ in version (PEP 440).

    :raises UsageError: when the source tree gives itself no version that a wheel could have.
    """
    try:
        version = Version(manifest.upstream.version)
    except InvalidVersion as error:
        raise UsageError(
            f"The source calls its version '{manifest.upstream.version}', and a wheel must have one such as 2.8.3.",
            hint="Set __version__ in flash_attn/__init__.py of that source.",
        ) from error
    local = [version.local] if version.local else []
    local += [
        f"cu{manifest.toolchain.cuda.major}",
        *(family for family in manifest.selection.families if family != DEFAULT_FAMILY),
        *(architecture.sm.replace("_", "") for architecture in manifest.sass),
    ]
    return str(Version(f"{version.public}+{'.'.join(local)}"))


def wheel_tag(manifest: Manifest) -> str:
    """``py3-none-manylinux_2_35_x86_64``: any Python 3, any ABI, from the C library that the library needs (PEP 600)."""
    return f"py3-none-{platform_tag(manifest.platform, manifest.libc_floor)}"


def wheel_name(manifest: Manifest) -> str:
    """The file name of the wheel."""
    return f"{DISTRIBUTION}-{wheel_version(manifest)}-{wheel_tag(manifest)}.whl"


def dist_info(manifest: Manifest) -> str:
    """The name of the folder with the wheel's metadata."""
    return f"{DISTRIBUTION}-{wheel_version(manifest)}.dist-info"
