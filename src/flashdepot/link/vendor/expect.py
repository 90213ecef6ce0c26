"""What a project asks of a vendored library."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.model.command import Command
from flashdepot.model.host import HostRecord
from flashdepot.model.library_request import Gpus, LibraryRequest
from flashdepot.model.manifest import Manifest
from flashdepot.model.request import Request
from flashdepot.model.selection import DEFAULT_FAMILY
from flashdepot.model.upstream import PUBLISHED
from flashdepot.resolve.library import understand


def expected(manifest: Manifest, wanted: LibraryRequest, host: HostRecord, depot: Depot) -> Request:
    """The request that a vendored library must satisfy on a host.

    Where the project says nothing, what is there is what was meant: its source, its selection, its compiler. The GPUs are those that
    are named, else those of the host; with neither, as in CI, any will do.

    :raises UsageError: for an upstream or a selection that is not known.
    :raises NetworkError: when an upstream must be looked at and the network is not there.
    """
    request = Request(
        upstreams=manifest.upstreams,
        selection=manifest.selection,
        platform=host.platform,
        gpus=tuple(sorted({gpu.architecture for gpu in host.gpus})),
        driver=host.driver,
        libc=host.libc,
        libc_name=host.libc_name,
        compiler=manifest.toolchain.device_compiler if manifest.toolchain.named else None,
    )
    if wanted == LibraryRequest():
        return request
    of_the_same = manifest.upstream.version if manifest.upstream.origin == PUBLISHED else None
    cuda = None if isinstance(wanted.cuda, Path) else wanted.cuda  # where it is checked, no compiler need be
    need = understand(replace(wanted, upstream=wanted.upstream or of_the_same, cuda=cuda), host, depot).request
    if wanted.upstream is not None or wanted.families is not None:
        asked, there = need.upstreams, manifest.upstreams
        meant = {**there, **asked} if wanted.upstream is not None else {**asked, **there}
        families = asked if wanted.families is not None else there
        request = replace(request, upstreams={family: meant[family] for family in families})
    if wanted.names_selection:
        request = replace(request, selection=need.selection)
    if wanted.arch not in {None, Gpus.NATIVE}:
        request = replace(request, gpus=need.gpus)
    return replace(request, cuda_major=need.cuda_major)


def rebuild_command(directory: str, manifest: Manifest, wanted: LibraryRequest, host_file: str | None) -> str:
    """The command that puts a library for this host there: what the project says, else a selection like this one's."""
    words = wanted.words()
    if not wanted.names_selection:
        words |= _selection_words(manifest)
    if manifest.upstream.origin == PUBLISHED:
        words.setdefault("upstream", manifest.upstream.version)
    return str(Command("vendor", {**words, "host": host_file}, (directory,)))


def _selection_words(manifest: Manifest) -> dict[str, str]:
    units, features = manifest.selection.units, manifest.selection.features
    families = manifest.selection.families
    return {
        **({"families": ",".join(families)} if families != (DEFAULT_FAMILY,) else {}),
        "passes": ",".join(sorted({str(u.pass_) for u in units})),
        "head_dims": ",".join(map(str, sorted({u.head_dim for u in units}))),
        "dtypes": ",".join(sorted({str(u.dtype) for u in units})),
        "features": ",".join(sorted(map(str, features))) or "none",
    }
