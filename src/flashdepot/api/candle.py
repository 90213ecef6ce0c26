"""candle's own kernels for an archive: compiled as units of a library are, and kept in the depot."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.api.libraries import open_depot
from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError
from flashdepot.events import Events, Forecast
from flashdepot.model.limits import Limits
from flashdepot.resolve.consent import require_consent

if TYPE_CHECKING:
    from flashdepot.build.schedule import Outlook
    from flashdepot.link.candle_archive import AddedKernels
    from flashdepot.link.candle_kernels import CandleKernel
    from flashdepot.link.library import LinkableLibrary

_SILENT = Events()
_KEPT = 2_000_000
"""Bytes of an object in the depot, about."""


@contextlib.contextmanager
def added_kernels(
    kernels: Sequence[CandleKernel],
    crate: Path,
    library: LinkableLibrary,
    *,
    depot: Depot | None = None,
    limits: Limits | None = None,
    events: Events = _SILENT,
) -> Iterator[AddedKernels]:
    """candle's own kernels for the archive over a library: for its GPUs, with its features, by its CUDA's nvcc.

    Their objects are there until the block ends. The depot keeps each kernel that was compiled.

    :param crate: the sources of candle-flash-attn.
    :raises IncompatibleError: when the archive is not for this machine's system and CPU.
    :raises ConsentError: when compiling takes long and nobody has said yes.
    :raises CompileError: when a compiler refuses.
    :raises NetworkError: when a toolchain or CUTLASS must be fetched and cannot be.
    """
    from flashdepot.build.objects import compilers_of, make_objects  # noqa: PLC0415
    from flashdepot.host import probe  # noqa: PLC0415
    from flashdepot.host.probe import this_platform  # noqa: PLC0415
    from flashdepot.link.candle_archive import AddedKernels  # noqa: PLC0415
    from flashdepot.link.candle_kernels import PLACE, kernel_actions, recipe_for  # noqa: PLC0415
    from flashdepot.toolchain.choose import asks_machine, choose_toolchain  # noqa: PLC0415
    from flashdepot.toolchain.identity import identify_toolchain  # noqa: PLC0415
    from flashdepot.toolchain.wheels import provide_cutlass  # noqa: PLC0415

    manifest, limits, depot = library.manifest, limits or Limits(), depot or open_depot(events=events)
    if manifest.platform.system != "linux" or manifest.platform != this_platform():
        raise IncompatibleError(
            f"candle's own kernels are added for the Linux and the CPU of this machine, {this_platform()}, and this library "
            f"is for {manifest.platform}.",
            hint="Leave out --candle-kernels, or run it there.",
        )

    def agree(outlook: Outlook) -> None:
        left = sum(f"candle-{kernel.stem}" in outlook.jobs for kernel in kernels)
        forecast = Forecast(
            units=len(kernels),
            compiled=len(kernels) - left,
            jobs=max(1, outlook.at_once),
            seconds=outlook.seconds,
            memory=outlook.peak,
            memory_limit=outlook.memory,
            disk=left * _KEPT,
        )
        if left:
            require_consent(forecast, limits, events)

    cuda = manifest.toolchain.cuda
    machine = probe(depot=depot.root, tools=asks_machine(cuda, this_platform(), None))
    with depot.workspace() as work, events.building() as progress:
        toolchain = choose_toolchain(
            cuda,
            machine,
            manifest.sass,
            driver=None,
            folder=depot.layout.toolchains,
            work=work,
            on_file=progress.download,
        )
        sources = {
            PLACE: (crate / "kernels").resolve(),
            "cutlass": provide_cutlass(depot.layout.toolchains, progress.download),
        }
        identity = identify_toolchain(toolchain)
        compilers = compilers_of(toolchain, identity, manifest.platform, depot.layout.toolchains)
        recipe = recipe_for(manifest, identity, compilers)
        actions = kernel_actions(kernels, manifest.selection.features, recipe, compilers)
        objects = make_objects(actions, sources, recipe, toolchain, depot, work / "candle", limits, progress, agree)
        yield AddedKernels(tuple(kernels), manifest.selection.features, tuple(objects))
