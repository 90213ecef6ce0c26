"""What a build and its agents say to each other: plain data, which is judged by its types wherever it arrives."""

from __future__ import annotations

import hashlib
import platform
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from flashdepot import __version__
from flashdepot.model.codec import digest_of, from_text
from flashdepot.model.recipe import Action, Tool
from flashdepot.model.target import Architecture
from flashdepot.process.child import Cost

Files = Mapping[str, Callable[[], bytes]]
"""Files by name, and how to read each."""

RESOURCE = "memory"
"""The name of the resource, in bytes, that a worker declares and that a task takes of it."""

_LARGEST = 1 << 30
"""Bytes of the files of a bundle; CUTLASS has 30 MB."""

HOW_TO_START = "dask worker ADDRESS --nthreads 8 --resources memory=32e9"


def python_release() -> str:
    """The Python that runs this, as far as both sides must agree: ``3.12``."""
    return ".".join(platform.python_version_tuple()[:2])


class Site(msgspec.Struct, frozen=True):
    """What all orders of a build have in common.

    ``sources`` are bundles by the place that they stand for. ``cuda`` is the folder of the toolkit of another
    CUDA ``release`` than the pinned one, and empty for that. ``tools`` are the programs that must compile, by their digests. ``variables`` are those of the
    environment that change what they write: a worker has these values and no others.
    """

    families: tuple[str, ...]
    sources: Mapping[str, str]
    tools: tuple[Tool, ...]
    sass: tuple[Architecture, ...]
    variables: Mapping[str, str]
    cuda: str = ""
    release: str = ""
    confined: bool = False
    flashdepot: str = __version__
    python: str = msgspec.field(default_factory=python_release)


class Order(msgspec.Struct, frozen=True):
    """One action to run, and the bytes of what the actions that it needs have made."""

    action: Action
    made: Mapping[str, bytes]


class Done(msgspec.Struct, frozen=True, tag=True):
    """An action that an agent has run: what :class:`~flashdepot.build.executor.Ended` says, with the bytes themselves.

    ``digest`` is the SHA-256 of ``output``.
    """

    cost: Cost
    log: str
    output: bytes = b""
    digest: str = ""
    inputs: Mapping[str, str] | None = None


class Lacks(msgspec.Struct, frozen=True, tag=True):
    """An agent has not got these bundles yet; the order was not begun."""

    bundles: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """An agent cannot work for this build at all: why, and what helps."""

    reason: str
    hint: str


class Lost(msgspec.Struct, frozen=True, tag=True):
    """The agent ended while it had the order, or its worker before the answer had been handed over."""


Answer = Done | Lacks | Refused | Lost


class Event(msgspec.Struct, frozen=True):
    """What an agent tells meanwhile: that it has begun an action (``started``), the memory it holds, or a ``note``."""

    kind: str
    name: str = ""
    bytes: int = 0
    text: str = ""
    worker: str = ""


class Hello(msgspec.Struct, frozen=True):
    """Which flashdepot and Python an agent has, the name of its worker, and why it cannot work."""

    flashdepot: str
    python: str
    name: str = ""
    problem: str = ""


encode: Callable[[object], bytes] = partial(msgspec.msgpack.encode, enc_hook=str)
decode: Callable[..., Any] = partial(msgspec.msgpack.decode, dec_hook=from_text)
"""Read what :data:`encode` wrote, as the ``type`` that is named; raises :class:`msgspec.MsgspecError` for anything else."""


class Bundle(msgspec.Struct, frozen=True):
    """Files by name, compressed; ``digest`` is that of their names and bytes."""

    digest: str
    data: bytes


def pack(files: Files) -> Bundle:
    """Put files together; :raises OSError: when one cannot be read."""
    held = {name: read() for name, read in files.items()}
    return Bundle(_digest(held), zlib.compress(encode(held), 1))


def unpack(bundle: Bundle, folder: Path) -> bool:
    """Put the files into a new folder; :returns: whether they are what the digest says. Otherwise nothing is written."""
    unpacking = zlib.decompressobj()
    try:
        held: dict[str, bytes] = decode(unpacking.decompress(bundle.data, _LARGEST), type=dict[str, bytes])
    except (zlib.error, msgspec.MsgspecError):
        return False
    leads_out = any(part in {"", ".", ".."} for name in held for part in name.replace("\\", "/").split("/"))
    if leads_out or not unpacking.eof or _digest(held) != bundle.digest:
        return False
    folder.mkdir(parents=True)
    for name, data in held.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return True


def _digest(held: Mapping[str, bytes]) -> str:
    return digest_of({name: hashlib.sha256(data).hexdigest() for name, data in held.items()})


def refusal(site: Site, flashdepot: str, python: str) -> Refused | None:
    """Why a worker with this flashdepot and this Python cannot work for a build; ``None`` when it can."""
    if flashdepot != site.flashdepot:
        differs = f"has flashdepot {flashdepot}, and this is {site.flashdepot}"
    elif python != site.python:
        differs = f"runs Python {python}, and this is Python {site.python}"
    else:
        return None
    return Refused(
        f"{differs}: the two would not make the same bytes by the same code",
        "Start the scheduler and the workers in an environment like this one: "
        f"Python {site.python}, pip install 'flashdepot[farm]=={site.flashdepot}'",
    )
