"""The texts of a wheel's dist-info folder."""

from __future__ import annotations

import json
from collections.abc import Sequence

from flashdepot.model.manifest import Manifest
from flashdepot.model.own_wheel_name import DISTRIBUTION, wheel_tag, wheel_version
from flashdepot.model.wheel_needs import IMPORTED, OLDEST_PYTHON

_FIELDS = (
    ("Summary", "Flash Attention: Fast and Memory-Efficient Exact Attention"),
    ("Home-page", "https://github.com/Dao-AILab/flash-attention"),
    ("Author", "Tri Dao"),
    ("Author-email", "tri@tridao.me"),
    ("License-Expression", "BSD-3-Clause"),
    ("Classifier", "Programming Language :: Python :: 3"),
    ("Classifier", "Operating System :: Unix"),
    ("Requires-Python", f">={OLDEST_PYTHON}"),
    *(("Requires-Dist", name) for name in IMPORTED),
)
"""What upstream's setup.py says, the same in every version that flashdepot knows."""


def metadata_text(manifest: Manifest, licence_files: Sequence[str], readme: str) -> str:
    """METADATA: upstream's, with our version and the licences of all that is inside (Metadata 2.4, PEP 639)."""
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", DISTRIBUTION),
        ("Version", wheel_version(manifest)),
        *_FIELDS,
        *(("License-File", name) for name in licence_files),
        ("Description-Content-Type", "text/markdown"),
    ]
    return "".join(f"{name}: {value}\n" for name, value in fields) + "\n" + readme


def wheel_text(manifest: Manifest) -> str:
    """WHEEL: the format's version, who wrote it, and the tag."""
    return (
        "Wheel-Version: 1.0\n"
        f"Generator: flashdepot {manifest.flashdepot}\n"
        "Root-Is-Purelib: false\n"
        f"Tag: {wheel_tag(manifest)}\n"
    )


def origin_text(manifest: Manifest) -> str:
    """flashdepot.json: which recipe the library is of, what is in it and what it needs. Nothing of when it was made."""
    keys = (
        "recipe_key",
        "upstreams",
        "selection",
        "platform",
        "sass",
        "cuda",
        "driver_floor",
        "libc_floor",
        "flashdepot",
    )
    data = manifest.to_json()
    return json.dumps({key: data[key] for key in keys}, indent=2, sort_keys=True) + "\n"
