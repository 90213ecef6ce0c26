"""A connection to a Dask cluster: its workers, tasks for them, and what they tell."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import queue
import secrets
import shlex
import time
import warnings
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from flashdepot.build import farm_worker
from flashdepot.build.farm_worker import RESOURCE, Done, Refused
from flashdepot.errors import (
    CompileError,
    FlashdepotError,
    IncompatibleError,
    MissingToolError,
    NetworkError,
    UsageError,
)
from flashdepot.files.documents import read_json
from flashdepot.model.limits import Farm, install_extra

if TYPE_CHECKING:
    from distributed import Client, Future

OPEN = "open+"
"""Before an address or file: a farm whose network is its protection."""

_HOW_TO_START = "dask worker ADDRESS --nthreads 8 --resources memory=32e9"

_SCHEMES = {"tls", "tcp", "wss", "ws", "ucx", "inproc"}
"""How Dask's addresses begin (distributed 2026, ``distributed.comm.registry``)."""

_CONNECTS_WITHIN = 10.0
_ANSWERS_WITHIN = 30.0
_DELIVERS_WITHIN = 300.0
_ENDS_WITHIN = 6.0
_NO_ANSWER = (OSError, TimeoutError, asyncio.TimeoutError)  # the last two are one from Python 3.11 on

_LOOK = 2.0
"""Seconds between two checks of which workers there are."""


class FarmWorker(msgspec.Struct, frozen=True):
    """A worker: what people call it, how many tasks it runs at once, and the bytes of memory that they have together."""

    address: str
    name: str
    slots: int
    memory: int


class _SchedulerFile(msgspec.Struct, frozen=True):
    """What is read of a file that a scheduler wrote."""

    address: str


