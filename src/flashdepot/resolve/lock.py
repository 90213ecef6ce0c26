"""``flashdepot.lock``: which wheel was chosen, pinned by its address and digest, and for which facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from flashdepot.errors import IncompatibleError, IntegrityError, UsageError
from flashdepot.files.disk import write_named
from flashdepot.files.documents import read_toml
from flashdepot.model.candidate import Candidate, Judged, Origin, PublishedWheel, WheelRequest, origin_of
from flashdepot.model.codec import Digest, Natural, plain, read, read_document
from flashdepot.model.diagnosis import Reasons
from flashdepot.model.environment import Accelerator, Environment, Torch
from flashdepot.model.limits import joined
from flashdepot.model.target import Architecture, Platform, Version
from flashdepot.model.wheel import OURS, Interpreter, WheelName, filename_of_url
from flashdepot.resolve.rules import judge

LOCK_SCHEMA = 1
LOCK_NAME = "flashdepot.lock"

_Source = Annotated[str, msgspec.Meta(pattern=r"\A(?:[\w.+-]*(?:[/:][\w.+-]+)*|index:(?:https?|file)://[!-~]+)\Z")]
_Known = Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{64})?\Z")]
_Word = Annotated[str, msgspec.Meta(pattern=r"\A[\w.+-]*(?:[/:][\w.+-]+)*\Z")]
_Gpu = Annotated[str, msgspec.Meta(pattern=r"\A\d{1,2}\.\d\Z")]
_GpuCode = Annotated[str, msgspec.Meta(pattern=r"\A\d{2,3}[af]?\Z")]


class LockedName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A small wheel next to the locked one, which flashdepot makes where it is installed: its file and its SHA-256."""

    filename: str
    sha256: Digest

    def __post_init__(self) -> None:
        """:raises ValueError: for what is not the name of a wheel."""
        _wheel_name(self.filename, "names")

    @property
    def distribution(self) -> str:
        """``flash-attn-3``."""
        return WheelName.parse(self.filename).canonical


class LockedWheel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A published wheel, pinned by its URL, or ours by ``recipe_key``, that of the stored library that it is over.

    A published wheel's ``sha256`` is empty where it is not known; the first download records it (:meth:`Lock.with_digest`).
    """

    source: _Source
    filename: str
    url: str = ""
    sha256: _Known = ""
    size: Natural = 0
    recipe_key: _Known = ""
    sass: tuple[_GpuCode, ...] = ()
    ptx: _GpuCode | Literal[""] = ""

    def published(self) -> PublishedWheel:
        """All facts that rules judge by; :raises ValueError: for what cannot be pinned."""
        name = _wheel_name(self.filename, "wheel")
        ours = self.source == OURS
        if ours != bool(self.recipe_key):
            raise ValueError(f"wheel.recipe_key is {'missing' if ours else 'not a key of a published wheel'}")
        if ours and self.url:
            raise ValueError("wheel.url is not a key of our wheel, which recipe_key names")
        if not ours:
            self._require_url()
        known = {"url": self.url, "size": self.size, "sass": self.sass, "ptx": self.ptx}
        return PublishedWheel.of(name, self.source, seen=True, sha256=self.sha256, **known)

    def _require_url(self) -> None:
        url = self.url
        try:
            parts = urlsplit(url)
        except ValueError:
            raise _wrong("url", url, "an address") from None
        if not url.isascii() or not url.isprintable() or " " in url or parts.scheme not in {"https", "http", "file"}:
            raise _wrong("url", url, "an address that begins with https://")
        if parts.scheme != "https" and not self.sha256:
            raise _wrong("url", url, "https://, because no wheel.sha256 pins the bytes")
        if filename_of_url(url) != self.filename:
            raise _wrong("url", url, f"an address that ends with wheel.filename, {self.filename}")


def _wheel_name(filename: str, table: str) -> WheelName:
    try:
        return WheelName.parse(filename)
    except UsageError as error:
        raise ValueError(f"{table}.filename: {error.message}") from error


def _wrong(key: str, value: str, expected: str) -> ValueError:
    return ValueError(f"wheel.{key} is {value!r:.80}: expected {expected}")


class LockedFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The facts that a wheel was chosen for, as far as they were known."""

    platform: Platform | None = None
    libc_name: str | None = None
    libc: Version | None = None
    python: Interpreter | None = None
    torch: _Word | None = None
    accelerator: Accelerator | None = None
    cuda: Version | None = None
    cxx11_abi: bool | None = None
    gpus: tuple[_Gpu, ...] = ()
    driver: Version | None = None

    def environment(self) -> Environment:
        """:raises ValueError: for facts of a torch that is not named."""
        of_torch = (self.accelerator, self.cuda, self.cxx11_abi)
        if self.torch is None and any(fact is not None for fact in of_torch):
            raise ValueError("facts.torch is missing, and other facts of torch are there")
        return Environment(
            platform=self.platform,
            libc_name=self.libc_name,
            libc=self.libc,
            python=self.python,
            torch=None if self.torch is None else Torch(self.torch, self.accelerator, self.cuda, None, self.cxx11_abi),
            gpus=tuple(sorted(map(Architecture.parse, self.gpus))),
            driver=self.driver,
        )


