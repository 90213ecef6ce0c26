"""The texts of a wheel's dist-info folder."""

from __future__ import annotations

import json
from collections.abc import Sequence

from packaging.utils import canonicalize_name

from flashdepot.model.manifest import Manifest
from flashdepot.model.own_wheel_name import DISTRIBUTION, wheel_build, wheel_tag, wheel_version
from flashdepot.model.parts import licence_expression
from flashdepot.model.sbom import sbom
from flashdepot.model.wheel_needs import IMPORTED, OLDEST_PYTHON

_FIELDS = (
    ("Summary", "Flash Attention: Fast and Memory-Efficient Exact Attention"),
    ("Home-page", "https://github.com/Dao-AILab/flash-attention"),
    ("Author", "Tri Dao"),
    ("Author-email", "tri@tridao.me"),
    ("Classifier", "Programming Language :: Python :: 3"),
    ("Requires-Python", f">={OLDEST_PYTHON}"),
    *(("Requires-Dist", name) for name in IMPORTED),
)
"""What upstream's setup.py says, the same in every version that flashdepot knows."""

_CLASSIFIERS = {"linux": "Unix", "windows": "Microsoft :: Windows"}


def metadata_text(manifest: Manifest, licence_files: Sequence[str], readme: str) -> str:
    """METADATA: upstream's, with our version and the licences of all that is inside (Metadata 2.4, PEP 639)."""
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", DISTRIBUTION),
        ("Version", wheel_version(manifest)),
        *_FIELDS,
        ("Classifier", f"Operating System :: {_CLASSIFIERS[manifest.platform.system]}"),
        ("License-Expression", licence_expression(manifest)),
        *(("License-File", name) for name in licence_files),
        ("Description-Content-Type", "text/markdown"),
    ]
    return "".join(f"{name}: {value}\n" for name, value in fields) + "\n" + readme


def wheel_text(manifest: Manifest) -> str:
    """WHEEL: the format's version, who wrote it, each tag and the build tag."""
    return (
        "Wheel-Version: 1.0\n"
        f"Generator: flashdepot {manifest.flashdepot}\n"
        "Root-Is-Purelib: false\n"
        f"{''.join(f'Tag: {tag}{chr(10)}' for tag in _each(wheel_tag(manifest)))}"
        f"Build: {wheel_build(manifest)}\n"
    )


def _each(tag: str) -> list[str]:
    """The tags that a compressed one stands for."""
    python, abi, platforms = tag.split("-")
    return [f"{python}-{abi}-{platform}" for platform in platforms.split(".")]


def origin_text(manifest: Manifest) -> str:
    """flashdepot.json: the library's manifest, which says what it was made from, by what and how."""
    data = manifest.to_json()
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def sbom_text(manifest: Manifest) -> bytes:
    """The bill of materials of the wheel (PEP 770)."""
    version = wheel_version(manifest)
    name = canonicalize_name(DISTRIBUTION)
    return sbom(manifest, name, version, f"pkg:pypi/{name}@{version.replace('+', '%2B')}")