class Cluster:
    """A connection to a Dask cluster for one build, from :func:`connect`. ``events`` gets what workers tell."""

    def __init__(self, client: Client, address: str) -> None:
        self._client = client
        self._numbers = itertools.count()
        self._workers: tuple[FarmWorker, ...] = ()
        self._looked = -_LOOK
        self.session = f"flashdepot-{secrets.token_hex(6)}"
        self.how_to_start = _HOW_TO_START.replace("ADDRESS", address)
        self.address = address
        self.events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        client.subscribe_topic(self.session, lambda event: self.events.put(event[1]))

    def workers(self) -> tuple[FarmWorker, ...]:
        """The workers that declare memory, as they were two seconds ago at most; :raises NetworkError: without an answer."""
        now = time.monotonic()
        if now - self._looked >= _LOOK:
            identity = self._client.scheduler.identity
            try:
                found = self._client.sync(identity, n_workers=-1, callback_timeout=_ANSWERS_WITHIN)
            except _NO_ANSWER as error:
                raise self._lost() from error
            self._workers = tuple(
                FarmWorker(address, str(row["name"]), row["nthreads"], int(row["resources"].get(RESOURCE, 0)))
                for address, row in found["workers"].items()
            )
            self._looked = now
        return tuple(worker for worker in self._workers if worker.memory)

    def largest(self) -> int:
        """The memory of the worker that has most."""
        return max((worker.memory for worker in self.workers()), default=0)

    def require_workers(self) -> tuple[FarmWorker, ...]:
        """The workers that there are, waiting a while for the first; :raises MissingToolError: when none can be used."""
        with contextlib.suppress(*_NO_ANSWER):
            self._client.wait_for_workers(1, timeout=_CONNECTS_WITHIN)
        useful = self.workers()
        if not useful:
            reason = (
                "none of its workers says how much memory compilers may use" if self._workers else "it has no worker"
            )
            raise MissingToolError(
                f"The farm {self.address} cannot compile: {reason}.",
                hint=f"Start workers, with their memory: {self.how_to_start}",
            )
        return useful

    def require_same(self) -> None:
        """See that every worker has this flashdepot and Python; :raises IncompatibleError: when one has not."""
        names = {worker.address: worker.name for worker in self.require_workers()}
        try:
            said = self._client.run(
                farm_worker.own_release, workers=list(names), on_error="return", callback_timeout=_DELIVERS_WITHIN
            )
        except _NO_ANSWER as error:
            raise self._lost() from error
        for address, theirs in said.items():
            other = isinstance(theirs, BaseException)
            seen = ("none", str(theirs)) if other else tuple(theirs)
            refused = farm_worker.refusal(seen, farm_worker.own_release())
            if refused is not None:
                reason = f"has no flashdepot that answers: {theirs}" if other else refused.reason
                raise IncompatibleError(f"The worker {names[address]} {reason}.", hint=refused.hint)

    def submit(self, function: Callable[..., Any], *arguments: object, workers: list[str], **options: Any) -> Future:
        """Begin a task on workers as soon as those have room; on another one when they have gone."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arguments of some MB
            key = (
                f"{function.__name__}-{self.session}-{next(self._numbers)}"  # the result of a used key is there at once
            )
            return self._client.submit(
                function, *arguments, key=key, workers=workers, allow_other_workers=True, pure=False, **options
            )

    def result(self, name: str, future: Future) -> tuple[str, Done | Refused | FlashdepotError | None]:
        """The worker and its answer, or why there is none; ``None`` for one that was lost with its worker."""
        from distributed import KilledWorker  # noqa: PLC0415  (of an extra)

        with contextlib.suppress(*_NO_ANSWER):
            try:
                if future.status not in {"cancelled", "lost"}:
                    worker, answer = future.result(timeout=_DELIVERS_WITHIN)
                    return worker, answer
            except KilledWorker as error:
                return "", CompileError(
                    f"{name}: {error.allowed_failures + 1} workers died one after another while they compiled it.",
                    hint="Look into the workers' logs. Most often a machine or a job ran out of memory: start workers "
                    "that declare less memory than they have, or leave out large units: --head-dims 64,128",
                )
            except _NO_ANSWER:
                raise
            except Exception as error:  # noqa: BLE001  (whatever Dask raises is this task's failure)
                return "", FlashdepotError(f"{name}: the farm could not run it: {error!r}")
        self.require_running()
        return "", None

    def require_running(self) -> None:
        """:raises NetworkError: when the scheduler does not answer any more."""
        if self._client.status != "running":
            raise self._lost()

    def end(self, futures: Sequence[Future] = ()) -> None:
        """Cancel tasks, end their compilers, and leave."""
        with contextlib.suppress(Exception):
            if self._client.status == "running" and futures:
                self._client.cancel(list(futures), force=True)
            if self._client.status == "running":
                self._client.run(farm_worker.end, self.session, on_error="ignore", callback_timeout=_ENDS_WITHIN)
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)

    def _lost(self) -> NetworkError:
        return NetworkError(
            f"The scheduler {self.address} of the farm does not answer any more.",
            hint="Everything that was compiled is kept. Start the scheduler and the workers again and run the same "
            "command, or run it without --farm.",
        )


def connect(farm: str) -> Cluster:
    """Connect to the scheduler at an address, or to the one that a scheduler file names.

    :param farm: an address or a scheduler file, with :data:`OPEN` before it where it need not be encrypted.
    """
    named = farm.removeprefix(OPEN)
    address = named if "://" in named else _address_in(named)
    if named == farm and not _is_private(address):
        raise UsageError(
            f"The farm {address} is on a network and not encrypted: anyone who can reach it can run programs on its "
            "workers, and possibly on this machine.",
            hint="Give Dask certificates, and name it as tls://HOST:8786. If nobody else is on that network: "
            f"--farm {OPEN}{shlex.quote(farm)}",
        )
    if address.partition("://")[0] not in _SCHEMES:
        raise UsageError(
            f"'{address}' is not the address of a Dask scheduler.",
            hint="It begins with tls:// or tcp://, and 'dask scheduler' prints it; http:// is its dashboard: "
            "--farm tls://HOST:8786",
        )
    try:
        import distributed  # noqa: PLC0415  (of an extra)
    except ImportError as error:
        raise MissingToolError(
            "--farm needs Dask's package distributed, which is not installed.",
            hint=f"Install it: {install_extra('farm')}",
        ) from error
    for name in ("distributed", "tornado", "asyncio"):  # one display of progress: what matters our errors say
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions that differ; require_same says which matter
            client = distributed.Client(address, timeout=_CONNECTS_WITHIN, set_as_default=False, name="flashdepot")
    except (*_NO_ANSWER, ValueError, ImportError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise NetworkError(
            f"No Dask scheduler answers at {address}: {reason}.",
            hint="Start one there ('dask scheduler', which prints its address) and check that no firewall is in between; "
            "or compile on this machine: without --farm",
        ) from error
    return Cluster(client, address)


def _is_private(address: str) -> bool:
    """Whether nobody else on the network can hear or change what is said: it is encrypted, or stays on this machine."""
    scheme, _, place = address.partition("://")
    if scheme in {"tls", "wss", "inproc"}:
        return True
    with contextlib.suppress(ValueError):
        host = urlsplit(f"//{place}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    return False


def _address_in(file: str) -> str:
    """The address that a scheduler file names; :raises MissingToolError: when it is not there, or something else."""
    hint = f"It is what 'dask scheduler --scheduler-file {file or 'FILE'}' writes. An address has a scheme: tcp://HOST:8786"
    try:
        return msgspec.convert(read_json(Path(file)), _SchedulerFile).address
    except FileNotFoundError:
        raise MissingToolError(f"There is no scheduler file {file}.", hint=hint) from None
    except OSError as error:
        raise MissingToolError(f"'{file}' is not a scheduler file: {error.strerror}.", hint=hint) from error
    except (ValueError, FlashdepotError) as error:
        raise MissingToolError(f"{file} is not a scheduler file: {str(error).rstrip('.')}.", hint=hint) from error


def survey(farm: Farm) -> Farm:
    """The same farm with what its workers have together now."""
    cluster = connect(farm.address)
    try:
        workers = cluster.require_workers()
        return Farm(farm.address, sum(w.slots for w in workers), sum(w.memory for w in workers))
    finally:
        cluster.end()
