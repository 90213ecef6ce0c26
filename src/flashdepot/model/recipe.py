"""How one artifact is made: its sources, the recipe, and the compiler runs. The recipe's digest is the recipe key."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from flashdepot.model.codec import Digest, digest_of, plain
from flashdepot.model.selection import Selection, Unit
from flashdepot.model.target import Target, Version

PUBLISHED = "sdist"
"""The origin of a source whose digest is on record."""


class UpstreamId(msgspec.Struct, frozen=True):
    """A source tree of one family.

    ``digest`` stands for every byte that a build can read: the SHA-256 of the published sdist, or of the source files
    of a folder or commit. ``origin`` says where it came from and is not part of any key: ``sdist``, ``folder`` or
    ``git+URL``. ``commits`` holds the resolved commit of the tree (``"."``) and of each submodule, for a git source.
    """

    version: str
    digest: Digest
    origin: str = PUBLISHED
    commits: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        if commit := self.commits.get("."):
            return f"{self.version} ({self.origin}@{commit[:12]})"
        return self.version if self.origin == PUBLISHED else f"{self.version} ({self.origin})"


def leading(upstreams: Mapping[str, UpstreamId]) -> UpstreamId:
    """Of the sources of a library's families, the one whose version the library and its wheel have."""
    return upstreams[min(upstreams)]


HOST_COMPILERS = frozenset({"g++", "clang++", "zig"})
"""The names of C++ compilers among the tools."""

RECIPE_SCHEMA = 2
FRONT_END = "shared"
"""One front-end pass serves all architectures: part of keys and manifests since there was another way."""


class Tool(msgspec.Struct, frozen=True):
    """A program that takes part in a build: what it is, its version, and the SHA-256 of its file."""

    name: str
    version: str
    digest: Digest


class ToolchainId(msgspec.Struct, frozen=True):
    """What builds: the CUDA version and every program that runs, with digests. No path: those differ by machine.

    ``tools`` compile, and are part of what an object is known by. ``named`` says that somebody named the toolkit's folder,
    rather than that it was found on the machine or provided.
    """

    cuda: Version
    tools: tuple[Tool, ...]
    named: bool = False

    @property
    def host_compiler(self) -> Tool:
        """The C++ compiler that nvcc calls."""
        return next(t for t in self.tools if t.name in HOST_COMPILERS)

    @property
    def device_compiler(self) -> str:
        """The digest that stands for nvcc and all that it runs, without the host compiler."""
        return digest_of({t.name: t.digest for t in self.tools[: self.tools.index(self.host_compiler)]})

    def to_json(self) -> dict[str, Any]:
        """CUDA version and tools, and that they were named where they were; ``linking`` keeps the keys of recipes as they are."""
        document = {"cuda": plain(self.cuda), "tools": plain(self.tools), "linking": []}
        return {**document, "named": True} if self.named else document


class Recipe(msgspec.Struct, frozen=True):
    """Upstream and flags of each family, selection, target and toolchain of one library.

    ``native_digest`` stands for the C layer that flashdepot itself adds. ``flags`` are the compilers' arguments, with
    paths replaced by names.
    """

    upstreams: Mapping[str, UpstreamId]
    selection: Selection
    target: Target
    toolchain: ToolchainId
    native_digest: str
    flags: Mapping[str, tuple[str, ...]]

    @property
    def upstream(self) -> UpstreamId:
        """The source that gives a library its version."""
        return leading(self.upstreams)

    @property
    def key(self) -> str:
        """The recipe key: a SHA-256 that is the same for the same recipe in any folder and on any machine."""
        return digest_of(
            {
                "schema": RECIPE_SCHEMA,
                "upstreams": {name: {"version": u.version, "digest": u.digest} for name, u in self.upstreams.items()},
                "selection": self.selection.to_json(),
                "target": plain(self.target),
                "toolchain": self.toolchain.to_json(),
                "front_end": FRONT_END,
                "native": self.native_digest,
                "flags": dict(self.flags),
            }
        )


ACTION_SCHEMA = 1

GNU_OUTPUTS = ("-MD", "-MF", "{depfile}", "-c", "{source}", "-o", "{output}")
"""The words of GCC, Clang and nvcc for where they read and write."""


class PrecompiledHeader(msgspec.Struct, frozen=True):
    """What the sources of several actions begin with, compiled once for all of them.

    ``make`` is the command that writes it to ``{output}``; its ``{source}`` is an empty file. ``use`` are the words that an
    action's command takes too, to begin with what is at ``{header}``.
    """

    make: tuple[str, ...]
    use: tuple[str, ...]


