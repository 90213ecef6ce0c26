"""Who builds and who uses, in one process: each has a depot, settings and keys of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from flashdepot.events import Events
from flashdepot.kernels.c_layer import c_layer_digest
from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import PublicKey, RemoteSettings, TrustedKey
from flashdepot.model.request import Request
from flashdepot.remotes import Remotes
from flashdepot.remotes.keys import new_key
from flashdepot.remotes.push import Pushed, push
from flashdepot.remotes.user_settings import UserSettings
from support.depot_factories import make_record, make_request, record_unit, store_library

REQUEST = make_request(c_layer=c_layer_digest())


@dataclass
class Party:
    """One user of one machine. ``warnings`` are what was said to them."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    warnings: list[str] = field(default_factory=list)

    @property
    def settings(self) -> UserSettings:
        self.monkeypatch.setenv("XDG_CONFIG_HOME", str(self.folder / "config"))
        return UserSettings.of_this_user()

    @property
    def depot(self) -> Depot:
        return Depot(self.folder / "depot", self.warnings.append)

    def key(self, name: str = "ci") -> PublicKey:
        return new_key(self.settings, name, None).public

    def trust(self, key: PublicKey, **more: object) -> None:
        self.settings.trust(TrustedKey(key, **more))  # type: ignore[arg-type]

    def remotes(self, *remotes: RemoteSettings) -> Remotes:
        _ = self.settings
        opened = Remotes(lambda: remotes, self.warnings.append)
        opened.all()
        return opened

    def store(self, name: str = "one", units: Sequence[str] = ("fwd_hdim64_bf16",)) -> Manifest:
        """A library in the depot with the units that it is made of."""
        self.folder.mkdir(exist_ok=True)
        records = [record_unit(self.depot, self.folder / "made", unit, unit.encode() * 5000) for unit in units]
        return store_library(
            self.depot, self.folder / "files", name=name, actions={record.name: record.action_key for record in records}
        )

    def push(self, remote: RemoteSettings, *manifests: Manifest) -> Pushed:
        return push(self.remotes(remote).all()[0], self.depot, manifests, Events())

    def fetch(self, *remotes: RemoteSettings, request: Request = REQUEST) -> Manifest | None:
        """What read-through gives; whatever it gives is whole."""
        found = self.remotes(*remotes).fetch_library(self.depot, request, Events())
        if found is not None:
            assert self.depot.load_intact(found.recipe_key) == found
        assert found is not None or self.depot.find(request).taken is None
        return found

    def fetch_unit(
        self, *remotes: RemoteSettings, record: ActionRecord | None = None, **now: str
    ) -> ActionRecord | None:
        """What read-through gives for a compiler run whose inputs are those of the record, but for those given."""
        record = record or make_record()
        digests = {**record.inputs, **now}
        self.remotes(*remotes).fetch_actions(self.depot, {record.intent_key}, digests.get, lambda _: None)
        return self.depot.actions.find(record.intent_key, digests.get)
