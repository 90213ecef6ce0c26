"""From a library to Python wheels: flash-attn and JAX's (``builder``), and here other names and Hugging Face's kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from flashdepot import __version__
from flashdepot.errors import IntegrityError, not_one_of
from flashdepot.files.disk import scratch_folder
from flashdepot.files.user_files import new_file
from flashdepot.model.wheel import OLDEST_PYTHON
from flashdepot.resolve.lock import LockedName
from flashdepot.wheel.builder import Entry, Wheel, field_lines, write_wheel

_TAG = "py3-none-any"
_FROM = """\
try:
    from flash_attn_2_cuda.{module} import (  # noqa: F401
        {names},
    )
except ImportError as error:
    raise ImportError(
        "This {distribution} is flashdepot's, and needs flashdepot's flash-attn next to it, which was not found or does "
        f"not load: {{error}}. Install it with: flashdepot install --source ours --names {distribution}"
    ) from error
"""


class Name(msgspec.Struct, frozen=True):
    """A distribution that programs look for: its version, the module that they import first, and its files."""

    distribution: str
    version: str
    imported: str
    files: Mapping[str, str]


def _functions(distribution: str, module: str, names: str) -> str:
    return _FROM.format(distribution=distribution, module=module, names=",\n        ".join(names.split()))


_INTERFACE = _functions(
    "flash-attn-3",
    "fa3",
    "_flash_attn_backward _flash_attn_forward flash_attn_combine flash_attn_func flash_attn_qkvpacked_func "
    "flash_attn_varlen_func flash_attn_with_kvcache get_scheduler_metadata",
)
_CUTE = _functions(
    "flash-attn-4",
    "fa4",
    "_flash_attn_bwd _flash_attn_fwd _validate_head_dims flash_attn_combine flash_attn_func flash_attn_varlen_func "
    "get_scheduler_metadata",
)

NAMES = {
    name.distribution: name
    for name in (
        Name(
            "flash-attn-3",
            "3.0.0",
            "flash_attn_interface",
            {
                "flash_attn_interface.py": _INTERFACE,
                "flash_attn_3/__init__.py": '__version__ = "3.0.0"\n',
                "flash_attn_3/_C.py": "import flash_attn_2_cuda.fa3  # noqa: F401  (registers torch.ops.flash_attn_3)\n",
                "flash_attn_3/flash_attn_interface.py": _INTERFACE,
            },
        ),
        Name(
            "flash-attn-4",
            "4.0.0b36",
            "flash_attn.cute",
            {
                "flash_attn/cute/__init__.py": (
                    '__version__ = "4.0.0b36"\n'
                    "from flash_attn.cute.interface import flash_attn_func, flash_attn_varlen_func  # noqa: F401\n"
                ),
                "flash_attn/cute/interface.py": _CUTE,
            },
        ),
    )
}
"""By the distribution's name. The versions are those of upstream whose functions they have."""


def parse_names(text: str) -> list[Name]:
    """Read ``flash-attn-3,flash-attn-4``; :raises UsageError: for an unknown name."""
    words = [word.strip().replace("_", "-") for word in text.split(",") if word.strip()]
    for word in words:
        if word not in NAMES:
            raise not_one_of(word, "a name that flashdepot can serve", NAMES)
    return [NAMES[word] for word in dict.fromkeys(words)]


def build_names(names: Sequence[Name], folder: Path) -> list[Wheel]:
    """Write the wheel of each name into a folder; the same flashdepot writes the same bytes on every machine."""
    made = []
    for name in names:
        version = f"{name.version}+flashdepot.{__version__}"
        stem = f"{name.distribution.replace('-', '_')}-{version}"
        path, info = folder / f"{stem}-{_TAG}.whl", f"{stem}.dist-info"
        made.append(write_wheel(path, _entries(name, version, info), info, stored=True))
    return made


def pin_names(names: Sequence[Name]) -> tuple[LockedName, ...]:
    """What a lock says of the wheels of some names."""
    with scratch_folder("names") as folder:
        return tuple(LockedName(made.path.name, made.sha256) for made in build_names(names, folder))


def require_names(pins: Sequence[LockedName]) -> list[Name]:
    """The names that a lock pins."""
    names = [NAMES[pin.distribution] for pin in pins if pin.distribution in NAMES]
    made = pin_names(names)
    for pin in pins:
        if pin not in made:
            other = next((one.filename for one in made if one.distribution == pin.distribution), "no such wheel")
            raise IntegrityError(
                f"The lock pins {pin.filename} with SHA-256 {pin.sha256}, and flashdepot {__version__} makes {other}"
                f"{' with other bytes' if other == pin.filename else ''}.",
                hint="Use the flashdepot that wrote the lock, or: flashdepot lock --upgrade",
            )
    return names


KERNELS = {
    "flash-attn2": "import flash_attn\nfrom flash_attn import *  # noqa: F403\n",
    "flash-attn3": "import flash_attn_interface\nfrom flash_attn_interface import *  # noqa: F403\n",
    "flash-attn4": "from flash_attn.cute import flash_attn_func, flash_attn_varlen_func, interface  # noqa: F401\n",
}
"""What a module of Hugging Face's library ``kernels`` has, by the kernel's name."""


def write_kernels(folder: Path) -> list[Path]:
    """Write a folder for each of KERNELS, which ``kernels.get_local_kernel`` and ``LOCAL_KERNELS`` load; where they are.

    They import the installed flash-attn and its names.
    """
    return [_write_kernel(folder / name, text) for name, text in KERNELS.items()]


def _write_kernel(folder: Path, text: str) -> Path:
    described = {
        "id": f"{folder.name.replace('-', '_')}_flashdepot",
        "name": folder.name,
        "version": 1,
        "license": "BSD-3-Clause",
        "python-depends": [],
        "backend": {"type": "cuda"},
    }
    # "torch-cuda": for every torch, every Python and every machine with a GPU of NVIDIA
    for name, content in (("__init__.py", text), ("metadata.json", json.dumps(described, indent=2) + "\n")):
        with new_file(folder / "build" / "torch-cuda", name, "--kernels DIR") as file:
            file.write(content.encode())
    return folder


def _entries(name: Name, version: str, info: str) -> Iterator[Entry]:
    metadata = [
        ("Metadata-Version", "2.4"),
        ("Name", name.distribution),
        ("Version", version),
        ("Summary", f"{name.imported} over flashdepot's flash-attn; not made by the authors of FlashAttention"),
        ("License-Expression", "BSD-3-Clause"),
        ("Requires-Python", f">={OLDEST_PYTHON}"),
        ("Requires-Dist", "flash-attn"),
        ("Requires-Dist", "torch"),
    ]
    top = dict.fromkeys(file.partition("/")[0].removesuffix(".py") for file in name.files)
    texts = {
        **name.files,
        f"{info}/METADATA": field_lines(metadata),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: flashdepot {__version__}\nRoot-Is-Purelib: true\nTag: {_TAG}\n",
        f"{info}/top_level.txt": "".join(f"{module}\n" for module in top),
    }
    for file, text in texts.items():
        yield Entry.of(file, text)
