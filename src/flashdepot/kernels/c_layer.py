"""The sources of our own in every library: header, C layer, stand-ins for torch's headers, templates.

What all families share is in ``native/src``, and what one needs in the folder of its name there.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from pathlib import Path

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


_CHOICES = ("speed.csv", "tiles.py", "units.py", "variants.py", "worker/*.py")
_COMMENT = re.compile(rb"\n?[ \t]*#[^\n]*")


def choices(family: Path) -> dict[str, str]:
    """By name, digests of what in a family's folder decides how kernels are made and for which calls: all but comments."""
    files = (file for name in _CHOICES for file in family.glob(name))
    without_comments = {file: _COMMENT.sub(b"", file.read_bytes()) for file in files}
    return {file.relative_to(family).as_posix(): sha256(text).hexdigest() for file, text in without_comments.items()}


def read_c_layer() -> str:
    """One SHA-256 for all of them, by name and bytes, and for what kernels are there and when they are chosen."""
    families = sorted(module.parent for module in Path(__file__).parent.glob("*/__init__.py"))
    return digest_of({**contents(NATIVE), **{folder.name: choices(folder) for folder in families}})


@cache
def c_layer_digest() -> str:
    """What :func:`read_c_layer` gave when this process first asked; keys are made of it."""
    return read_c_layer()
