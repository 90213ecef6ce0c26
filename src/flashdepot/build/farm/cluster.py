"""A Dask cluster as a farm sees it: workers, tasks with memory.

And events. All that imports ``distributed`` is here.
"""

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
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from flashdepot import __version__
from flashdepot.build.farm import tasks
from flashdepot.build.farm.orders import (
    HOW_TO_START,
    RESOURCE,
    Answer,
    Bundle,
    Event,
    Hello,
    Lost,
    Site,
    decode,
    python_release,
    refusal,
)
from flashdepot.errors import (
    CompileError,
    FlashdepotError,
    IncompatibleError,
    MissingToolError,
    NetworkError,
    UsageError,
)
from flashdepot.files.atomic import read_json

if TYPE_CHECKING:
    from distributed import Client, Future

OPEN = "open+"
"""Before an address or file: a farm whose network is its protection."""

_T = TypeVar("_T")
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


class Result(msgspec.Struct, frozen=True):
    """What became of a task: the answer of a worker, or why there is none."""

    name: str
    worker: str = ""
    address: str = ""
    answer: Answer | None = None
    error: FlashdepotError | None = None


class Cluster:
    """A connection to a Dask cluster for one build, from :func:`connect`. ``events`` gets what agents tell."""

    def __init__(self, client: Client, address: str, session: str) -> None:
        self._client = client
        self._session = session
        self._futures: dict[str, Future] = {}
        self._numbers = itertools.count()
        self._done: queue.SimpleQueue[tuple[str, Future]] = queue.SimpleQueue()
        self._workers: tuple[FarmWorker, ...] = ()
        self._looked = -_LOOK
        self._ending = False
        self.address = address
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        client.subscribe_topic(session, lambda event: self._hear(event[1]))

    def workers(self) -> tuple[FarmWorker, ...]:
        """The workers that declare memory, as they were two seconds ago at most; :raises NetworkError: see :func:`lost`."""
        now = time.monotonic()
        if now - self._looked >= _LOOK:
            with self._lost_when_it_fails():
                found = self._client.sync(
                    self._client.scheduler.identity, n_workers=-1, callback_timeout=_ANSWERS_WITHIN
                )
            self._workers = tuple(
                FarmWorker(address, str(row["name"]), row["nthreads"], int(row["resources"].get(RESOURCE, 0)))
                for address, row in found["workers"].items()
            )
            self._looked = now
        return tuple(worker for worker in self._workers if worker.memory)

    def require_workers(self) -> tuple[FarmWorker, ...]:
        """The workers that there are, waiting a while for the first; :raises MissingToolError: when none can be used."""
        with contextlib.suppress(*_NO_ANSWER):
            self._client.wait_for_workers(1, timeout=_CONNECTS_WITHIN)
        useful = self.workers()
        start = HOW_TO_START.replace("ADDRESS", self.address)
        if not useful:
            reason = (
                "none of its workers says how much memory compilers may use" if self._workers else "it has no worker"
            )
            raise MissingToolError(
                f"The farm {self.address} cannot compile: {reason}.", hint=f"Start workers, with their memory: {start}"
            )
        return useful

    def require_same(self) -> None:
        """See that every worker has a flashdepot and a Python like these.

        :raises MissingToolError: when flashdepot does not start there.
        :raises IncompatibleError: when it is another one, or none.
        """
        ours = Site((), {}, (), (), {})
        addresses = [worker.address for worker in self.require_workers()]
        for address, said in self._said_by(addresses).items():
            if isinstance(said, ImportError):
                raise IncompatibleError(
                    f"The worker {address} has no flashdepot: {said}.",
                    hint="Start the scheduler and the workers in an environment like this one: "
                    f"Python {python_release()}, pip install 'flashdepot[farm]=={__version__}'",
                )
            if isinstance(said, BaseException):
                raise MissingToolError(f"flashdepot does not start on the worker {address}: {said}.")
            hello = _heard(said, Hello)
            if hello is None:
                raise IncompatibleError(f"The worker {address} answers as no flashdepot does: {str(said)[:200]}")
            if (refused := refusal(ours, hello.flashdepot, hello.python)) is not None:
                raise IncompatibleError(f"The worker {hello.name} {refused.reason}.", hint=refused.hint)
            if hello.problem:
                raise MissingToolError(
                    f"The worker {hello.name} cannot work: {hello.problem}",
                    hint="FLASHDEPOT_HOME in the environment of the worker names the folder of its depot.",
                )

    def submit(self, name: str, site: bytes, order: bytes, memory: int, worker: str) -> None:
        """Begin a task on a worker as soon as that has so much memory left; on another one when it has gone.

        Dask is not left to choose: it spreads tasks by how long such ones took, and knows nothing of compilers.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of arguments of some MB
            future = self._client.submit(
                tasks.carry_out,
                self._session,
                __version__,
                site,
                order,
                key=f"{name}-{self._session}-{next(self._numbers)}",  # the result of a key that was used is there at once
                resources={RESOURCE: memory},
                workers=[worker],
                allow_other_workers=True,
                pure=False,
            )
        self._futures[name] = future
        future.add_done_callback(lambda done: self._done.put((name, done)))

    def take_back(self, name: str) -> None:
        """Cancel a task: whatever becomes of it is not known."""
        if (future := self._futures.pop(name, None)) is not None:
            with contextlib.suppress(*_NO_ANSWER):
                self._client.cancel([future], force=True)

    def results(self, seconds: float) -> Iterator[Result]:
        """Wait so long at most, and yield what has ended; :raises NetworkError: when the scheduler has."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                name, future = self._done.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                if self._client.status != "running":
                    raise self._lost() from None
                return
            deadline = 0
            if self._futures.get(name) is future:
                del self._futures[name]
                yield self._result(name, future)

    def deliver(self, addresses: list[str], bundles: Iterable[Bundle]) -> None:
        """Give files to workers; one that has gone meanwhile, or lacks them still, says so when it gets a task."""
        for bundle in bundles:
            with contextlib.suppress(*_NO_ANSWER, ValueError):
                self._call(
                    tasks.deliver,
                    bundle.digest,
                    bundle.data,
                    workers=addresses,
                    on_error="ignore",
                    within=_DELIVERS_WITHIN,
                )

    def end(self) -> None:
        """Cancel all tasks, end the agents with their compilers, and leave."""
        self._ending = True
        with contextlib.suppress(Exception):
            if self._client.status == "running":
                self._client.cancel(list(self._futures.values()), force=True)
                self._call(tasks.end, on_error="ignore", within=_ENDS_WITHIN)
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)

    def _said_by(self, addresses: list[str]) -> dict[str, Any]:
        with self._lost_when_it_fails():
            return self._call(tasks.introduce, workers=addresses, on_error="return", within=_DELIVERS_WITHIN)

    def _hear(self, event: object) -> None:
        if (heard := _heard(event, Event)) is not None:
            self.events.put(heard)

    def _call(self, function: Callable[..., Any], *arguments: Any, within: float, **options: Any) -> dict[str, Any]:
        """What a function says in workers, by their addresses."""
        said: dict[str, Any] = self._client.run(function, self._session, *arguments, callback_timeout=within, **options)
        return said

    def _result(self, name: str, future: Future) -> Result:
        from distributed import KilledWorker  # noqa: PLC0415  (of an extra)

        if future.status in {"cancelled", "lost"}:
            return self._gone(name)
        try:
            worker, address, answer = future.result(timeout=_DELIVERS_WITHIN)
            return Result(name, str(worker), str(address), decode(answer, type=Answer))
        except KilledWorker as error:
            killed = CompileError(
                f"{name}: {error.allowed_failures + 1} workers died one after another while they compiled it.",
                hint="Look into the workers' logs. Most often a machine or a job ran out of memory: start workers that "
                "declare less memory than they have, or leave out large units: --head-dims 64,128",
            )
            return Result(name, error=killed)
        except _NO_ANSWER:
            return self._gone(name)
        except ImportError as error:
            return Result(name, error=IncompatibleError(f"A worker of the farm has no flashdepot: {error}."))
        except Exception as error:  # noqa: BLE001  (whatever Dask raises is this task's failure)
            return Result(name, error=FlashdepotError(f"{name}: the farm could not run it: {error!r}"))

    def _gone(self, name: str) -> Result:
        """A result that its worker took with it when it died; :raises NetworkError: when it was the scheduler that died."""
        if self._client.status != "running":
            raise self._lost()
        return Result(name, answer=Lost())

    @contextlib.contextmanager
    def _lost_when_it_fails(self) -> Iterator[None]:
        try:
            yield
        except _NO_ANSWER as error:
            raise self._lost() from error

    def _lost(self) -> NetworkError:
        return NetworkError(
            f"The scheduler {self.address} of the farm does not answer any more.",
            hint="Everything that was compiled is kept. Start the scheduler and the workers again and run the same "
            "command, or run it without --farm.",
        )


