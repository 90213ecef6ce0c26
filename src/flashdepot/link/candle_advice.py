"""What a person must set and know so that a build of candle uses a library."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from flashdepot.link.candle_kernels import CandleKernel
from flashdepot.link.candle_sources import CRATE
from flashdepot.link.shell import Shell
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import Dtype, Feature, Pass

_USED_BY = {
    Feature.ALIBI: "flash_attn_alibi",
    Feature.SOFTCAP: "softcap",
    Feature.LOCAL: "windows other than causal",
    Feature.UNEVEN_K: "head dims between those of the kernels",
}
_NEWEST_LIST = 45


def environment(manifest: Manifest, folder: Path) -> dict[str, str]:
    """The variables for a build with a prepared folder.

    candle's build script wants a compute capability that its nvcc knows, even when it compiles nothing; and
    candle-kernels compiles for it. It is that of the oldest machine code in the library: code made for it runs on every
    GPU that the library serves.
    """
    oldest = min(manifest.sass)
    return {"CANDLE_FLASH_ATTN_BUILD_DIR": str(folder), "CUDA_COMPUTE_CAP": f"{oldest.major}{oldest.minor}"}


def shell_lines(variables: Mapping[str, str], system: str) -> str:
    """The lines that set variables in a POSIX shell, or on Windows in cmd."""
    shell = Shell.of(system)
    return "\n".join(shell.assignment(name, value) for name, value in variables.items())


def patch_lines(folder: Path) -> str:
    """The lines for the ``Cargo.toml`` of a workspace that take a crate from a folder."""
    return f'[patch.crates-io]\n{CRATE} = {{ path = "{folder.as_posix()}" }}'


def missing_kernels(manifest: Manifest, arguments: int, added: Sequence[CandleKernel] = ()) -> str:
    """What of candle an archive cannot run and will refuse, as a sentence or two.

    :param added: kernels of candle's own in it.
    """
    selection = manifest.selection
    lacks = [str(dtype) for dtype in Dtype if not any(unit.dtype is dtype for unit in selection.units)]
    lacks += [words for feature, words in _USED_BY.items() if feature not in selection.features]
    if arguments == _NEWEST_LIST and not any(unit.pass_ is Pass.SPLITKV for unit in selection.units):
        lacks.append("paged keys and values")
    dims = sorted({unit.head_dim for unit in selection.units if unit.pass_ is Pass.FWD})
    lacks.append("head dims over " + str(dims[-1]) if dims else "everything: it has no forward pass")
    refuses = f"This library refuses {', '.join(lacks)}; run_mha then says so."
    if not added:
        beyond = " Head dim 512, pages of 32 rows and prefix ranges need kernels of candle's own: --candle-kernels all"
        return f"{refuses}{beyond * (arguments == _NEWEST_LIST)}"
    names = ", ".join(kernel.name for kernel in added)
    return f"{refuses} Of those calls, the archive's kernels of candle's own serve what they can: {names}."


def streams(arguments: int) -> list[str]:
    """What must be known of streams where an argument list has none."""
    if arguments >= _NEWEST_LIST:
        return []
    note = (
        "The kernels run on the legacy default stream. With CudaDevice::new_with_stream, set "
        "FLASHDEPOT_CANDLE_SYNCHRONIZE=1 when the program runs."
    )
    return [note]


def folder_notes(crate: Path | None, nvcc: str | None, stored: Path | None, version: str) -> list[str]:
    """What else must be known before a build with a prepared folder.

    :param nvcc: the one on PATH.
    :param stored: the one in the depot.
    """
    found = [
        "Built it before? Cargo does not run the build script again for a new folder: cargo clean -p candle-flash-attn",
    ]
    if nvcc is None:
        remedy = (
            f"The depot has one: export PATH={shlex.quote(str(stored.parent))}:$PATH"
            if stored
            else "pip install nvidia-cuda-nvcc has one, in site-packages/nvidia/cu13/bin: put that folder on PATH."
        )
        found.append(
            "nvcc is not on PATH. candle's build script runs 'nvcc --list-gpu-code' even when it compiles nothing, and "
            f"stops without it. {remedy}"
        )
    if crate is None:
        found.append(
            f"The sources of {CRATE} {version} were not found, so the archive is as new as now. After a git checkout or "
            "a cargo fetch that is later, run this command again (--crate names the sources of a git dependency)."
        )
    return found
