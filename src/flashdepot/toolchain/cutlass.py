"""CUTLASS's headers from a PyPI wheel, for kernels whose own source does not bring them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from flashdepot.files.archive import unpack
from flashdepot.files.folders import make_whole
from flashdepot.net.fetch import fetch

if TYPE_CHECKING:
    from flashdepot.events import OnFile

CUTLASS_COMMIT = "7d49e6c7e2f8896c47f586706e67e1fb215529dc"
"""CUTLASS 3.5.0, the commit that candle-flash-attn 0.9.2 to 0.11.1 clone with git (``build.rs``). Git's digest of each of
the 631 files of its ``include`` was compared with the wheel's on 2026-11-22: they are the same."""

_PROJECT = "nvidia-cutlass"
_WHEEL = "nvidia_cutlass-3.5.0.0-py3-none-any.whl"
_SHA256 = "4ec3ab4820dd4ae3ebc2c5ddf23352b0dc90f779435284e7dce822006adc51f6"
_INSIDE = "cutlass_library/source/include/"
_TREE = "91ad8e9a366d7c7ed0171f6962023632c1aa0b2cd4b7b81d7bcff935fc2e616b"


def provide_cutlass(folder: Path, on_file: OnFile) -> Path:
    """The folder of the headers inside ``folder``, fetched and unpacked on first use (4 MB), and compared each time.

    :param on_file: called with the name of the wheel before it is fetched.
    :raises NetworkError: when it must be fetched and cannot be.
    :raises IntegrityError: when what was fetched is not what is pinned.
    """

    def fill(temporary: Path) -> None:
        work = temporary.with_name(f"{temporary.name}.work")
        try:
            wheel = fetch(_PROJECT, _WHEEL, _SHA256, work / _WHEEL, on_progress=on_file(_WHEEL))
            unpack(wheel, work / "wheel", keep=lambda name: name.startswith(_INSIDE))
            shutil.move(work / "wheel" / _INSIDE, temporary)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    return make_whole(folder / f"cutlass-3.5.0-{_SHA256[:12]}", fill, _TREE)