class Action(msgspec.Struct, frozen=True):
    """One compiler run: ``arguments`` name folders and programs, as in ``{cuda}/bin/nvcc``.

    It runs in the folder ``place``, with ``source`` relative to it, so that no absolute path gets into what it makes: a
    file with the ending ``suffix``. ``variables`` are those of the environment that change what the compiler writes.
    ``unit`` is ``None`` for a source of our own, and for a kernel that units share. ``needs`` are actions whose outputs it
    reads, by the names of those in ``arguments``. What it reads in the places ``uncounted`` does not change what it
    makes, and so is in no key. Neither are ``header`` and ``resident``: what it makes is the same with them and without.
    Of one ``resident`` kind, actions whose arguments are the same but for the last, a job as JSON, can be made one after
    the other by one process (:mod:`flashdepot.build.resident`).
    """

    name: str
    place: str
    source: str
    arguments: tuple[str, ...]
    tools: tuple[Tool, ...]
    variables: tuple[str, ...] = ()
    unit: Unit | None = None
    suffix: str = ".o"
    outputs: tuple[str, ...] = GNU_OUTPUTS
    needs: Mapping[str, str] = msgspec.field(default_factory=dict)
    uncounted: tuple[str, ...] = ()
    header: PrecompiledHeader | None = None
    resident: str = ""

    def intent_key(self, environment: Mapping[str, str], made: Mapping[str, str] | None = None) -> str:
        """The digest of all that is known before the inputs are, and of what the actions that it needs have ``made``."""
        needed = {"made": dict(made)} if made else {}
        return digest_of(
            {
                **needed,
                "schema": ACTION_SCHEMA,
                "source": f"{{{self.place}}}/{self.source}",
                "arguments": list(self.arguments),
                "tools": plain(self.tools),
                "environment": {v: environment[v] for v in self.variables if environment.get(v)},
            }
        )

    def ignores(self, name: str) -> bool:
        """Whether a file that it read, by its name, does not count."""
        return any(name.startswith(f"{{{place}}}/") for place in self.uncounted)

    def resident_command(self, names: Mapping[str, str]) -> list[str]:
        """The arguments that start a process to which jobs are given, with every name replaced."""
        return [filled_in(argument, names) for argument in self.arguments[:-1]]

    def command(self, names: Mapping[str, str], more: Sequence[str] = ()) -> list[str]:
        """The arguments to run, with every name replaced, and ``more`` words before those for the outputs."""
        known = {**names, "source": self.source}
        return [*filled(known, *self.arguments), *more, *filled(known, *self.outputs)]


class Sides(msgspec.Struct, frozen=True):
    """The names of some actions, by what they make: device code of units, the host side around it, or anything else."""

    device: frozenset[str]
    host: frozenset[str]
    others: frozenset[str]

    @classmethod
    def of(cls, actions: Collection[Action]) -> Sides:
        """Tell them apart: a host side needs the device code of a unit."""
        needs = {action.name: frozenset(action.needs.values()) for action in actions}
        device = frozenset(action.name for action in actions if action.unit is not None)
        host = frozenset(name for name, needed in needs.items() if needed & device)
        return cls(device, host, frozenset(needs) - device - host)


def filled(names: Mapping[str, str], *arguments: str) -> list[str]:
    """A command with every name replaced by what stands for it."""
    return [filled_in(argument, names) for argument in arguments]


def filled_in(argument: str, names: Mapping[str, str]) -> str:
    """An argument with every name replaced by what stands for it."""
    spelled = _for_a_shell if argument.startswith(_HANDED_ON) else str
    for name, value in names.items():
        argument = argument.replace(f"{{{name}}}", spelled(value))
    return argument


_HANDED_ON = "-Xcompiler="
"""What nvcc hands to its preprocessor, and does not quote as it quotes what it is given itself."""


def _for_a_shell(path: str) -> str:
    """A path for :data:`_HANDED_ON`: nvcc splits at commas and takes a backslash away, then a shell does its own."""
    quoted = re.sub(r"[^\w@%+=:./-]", r"\\\g<0>", path)
    return quoted.replace("\\", "\\\\").replace(",", "\\,")


class Estimate(msgspec.Struct, frozen=True):
    """CPU-seconds, and the peak resident memory in bytes of the largest process of one action."""

    seconds: float
    peak: int
