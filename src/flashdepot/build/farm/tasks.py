"""What Dask calls in a worker: it hands orders to the worker's agent, and sees when nobody wants their result any more.

The agent is a process of its own: a worker may live for weeks, and what it runs is the flashdepot that is installed now.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from flashdepot.build.farm.orders import Lost, decode, encode
from flashdepot.process.run import bound

if TYPE_CHECKING:
    from distributed import Worker

_COMMAND = (sys.executable, "-m", "flashdepot.build.farm.agent")
_LOOK = 0.25
"""Seconds between two checks of whether somebody still wants a result."""

_STARTS_WITHIN = 120.0
_ENDS_WITHIN = 4.0


class _AgentProcess:
    """The agent of one build on this worker, as its worker sees it."""

    def __init__(self, session: str, worker: Worker) -> None:
        self._session = session
        self._worker = worker
        self._numbers = itertools.count()
        self._answers: dict[int, queue.SimpleQueue[bytes]] = {}
        self._sending = threading.Lock()
        self.hello: Future[dict[str, Any]] = Future()
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # the folder of the worker is nobody's package
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, **bound()
        )
        assert self._process.stdin is not None  # noqa: S101  (both are pipes)
        assert self._process.stdout is not None  # noqa: S101
        self._out = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        self._in = Connection(os.dup(self._process.stdout.fileno()), writable=False)
        self._process.stdin.close()
        self._process.stdout.close()
        self._is_open = True
        threading.Thread(target=self._read, daemon=True, name="flashdepot agent").start()

    @property
    def is_open(self) -> bool:
        """Whether it takes orders."""
        return self._is_open

    def bundle(self, digest: str, data: bytes) -> None:
        """Give it files."""
        self._send(("bundle", digest, data))

    def carry_out(self, key: str, flashdepot: str, site: bytes, order: bytes) -> bytes:
        """The answer to an order; :raises RuntimeError: when nobody wants it any more."""
        answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        number = next(self._numbers)
        self._answers[number] = answers
        try:
            self._send(("order", number, flashdepot, site, order))
            while True:
                with contextlib.suppress(queue.Empty):
                    return answers.get(timeout=_LOOK)
                if not self._is_open:
                    return encode(Lost())
                if not _is_wanted(self._worker, key):
                    self._send(("drop", number))
                    raise RuntimeError("nobody wants this any more")
        finally:
            del self._answers[number]

    def end(self) -> None:
        """Let it end with all that runs in it."""
        self._is_open = False
        with self._sending, contextlib.suppress(OSError):
            self._out.close()
        try:
            self._process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its compilers end with it
            self._process.wait()

    def _send(self, message: tuple[Any, ...]) -> None:
        with self._sending, contextlib.suppress(OSError):  # it has ended, and the reading end says so
            self._out.send_bytes(encode(message))

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, *rest = decode(self._in.recv_bytes())
                if kind == "hello" and not self.hello.done():
                    self.hello.set_result(rest[0])
                elif kind == "event":
                    self._worker.log_event(self._session, {**rest[0], "worker": name_of(self._worker)})
                elif kind == "answer" and (waiting := self._answers.get(rest[0])) is not None:
                    waiting.put(rest[1])
        self._is_open = False
        status = self._process.wait()
        if not self.hello.done():
            self.hello.set_exception(RuntimeError(f"flashdepot ended there with status {status}"))


_agents: dict[str, _AgentProcess] = {}
_one_at_a_time = threading.Lock()


def _agent(session: str, worker: Worker) -> _AgentProcess:
    with _one_at_a_time:
        agent = _agents.get(session)
        if agent is None or not agent.is_open:
            agent = _agents[session] = _AgentProcess(session, worker)
        return agent


def _is_wanted(worker: Worker, key: str) -> bool:
    """Whether the scheduler still wants a task of this worker: it does not when its client has gone or cancelled it.

    A worker that has lost its scheduler closes, and waits half a minute for its tasks.
    """
    task = worker.state.tasks.get(key)
    return task is not None and task.state != "cancelled" and worker.status.name not in {"closing", "closed", "failed"}


def name_of(worker: Worker) -> str:
    """What people call a worker: its name, which is its address unless it was given one."""
    return str(worker.name)


def carry_out(session: str, flashdepot: str, site: bytes, order: bytes) -> tuple[str, str, bytes]:
    """Run one order; :returns: name and address of the worker, and the answer."""
    from distributed import get_worker  # noqa: PLC0415  (of an extra)

    worker = get_worker()
    answer = _agent(session, worker).carry_out(worker.get_current_task(), flashdepot, site, order)
    return name_of(worker), worker.address, answer


async def introduce(session: str, dask_worker: Worker) -> dict[str, Any]:
    """Start the agent of a build; :returns: which flashdepot and Python it has."""
    agent = await asyncio.to_thread(_agent, session, dask_worker)
    said = await asyncio.to_thread(agent.hello.result, _STARTS_WITHIN)
    return {**said, "name": name_of(dask_worker)}


async def deliver(session: str, digest: str, data: bytes, dask_worker: Worker) -> None:
    """Give the agent of a build files that it lacks."""
    agent = await asyncio.to_thread(_agent, session, dask_worker)
    await asyncio.to_thread(agent.bundle, digest, data)


async def end(session: str) -> None:
    """End the agent of a build, and every compiler in it."""
    if (agent := _agents.pop(session, None)) is not None:
        await asyncio.to_thread(agent.end)
