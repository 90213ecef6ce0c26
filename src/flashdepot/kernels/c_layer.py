"""The sources of our own in every library: header, C layer, stand-ins for torch's headers, templates.

What all families share is in ``native/src``, and what one needs in the folder of its name there.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from flashdepot.files.atomic import sha256_file
from flashdepot.files.folders import contents
from flashdepot.model.codec import digest_of

NATIVE = Path(__file__).parents[1] / "native"
"""Their folder."""


def driver_sources() -> list[Path]:
    """The sources of the run time over the driver, which takes the place of NVIDIA's runtime in a library.

    They include the generated header and NVIDIA's ``cuda.h`` and ``cuda_runtime_api.h``, and need the C library only.
    """
    return sorted((NATIVE / "driver").glob("*.cpp"))


def name_of_source(source: Path) -> str:
    """``native-device``, ``native-fa2-units``, ``native-driver-images``: our source in logs and archives."""
    root = NATIVE / "src" if source.is_relative_to(NATIVE / "src") else NATIVE
    return "-".join(("native", *source.relative_to(root).with_suffix("").parts))


@cache
def c_layer_digest() -> str:
    """One SHA-256 for all of them, by name and bytes, and for how kernels are made and chosen: a library has all of that in it."""
    here = Path(__file__).parent
    chosen = [*here.glob("*/speed.csv"), *here.glob("*/variants.py"), *here.glob("*/worker/*.py")]
    beside = {file.relative_to(here).as_posix(): sha256_file(file) for file in chosen}
    return digest_of({**contents(NATIVE), **beside})
