"""How one artifact is made. Its digest is the recipe key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from flashdepot.model.canonical import digest_of
from flashdepot.model.selection import Selection
from flashdepot.model.table import Table
from flashdepot.model.target import Target, Version
from flashdepot.model.upstream import UpstreamId, leading

HOST_COMPILERS = frozenset({"g++", "clang++", "cl", "zig"})
"""The names of C++ compilers among the tools."""

RECIPE_SCHEMA = 2


class Tool(msgspec.Struct, frozen=True):
    """A program that takes part in a build: what it is, its version, and the SHA-256 of its file."""

    name: str
    version: str
    digest: str

    def to_json(self) -> dict[str, str]:
        """Name, version and digest."""
        return {"name": self.name, "version": self.version, "digest": self.digest}

    @classmethod
    def read(cls, row: Table) -> Tool:
        """Read what :meth:`to_json` wrote; :raises ValueError: for a field that is missing or cannot be."""
        return cls(row.take("name", str), row.take("version", str), row.digest("digest"))


class ToolchainId(msgspec.Struct, frozen=True):
    """What builds: the CUDA version and every program that runs, with digests. No path: those differ by machine.

    ``tools`` compile, and are part of what an object is known by. ``linking`` is what objects become libraries with:
    linker and archiver, and all that goes into a library from this machine, such as static run times. ``named`` says
    that somebody named the toolkit's folder, rather than that it was found on the machine or provided.
    """

    cuda: Version
    tools: tuple[Tool, ...]
    linking: tuple[Tool, ...] = ()
    named: bool = False

    @property
    def host_compiler(self) -> Tool:
        """The C++ compiler that nvcc calls."""
        return next(t for t in self.tools if t.name in HOST_COMPILERS)

    @property
    def device_compiler(self) -> str:
        """The digest that stands for nvcc and all that it runs, without the host compiler."""
        return device_compiler({t.name: t.digest for t in self.tools[: self.tools.index(self.host_compiler)]})

    def to_json(self) -> dict[str, Any]:
        """CUDA version and tools, and that they were named where they were."""
        return {
            "cuda": str(self.cuda),
            "tools": [t.to_json() for t in self.tools],
            "linking": [t.to_json() for t in self.linking],
            **({"named": True} if self.named else {}),
        }

    @classmethod
    def read(cls, row: Table) -> ToolchainId:
        """Read what :meth:`to_json` wrote; :raises ValueError: for a field that is missing or cannot be."""
        tools, linking = (tuple(map(Tool.read, row.tables(key))) for key in ("tools", "linking"))
        named = row.take("named", bool) if "named" in row else False
        identity = cls(row.convert("cuda", Version.parse), tools, linking, named)
        if not any(tool.name in HOST_COMPILERS for tool in tools):
            raise row.wrong("tools", f"one of {', '.join(sorted(HOST_COMPILERS))} among them")
        return identity


def device_compiler(digests: Mapping[str, str]) -> str:
    """The digest that stands for programs with these names and digests."""
    return digest_of(dict(digests))


class Recipe(msgspec.Struct, frozen=True):
    """Upstream and flags of each family, selection, target and toolchain of one library.

    ``front_end`` is ``shared`` (one front-end pass serves all architectures) or ``native`` (one each).
    ``native_digest`` stands for the C layer that flashdepot itself adds. ``flags`` are the compilers' arguments, with
    paths replaced by names.
    """

    upstreams: Mapping[str, UpstreamId]
    selection: Selection
    target: Target
    toolchain: ToolchainId
    front_end: str
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
                "target": {
                    "platform": str(self.target.platform),
                    "cuda_major": self.target.cuda_major,
                    "sass": [str(a) for a in self.target.sass],
                    "driver_floor": str(self.target.driver_floor),
                },
                "toolchain": self.toolchain.to_json(),
                "front_end": self.front_end,
                "native": self.native_digest,
                "flags": {name: list(flags) for name, flags in self.flags.items()},
            }
        )
