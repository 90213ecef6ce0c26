"""``flashdepot.lock``: which wheel was chosen, pinned by its address and digest, and for which facts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from flashdepot.errors import IncompatibleError, IntegrityError, UsageError
from flashdepot.files.atomic import disk_errors, write_named
from flashdepot.files.documents import read_toml
from flashdepot.model.candidate import OURS, PIP, Candidate, Judged, Origin, PublishedWheel, WheelRequest, origin_of
from flashdepot.model.codec import Table
from flashdepot.model.diagnosis import Reasons
from flashdepot.model.environment import Accelerator, Environment, Torch
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import Interpreter, WheelName, filename_of_url
from flashdepot.resolve.rules import judge

LOCK_SCHEMA = 1
LOCK_NAME = "flashdepot.lock"

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FILENAME = re.compile(
    r"[A-Za-z0-9_.]+-[A-Za-z0-9_.+!]+(?:-\d[A-Za-z0-9_.]*)?-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+-[A-Za-z0-9_.]+\.whl"
)
_WORD = re.compile(r"[\w.+-]*(?:[/:][\w.+-]+)*")
_SOURCE = re.compile(rf"{_WORD.pattern}|index:(?:https?|file)://[!-~]+")
_GPU = re.compile(r"\d{1,2}\.\d")
_GPU_CODE = re.compile(r"\d{2,3}[af]?")


class LockedWheel(msgspec.Struct, frozen=True):
    """The wheel of a lock: a published one by its URL, or ours by the recipe of the stored library that it is over.

    ``wheel`` has all facts that rules judge by. A published wheel's ``sha256`` is empty where nobody has told it; the
    first download records it (:meth:`Lock.with_digest`).
    """

    filename: str
    wheel: PublishedWheel
    recipe_key: str = ""

    @property
    def origin(self) -> Origin:
        """Where it comes from: the depot, upstream's releases, or a collection of others."""
        return Origin.DEPOT if self.recipe_key else origin_of(self.wheel)

    @property
    def needs_digest(self) -> bool:
        """Whether its bytes are still to be pinned."""
        return not self.recipe_key and not self.wheel.sha256


class Lock(msgspec.Struct, frozen=True):
    """A locked wheel and the facts that it was chosen for."""

    locked: LockedWheel
    facts: Environment

    @classmethod
    def of(cls, candidate: Candidate, facts: Environment) -> Lock:
        """The lock of a decision's candidate."""
        return cls(LockedWheel(candidate.name, candidate.wheel, candidate.recipe_key), replace(facts, origins=()))

    def with_digest(self, sha256: str, size: int) -> Lock:
        """The lock with the digest and size in bytes that the first download gave.

        :raises ValueError: when a digest is recorded already, and is another.
        """
        known = self.locked.wheel.sha256
        if known and known != sha256:
            raise ValueError(f"wheel.sha256 is {known} already, and the download gave {sha256}")
        return replace(self, locked=replace(self.locked, wheel=self.locked.wheel._replace(sha256=sha256, size=size)))

    def to_toml(self) -> dict[str, Any]:
        """The document, ``schema`` first; what is not known is left out."""
        wheel = self.locked.wheel
        pinned = {
            "source": wheel.source,
            "filename": self.locked.filename,
            "url": wheel.url,
            "sha256": wheel.sha256,
            "size": wheel.size,
            "recipe_key": self.locked.recipe_key,
            "sass": list(wheel.sass),
            "ptx": wheel.ptx,
        }
        return {
            "schema": LOCK_SCHEMA,
            "wheel": {key: value for key, value in pinned.items() if value},
            "facts": {key: value for key, value in self.facts.to_json().items() if value is not None},
        }

    @classmethod
    def from_toml(cls, data: Mapping[str, Any]) -> Lock:
        """Read what :meth:`to_toml` wrote, or a person has edited.

        :raises ValueError: for another schema, and for a key that is missing, not known, or has a value that cannot
            be; it names the key.
        """
        document = Table(data)
        if (schema := document.take("schema", int)) != LOCK_SCHEMA:
            raise ValueError(f"schema is {schema}: this flashdepot reads {LOCK_SCHEMA}")
        locked, facts = _read_wheel(document.table("wheel")), _read_facts(document.table("facts"))
        document.finish()
        return cls(locked, facts)


def _read_wheel(table: Table) -> LockedWheel:
    source = table.match("source", _SOURCE, "a collection's name")
    if source == PIP:
        raise table.wrong("source", "ours, official or a collection: what is still to be compiled cannot be pinned")
    name = table.convert("filename", WheelName.parse)
    built_for = name.built_for
    ours = source == OURS
    wheel = PublishedWheel(
        distribution=name.canonical,
        version=name.version,
        cuda=built_for.cuda,
        torch=built_for.torch,
        cxx11_abi=built_for.cxx11_abi,
        python=name.python,
        abi=name.abi,
        platform=name.platform,
        source=source,
        url="" if ours else _read_url(table, str(name)),
        size=table.natural("size", default=0),
        sha256=table.match("sha256", _DIGEST, "64 hexadecimal digits", default=""),
        seen=True,
        sass=tuple(table.match_all("sass", _GPU_CODE, "architectures such as '80'")),
        ptx=table.match("ptx", _GPU_CODE, "an architecture such as '90'", default=""),
    )
    recipe_key = table.match("recipe_key", _DIGEST, "64 hexadecimal digits") if ours else ""
    table.finish()
    return LockedWheel(str(name), wheel, recipe_key)


