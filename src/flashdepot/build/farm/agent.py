"""``python -m flashdepot.build.farm.agent``: flashdepot on a worker, for one build and as long as that needs it.

It provides the pinned compilers in the depot of the worker's user, checks that they are those of the build, and runs
actions by the executor of this machine. It reads messages on standard input and answers on standard output, and ends,
with all that it started, when its input ends: then the worker has ended, or the build.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from flashdepot import __version__
from flashdepot.build.executor import Ended, Task
from flashdepot.build.farm.orders import (
    Answer,
    Bundle,
    Done,
    Lacks,
    Lost,
    Order,
    Refused,
    Site,
    decode,
    encode,
    python_release,
    refusal,
    unpack,
)
from flashdepot.build.inputs import places, programs
from flashdepot.build.local import LocalExecutor, confined_environment
from flashdepot.depot import Depot, open_depot
from flashdepot.errors import FlashdepotError
from flashdepot.events import Download
from flashdepot.files.locks import try_lock_file
from flashdepot.host import runtime_facts
from flashdepot.kernels import provide
from flashdepot.model.limits import Limits
from flashdepot.model.request import AnyCuda, CudaChoice
from flashdepot.model.target import Version
from flashdepot.process.child import descendants_memory
from flashdepot.process.confinement import Means, means
from flashdepot.toolchain.choose import Toolchain, choose_toolchain
from flashdepot.toolchain.identity import identify_toolchain

_IDLE = 60.0
"""Seconds without an order after which nobody is assumed to need it any more."""

_TICK = 0.02
"""Seconds between two checks of new orders while compilers run."""

_MEMORY_TICK = 1.0

Say = Callable[[tuple[Any, ...]], None]


@dataclass
class Agent:
    """Serves one build. ``say`` sends a message to the worker; ``work`` is a folder of its own."""

    depot: Depot
    work: Path
    say: Say
    _executor: LocalExecutor | None = None
    _bundles: dict[str, Path] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _refused: Refused | None = None
    _looked: float = 0.0

    def serve(self, inbox: queue.Queue[tuple[Any, ...] | None]) -> None:
        """Work until the input ends, or nobody has asked for anything for a while."""
        try:
            while True:
                try:
                    message = inbox.get(timeout=_TICK if self._numbers else _IDLE)
                except queue.Empty:
                    if not self._numbers:
                        return
                else:
                    if message is None:
                        return
                    self._take(message)
                self._look()
        finally:
            if self._executor is not None:
                self._executor.stop()

    def _take(self, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        if kind == "bundle":
            self._keep(Bundle(*rest))
        elif kind == "drop":
            (number,) = rest
            for name in [name for name, known in self._numbers.items() if known == number]:
                self._executor_of_a_site.end(name)
        else:
            number, flashdepot, site, order = rest
            answer = self._begin(number, flashdepot, site, order)
            if answer is not None:
                self._answer(number, answer)

    def _begin(self, number: int, flashdepot: str, packed_site: bytes, packed_order: bytes) -> Answer | None:
        """Begin an order; :returns: the answer where it cannot be begun."""
        if flashdepot != __version__:  # whose orders may have another form
            return refusal(Site((), {}, (), (), {}, flashdepot=flashdepot), __version__, python_release())
        site: Site = decode(packed_site, type=Site)
        if self._executor is None:
            lacking = tuple(digest for digest in site.sources.values() if digest not in self._bundles)
            if lacking:
                return Lacks(lacking)
            self._refused = self._refused or refusal(site, __version__, python_release()) or self._settle(site)
            if self._refused is not None:
                return self._refused
        order: Order = decode(packed_order, type=Order)
        name = order.action.name
        if name in self._numbers:  # an order that was dropped has not ended yet
            return Lost()
        lock = try_lock_file(self.work / f"{number}.lock")
        if lock is None:
            return Lost()
        made = {}
        for word, data in order.made.items():
            made[word] = self.work / f"{number}-{word}{order.action.suffix}.made"
            made[word].write_bytes(data)
        try:
            self._executor_of_a_site.start(Task(order.action, made, lock, self.work / f"{number}.log"))
        except FlashdepotError as error:
            lock.release()
            return Refused(error.message, error.hint)
        self._numbers[name] = number
        self.say(("event", {"kind": "started", "name": name}))
        return None

    def _look(self) -> None:
        """Answer what has ended, and tell now and then how much memory the compilers hold."""
        if not self._numbers:
            return
        for ended in self._executor_of_a_site.ended(_TICK):
            number = self._numbers.pop(ended.task.action.name)
            with ended.task.lock:
                self._answer(number, _done(ended))
            self._executor_of_a_site.release(ended)
            for left in (ended.task.log, *ended.task.made.values(), self.work / f"{number}.lock"):
                left.unlink(missing_ok=True)
        if time.monotonic() - self._looked >= _MEMORY_TICK or not self._numbers:
            self._looked = time.monotonic()
            held = descendants_memory() if self._numbers else 0
            self.say(("event", {"kind": "memory", "bytes": held}))

    def _answer(self, number: int, answer: Answer) -> None:
        self.say(("answer", number, encode(answer)))

    @property
    def _executor_of_a_site(self) -> LocalExecutor:
        assert self._executor is not None, "orders come with their site"  # noqa: S101
        return self._executor

    def _keep(self, bundle: Bundle) -> None:
        folder = self.work / "sources" / bundle.digest
        if bundle.digest not in self._bundles and unpack(bundle, folder):
            self._bundles[bundle.digest] = folder

    def _settle(self, site: Site) -> Refused | None:
        """Provide what compiles, and see that it is what the build compiles with; :returns: why it cannot be."""
        try:
            host, folder = runtime_facts(), self.depot.layout.toolchains
            toolchain = choose_toolchain(
                _choice(site),
                host,
                site.sass,
                driver=None,
                folder=folder,
                work=self.work,
                on_file=self._on_file,
            )
            if (refused := _other_tools(site, toolchain)) is not None:
                return refused
            provided = provide(site.families, host.platform, folder, self._on_file)
            here = {name: value for name, value in toolchain.whole_environment().items() if name not in site.variables}
        except FlashdepotError as error:
            return Refused(error.message, error.hint)
        sources = {place: self._bundles[digest] for place, digest in site.sources.items()}
        environment = here | {name: value for name, value in site.variables.items() if value}
        if site.confined:
            environment = confined_environment(environment, site.variables)
        self._executor = LocalExecutor(
            places(sources, provided, toolchain),
            programs(toolchain),
            environment,
            Limits(),
            self.work,
            means() if site.confined else Means.NONE,
        )
        self._executor.prepare()
        return None

    def _on_file(self, name: str) -> Download:
        told: list[str] = []

        def tell(_done: int, _total: int | None) -> None:
            if not told:
                told.append(name)
                self.say(("event", {"kind": "note", "text": f"fetching {name}"}))

        return tell


def _choice(site: Site) -> CudaChoice:
    """The pinned nvcc, or the toolkit in the folder that the build takes it from, or else one of that release."""
    if not site.cuda:
        return AnyCuda.AUTO
    return Path(site.cuda) if Path(site.cuda).is_dir() or not site.release else Version.parse(site.release)


def _other_tools(site: Site, toolchain: Toolchain) -> Refused | None:
    mine = {tool.name: tool for tool in identify_toolchain(toolchain).tools}
    for tool in site.tools:
        found = mine.get(tool.name)
        if found != tool:
            has = f"{found.version} with SHA-256 {found.digest[:12]}" if found else "none"
            return Refused(
                f"its {tool.name} is {has}, and the build's is {tool.version} with SHA-256 {tool.digest[:12]}",
                "Build with what every worker can provide, the nvcc from PyPI (--cuda auto), on workers of this "
                "machine's kind; or have the same CUDA toolkit at the same place on all of them.",
            )
    return None


def _done(ended: Ended) -> Done:
    log = ended.task.log.read_text(errors="replace")
    if ended.cost.status != 0:
        return Done(ended.cost, log)
    output = ended.output.read_bytes()
    return Done(ended.cost, log, output, hashlib.sha256(output).hexdigest(), ended.inputs)


def main() -> None:
    """Serve what is said on standard input."""
    answers = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # what anything prints must not come between answers
    orders = Connection(os.dup(0), writable=False)
    inbox: queue.Queue[tuple[Any, ...] | None] = queue.Queue()

    def read() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                inbox.put(tuple(decode(orders.recv_bytes())))
        inbox.put(None)

    def say(message: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):  # the worker has ended, and the input will
            answers.send_bytes(encode(message))

    threading.Thread(target=read, daemon=True).start()
    hello = {"flashdepot": __version__, "python": python_release()}
    try:
        depot = open_depot()
        with depot.workspace() as work:
            say(("hello", hello))
            Agent(depot, work, say).serve(inbox)
    except FlashdepotError as error:  # a depot that cannot be used
        say(("hello", {**hello, "problem": f"{error.message} {error.hint}".rstrip()}))


if __name__ == "__main__":
    main()
