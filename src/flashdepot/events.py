"""What a call of the API says while it works: the one sink for notes, warnings, progress and questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

Download = Callable[[int, "int | None"], None]
"""Called with the bytes received so far, and how many there will be if that is known."""


class Snapshot(msgspec.Struct, frozen=True):
    """A build at one moment.

    :param done: kernels, what launches each from the CPU, and sources of the C layer, of ``total``.
    :param fraction: of the work of this build that is done, from 0 to 1; it grows while a compiler runs, and is 1 only
        after linking.
    :param running: compilations that run here; ``elsewhere`` those that another process does.
    :param memory: what the compilers hold, in bytes.
    :param eta: wall seconds left.
    """

    done: int
    total: int
    fraction: float
    running: Sequence[str]
    elsewhere: Sequence[str]
    memory: int
    eta: float


OnFile = Callable[[str], "Download | None"]
"""Called with the name of a file before it is fetched; what it returns hears how far it is."""

LONG = 120.0
"""Wall seconds of compiling from which on a person is asked before it begins."""


class Fetch(msgspec.Struct, frozen=True):
    """Something that is fetched before anything is compiled, and its size in bytes, as far as it is known.

    ``unpacked`` are the bytes of its folder in a depot, 0 where nobody measured them.
    """

    what: str
    size: int
    unpacked: int = 0


class Alternative(msgspec.Struct, frozen=True):
    """The options that ask for less, and the wall seconds that compiling it takes."""

    options: str
    seconds: float


class Forecast(msgspec.Struct, frozen=True):
    """What it takes to make a library here.

    :param units: kernels that the library has.
    :param compiled: those of them whose device code was compiled before, and is reused.
    :param jobs: compilers that run at once.
    :param seconds: wall time until all is compiled, downloads not counted.
    :param memory: bytes that the compilers hold together at most.
    :param memory_limit: bytes that they may hold together; one that needs more runs by itself.
    :param disk: bytes that stay in the depot.
    :param is_exact: whether the compilers were asked; else it is what such units usually take.
    :param host_sides: of those that are ``compiled``, how many must be compiled for the CPU of this target all the same.
    :param source: what is said of the device code of those that are ``compiled``.
    :param load: programs that kept this machine busy before, if those are many: ``seconds`` are those of an idle one.
    """

    units: int
    compiled: int
    jobs: int
    seconds: float
    memory: int
    memory_limit: int
    disk: int
    fetches: tuple[Fetch, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    is_exact: bool = True
    host_sides: int = 0
    source: str = "is compiled already"
    load: float = 0.0

    def __repr__(self) -> str:
        return f"<Forecast: {self.units - self.compiled} of {self.units} kernels, {self.seconds:.0f} s>"

    @property
    def is_long(self) -> bool:
        """Whether a person would rather be asked."""
        return self.seconds > LONG


class BuildProgress:
    """Who hears how a build goes: nobody. Override what you want to hear. Every call returns at once."""

    def note(self, text: str) -> None:
        """Say one sentence."""

    def download(self, name: str) -> Download:  # noqa: ARG002
        """A file may be fetched; what is returned hears how far it is, when it is."""
        return lambda _received, _total: None

    def finished(self, name: str, seconds: float, state: Snapshot) -> None:
        """A kernel was compiled in so many wall seconds."""

    def update(self, state: Snapshot) -> None:
        """Time has passed."""


class Events:
    """Says nothing and agrees to nothing. Override what you want to hear, and what you want to decide.

    Typical usage::

        class Printed(Events):
            def note(self, text):
                print(text)

        Client(events=Printed()).get()
    """

    def note(self, text: str) -> None:
        """Something that is good to know."""

    def warn(self, text: str) -> None:
        """A problem that did not stop the work."""

    def download(self, name: str) -> AbstractContextManager[Download]:  # noqa: ARG002
        """A file is about to be fetched; what is returned hears how far it is."""
        return nullcontext(lambda _received, _total: None)

    def building(self) -> AbstractContextManager[BuildProgress]:
        """Compilers are about to run; what is returned hears how far they are."""
        return nullcontext(BuildProgress())

    def confirm(self, question: str) -> bool | None:  # noqa: ARG002
        """Whether to compile for longer than two minutes, or take what is not trusted; ``None`` where nobody can answer."""
        return None