def _read_url(table: Table, filename: str) -> str:
    url = table.take("url", str)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise table.wrong("url", "an address") from None
    if not url.isascii() or not url.isprintable() or " " in url or parts.scheme not in {"https", "http", "file"}:
        raise table.wrong("url", "an address that begins with https://")
    if parts.scheme != "https" and not table.get("sha256"):
        raise table.wrong("url", "https://, because no wheel.sha256 pins the bytes")
    if filename_of_url(url) != filename:
        raise table.wrong("url", f"an address that ends with wheel.filename, {filename}")
    return url


def _read_facts(table: Table) -> Environment:
    torch = None
    if "torch" in table:
        torch = Torch(
            version=table.match("torch", _WORD, "a torch version"),
            accelerator=table.convert("accelerator", Accelerator) if "accelerator" in table else None,
            cuda=table.convert("cuda", Version.parse) if "cuda" in table else None,
            cxx11_abi=table.take("cxx11_abi", bool) if "cxx11_abi" in table else None,
        )
    facts = Environment(
        platform=table.convert("platform", Platform.parse) if "platform" in table else None,
        libc_name=table.take("libc_name", str) if "libc_name" in table else None,
        libc=table.convert("libc", Version.parse) if "libc" in table else None,
        python=table.convert("python", Interpreter.parse) if "python" in table else None,
        torch=torch,
        gpus=tuple(sorted(Architecture.parse(gpu) for gpu in table.match_all("gpus", _GPU, "such as '9.0'"))),
        driver=table.convert("driver", Version.parse) if "driver" in table else None,
    )
    table.finish()
    return facts


_HEAD = (
    "# Written by 'flashdepot lock'. 'flashdepot lock --check' checks it, 'flashdepot lock --upgrade' renews it.\n\n"
)
_LARGEST = 1 << 20


def read_lock(path: Path) -> Lock:
    """Read a lock file.

    :raises UsageError: when it is not there, or cannot be used; it names the key that is wrong.
    """
    hint = f"Write a new one: flashdepot lock --upgrade --out {shlex.quote(str(path))}"
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} is not a lock file: it is larger than 1 MB.", hint=hint)
        return Lock.from_toml(read_toml(path))
    except FileNotFoundError:
        raise UsageError(f"There is no lock file {path}.", hint="Write one: flashdepot lock") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, and a lock is a file.", hint=f"Name it: {path}/{LOCK_NAME}") from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be used: {error}.", hint=hint) from error


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file, whole or not at all; :raises MissingToolError: when the disk is full or may not be written."""
    import tomli_w  # noqa: PLC0415  (reading a lock does without)

    with disk_errors(path.parent):
        write_named(path, (_HEAD + tomli_w.dumps(lock.to_toml())).encode())


def lock_decision(judged: Judged, request: WheelRequest, *, accept_unverified: bool) -> Lock:
    """The lock of what was chosen.

    :raises IncompatibleError: when it must be compiled first, so that there is nothing yet to pin.
    :raises IntegrityError: when nobody has told its digest, and that was not accepted.
    """
    candidate = judged.candidate
    if candidate.origin.compiles:
        raise IncompatibleError(
            f"The best here is {candidate.name}, and what does not exist yet cannot be pinned.",
            hint="Compile it first, then lock it: flashdepot get. Or take a published wheel: --source official",
        )
    lock = Lock.of(candidate, request.facts)
    if lock.locked.needs_digest and not accept_unverified:
        raise IntegrityError(
            f"No SHA-256 is published for {candidate.name}, of {candidate.wheel.source}: its bytes cannot be pinned.",
            hint="--accept-unverified locks its address; the first 'flashdepot install' of the lock records the digest.",
        )
    return lock


def record_digest(path: Path, lock: Lock, sha256: str, size: int) -> Lock:
    """Pin the bytes of a wheel that was locked without a digest, after its first download; the lock as it is now.

    :param size: in bytes.
    :raises IntegrityError: when the lock has another digest already.
    """
    try:
        pinned = lock.with_digest(sha256, size)
    except ValueError as error:
        raise IntegrityError(
            f"{path} does not agree with what was downloaded: {error}.",
            hint="Somebody has replaced the file there. If you trust the new one: flashdepot lock --upgrade",
        ) from error
    write_lock(path, pinned)
    return pinned


def judge_lock(lock: Lock, request: WheelRequest) -> Reasons:
    """Every reason against using a lock where it is asked about; what was agreed to when it was made is no reason."""
    wheel = lock.locked.wheel
    agreed = WheelRequest(
        request.facts,
        distribution=wheel.distribution,
        version=f"=={wheel.version}",
        sources=frozenset({"ours", "official", "community", wheel.source}),
    )
    return judge(agreed, wheel)