class Lock(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A wheel, the facts that it was chosen for, and the names that are installed with it: the document."""

    schema: int
    wheel: LockedWheel
    facts: LockedFacts
    names: tuple[LockedName, ...] = ()

    @classmethod
    def of(cls, candidate: Candidate, facts: Environment) -> Lock:
        """The lock of a decision's candidate."""
        wheel = candidate.wheel
        pinned = LockedWheel(
            wheel.source,
            candidate.name,
            wheel.url,
            wheel.sha256,
            wheel.size,
            candidate.recipe_key,
            wheel.sass,
            wheel.ptx,
        )
        return cls(LOCK_SCHEMA, pinned, read(facts.to_json(), LockedFacts))

    @property
    def origin(self) -> Origin:
        """Where the wheel comes from: the depot, upstream's releases, or a collection of others."""
        return Origin.DEPOT if self.wheel.recipe_key else origin_of(self.wheel.source)

    @property
    def needs_digest(self) -> bool:
        """Whether its bytes are still to be pinned."""
        return not (self.wheel.recipe_key or self.wheel.sha256)

    def with_digest(self, sha256: str, size: int) -> Lock:
        """The lock with the digest and size in bytes that the first download gave."""
        return replace(self, wheel=replace(self.wheel, sha256=sha256, size=size))

    def to_toml(self) -> dict[str, Any]:
        """The document, ``schema`` first; what is not known is left out."""
        document: dict[str, Any] = plain(self)
        return document

    @classmethod
    def from_toml(cls, data: Mapping[str, Any]) -> Lock:
        """Read what :meth:`to_toml` wrote, or a person has edited.

        :raises ValueError: for another schema, and for a key that is missing, not known, or has a value that cannot
            be; it names the key.
        """
        lock = read_document(data, cls, LOCK_SCHEMA)
        lock.wheel.published()
        lock.facts.environment()
        return lock


_HEAD = (
    "# Written by 'flashdepot lock'. 'flashdepot lock --check' checks it, 'flashdepot lock --upgrade' renews it.\n\n"
)
_LARGEST = 1 << 20


def read_lock(path: Path) -> Lock:
    """Read a lock file."""
    hint = f"Write one: flashdepot lock --upgrade --out {joined([path])}"
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder, and a lock is a file.", hint=f"Name it: {path}/{LOCK_NAME}")
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} is not a lock file: it is larger than 1 MB.", hint=hint)
        return Lock.from_toml(read_toml(path))
    except FileNotFoundError:
        raise UsageError(f"There is no lock file {path}.", hint=hint) from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be used: {error}.", hint=hint) from error


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file, whole or not at all; :raises MissingToolError: when the disk is full or may not be written."""
    import tomli_w  # noqa: PLC0415  (reading a lock does without)

    write_named(path, (_HEAD + tomli_w.dumps(lock.to_toml())).encode(), "--out FILE")


def lock_decision(judged: Judged, request: WheelRequest, *, accept_unverified: bool) -> Lock:
    """The lock of what was chosen; :raises IncompatibleError: when it must be compiled first: there is nothing to pin."""
    candidate = judged.candidate
    if candidate.origin.compiles:
        raise IncompatibleError(
            f"The best here is {candidate.name}, which is not compiled yet, so it cannot be pinned.",
            hint="Compile it first, then lock it. Or take a published wheel: --source official",
        )
    lock = Lock.of(candidate, request.facts)
    if lock.needs_digest and not accept_unverified:
        raise IntegrityError(
            f"No SHA-256 is known for {candidate.name}, of {candidate.wheel.source}: its bytes cannot be pinned.",
            hint="--accept-unverified locks its address; the first 'flashdepot install' of the lock records the digest.",
        )
    return lock


def judge_lock(lock: Lock, request: WheelRequest) -> Reasons:
    """Every reason against using a lock where it is asked about; what was agreed to when it was made is not a reason."""
    wheel = lock.wheel.published()
    agreed = WheelRequest(
        request.facts,
        distribution=wheel.distribution,
        version=f"=={wheel.version}",
        sources=frozenset({"ours", "official", "community", wheel.source}),
    )
    return judge(agreed, wheel)