def connect(farm: str) -> Cluster:
    """Connect to the scheduler at an address, or to the one that a scheduler file names.

    :param farm: an address or a scheduler file, with :data:`OPEN` before it where it need not be encrypted.
    :raises UsageError: when it is neither encrypted nor on this machine.
    :raises MissingToolError: when the extra is not installed, or there is no scheduler file.
    :raises NetworkError: when nobody answers within ten seconds.
    """
    named = farm.removeprefix(OPEN)
    address = named if "://" in named else _address_in(Path(named))
    if named == farm and not _is_private(address):
        raise UsageError(
            f"The farm {address} is on a network, and what it says is not encrypted: anyone who reaches it can run programs "
            "on its workers, and may on this machine.",
            hint="Give Dask certificates, and name it as tls://HOST:8786. In a network that nobody else reaches: "
            f"--farm {OPEN}{shlex.quote(farm)}",
        )
    try:
        import distributed  # noqa: PLC0415  (of an extra)
    except ImportError as error:
        raise MissingToolError(
            "--farm needs Dask, and the package that speaks with it is not installed.",
            hint="Install it: pip install 'flashdepot[farm]'",
        ) from error
    _hush()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of versions that differ; require_workers says which matter
            client = distributed.Client(address, timeout=_CONNECTS_WITHIN, set_as_default=False, name="flashdepot")
    except (*_NO_ANSWER, ValueError, ImportError) as error:
        raise NetworkError(
            f"No Dask scheduler answers at {address}: {_reason(error)}.",
            hint="Start one there ('dask scheduler', which prints its address) and look that no firewall is between; "
            "or compile on this machine: without --farm",
        ) from error
    return Cluster(client, address, f"flashdepot-{secrets.token_hex(6)}")


def _is_private(address: str) -> bool:
    """Whether nobody else on the network can hear or change what is said: it is encrypted, or stays on this machine."""
    scheme, _, place = address.partition("://")
    if scheme in {"tls", "wss", "inproc"}:
        return True
    with contextlib.suppress(ValueError):
        host = urlsplit(f"//{place}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    return False


def _address_in(path: Path) -> str:
    hint = f"It is what 'dask scheduler --scheduler-file {path}' writes. An address has a scheme: tcp://HOST:8786"
    try:
        address = read_json(path)["address"]
    except FileNotFoundError:
        raise MissingToolError(f"There is no scheduler file {path}.", hint=hint) from None
    except (OSError, ValueError, KeyError, TypeError, FlashdepotError) as error:
        raise MissingToolError(f"{path} is not a scheduler file: {error}.", hint=hint) from error
    if not isinstance(address, str):
        raise MissingToolError(f"{path} is not a scheduler file: its address is not text.", hint=hint)
    return address


def _heard(said: object, kind: type[_T]) -> _T | None:
    """What somebody on the cluster said; ``None`` when it is nothing of that kind."""
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(said, kind)
    return None


def _reason(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _hush() -> None:
    """Say nothing next to the one progress display: what matters is given by our errors."""
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
