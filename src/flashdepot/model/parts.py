"""What is inside of a library that others wrote, and on which terms."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from flashdepot.model.manifest import Manifest
from flashdepot.model.upstream import PUBLISHED, UpstreamId

OWN_LICENCE = "BSD-3-Clause"
NVIDIA_TERMS = "LicenseRef-NVIDIA-CUDA-Toolkit-EULA"
"""The End User License Agreement of the CUDA Toolkit, whose attachment A lists what may be passed on."""


class Part(msgspec.Struct, frozen=True):
    """Something that others may know by this name, version and address (a package URL), and its SPDX licence.

    ``digest`` is the SHA-256 of all of it, empty where nobody counted; ``commit`` that of its repository at ``origin``.
    """

    name: str
    version: str
    licence: str
    purl: str = ""
    digest: str = ""
    origin: str = ""
    commit: str = ""


def parts(manifest: Manifest) -> tuple[Part, ...]:
    """All that a library is made of, sources first, then what the linker put in."""
    return (*_sources(manifest), *_run_times(manifest))


def licence_expression(manifest: Manifest) -> str:
    """The SPDX expression of all that is inside: every one of its terms applies."""
    return " AND ".join(sorted({part.licence for part in parts(manifest)}))


def _sources(manifest: Manifest) -> list[Part]:
    found = []
    for family, upstream in sorted(manifest.upstreams.items()):
        found.append(
            _upstream("flash-attn" if family == "fa2" else f"flash-attn-{family.removeprefix('fa')}", upstream)
        )
        for place, commit in sorted(upstream.commits.items()):
            if place != ".":
                found.append(Part(PurePosixPath(place).name, "", OWN_LICENCE, commit=commit))
        if family == "fa2" and not any(part.name == "cutlass" for part in found):
            found.append(Part("cutlass", "", OWN_LICENCE))  # the one inside of an sdist or a folder does not say which
    purl = f"pkg:pypi/flashdepot@{manifest.flashdepot}"
    return [*found, Part("flashdepot-c-layer", manifest.flashdepot, OWN_LICENCE, purl, manifest.c_layer)]


def _upstream(project: str, upstream: UpstreamId) -> Part:
    kind = "pypi" if upstream.origin == PUBLISHED else "generic"
    origin = upstream.origin.removeprefix("git+") if upstream.origin.startswith("git+") else ""
    purl = f"pkg:{kind}/{project}@{upstream.version}".replace("+", "%2B")
    return Part(project, upstream.version, OWN_LICENCE, purl, upstream.digest, origin, upstream.commits.get(".", ""))


def _run_times(manifest: Manifest) -> list[Part]:
    """What the linker takes from the compilers: their exceptions ask for nothing, and yet they are inside."""
    compiler = manifest.toolchain.host_compiler
    cuda = str(manifest.toolchain.cuda)
    runtimes = [file for file in manifest.files if "cudart_static" in file.path]
    found = [Part("cuda-cudart", cuda, NVIDIA_TERMS, digest=file.digest) for file in runtimes]
    if compiler.name == "zig":
        llvm = Part("libc++", compiler.version, "Apache-2.0 WITH LLVM-exception")
        return [*found, llvm, Part("zig-compiler-rt", compiler.version, "MIT")]
    if manifest.platform.system == "linux":
        return [*found, Part("libstdc++", compiler.version, "GPL-3.0-or-later WITH GCC-exception-3.1")]
    return found
