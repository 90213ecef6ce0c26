"""Which environment is meant: a machine's record or this one, its Python, and facts that are named in their place."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from flashdepot.errors import UsageError
from flashdepot.host import probe, runtime_facts, saved_host, wheel_facts
from flashdepot.model.environment import NO_TORCH, Environment
from flashdepot.model.host import HostRecord
from flashdepot.resolve.facts import NamedFacts, facts_of, on_host, override


class Given(msgspec.Struct, frozen=True):
    """What was said of an environment: facts, a record or its file, an interpreter."""

    named: NamedFacts = NamedFacts()
    host: HostRecord | Path | None = None
    python: str | None = None

    @property
    def saved(self) -> HostRecord | None:
        """The record that was named; ``None`` for this machine.

        :raises UsageError: when there is no such file, or it is not a host record.
        """
        if self.host is not None and self.python is not None:
            raise UsageError("--python reads this machine, --host a saved record: give one of them.")
        return saved_host(self.host) if isinstance(self.host, Path) else self.host

    @property
    def machine(self) -> HostRecord | None:
        """The machine of the record, or this one, with what was named in its place; ``None`` for this one as it is.

        :raises UsageError: for a record that cannot be read, or a value that is none.
        """
        found = self.saved
        if self.named == NamedFacts():
            return found
        return on_host(found or runtime_facts(gpus=not self.named.gpu), self.named)

    def record(self, depot: Path) -> HostRecord:
        """All that is known of the machine and its Python environment, with what was named in its place."""
        found = on_host(self.saved or probe(self.python, depot), self.named)
        if found.python is None:
            return found
        torch = override(facts_of(found), self.named).torch
        return replace(found, python=replace(found.python, torch=None if torch == NO_TORCH else torch))

    def environment(self) -> tuple[HostRecord, Environment]:
        """The record as it was found, and the facts with those in their place that were named."""
        named, saved = self.named, self.saved
        told_all = self.python is None and named.torch is not None and named.python_tag is not None
        found = saved or wheel_facts(self.python, environment=not told_all, gpus=not named.gpu)
        return found, override(facts_of(found, recorded=saved is not None), named)
