"""What compiler runs read and produced, found again by what they would read now.

The look-up has two levels, because what a compiler reads is known only after it ran. The *intent* (source, arguments,
tools, environment) leads to the actions that had it; an action answers when every file that it read still has the
digest it had then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec.structs import replace

from flashdepot.depot.blobs import Blobs
from flashdepot.depot.layout import DepotLayout, key_of, mark_used, records
from flashdepot.errors import IntegrityError
from flashdepot.files.disk import disk_errors
from flashdepot.files.documents import read_record, write_record
from flashdepot.files.locks import lock_file
from flashdepot.model.codec import Digest, Natural, digest_of, read

_T = TypeVar("_T")

ACTION_SCHEMA = 2
_ACTIONS_KEPT = 16
"""How many actions an intent remembers: as many states of the sources as one goes back and forth between."""

_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Output(msgspec.Struct, frozen=True):
    """A file that a compiler made: its SHA-256 and size in bytes."""

    digest: Digest
    size: Natural


class ActionRecord(msgspec.Struct, frozen=True):
    """One compiler run.

    ``inputs`` maps the normalized path of every file that was read to its SHA-256. ``outputs`` has ``object`` and
    perhaps ``log`` once the depot has recorded it. Times in seconds, ``peak_rss`` in bytes, ``created`` in ISO 8601.
    """

    action_key: Digest
    intent_key: Digest
    name: str
    inputs: Mapping[str, str]
    cpu_seconds: _Seconds
    wall_seconds: _Seconds
    peak_rss: Natural
    outputs: Mapping[str, Output] = msgspec.field(default_factory=dict)
    created: str = ""

    @property
    def object(self) -> Output:
        """The object file; :raises KeyError: before the depot has recorded the run."""
        return self.outputs["object"]

    def to_json(self) -> dict[str, Any]:
        """The JSON document, ``schema`` first."""
        return {"schema": ACTION_SCHEMA, **msgspec.to_builtins(self)}

    @classmethod
    def from_json(cls, data: Any) -> ActionRecord:
        """Read what :meth:`to_json` wrote; :raises ValueError: for anything else, or a key that the contents do not give."""
        record = read(data, cls)
        if "object" not in record.outputs:
            raise ValueError("it names no object")
        if record.action_key != action_key(record.intent_key, record.inputs):
            raise ValueError("its contents do not match its key")
        return record


class _Intent(msgspec.Struct, frozen=True):
    intent_key: Digest
    actions: list[Digest]


def action_key(intent_key: str, inputs: Mapping[str, str]) -> str:
    """The key of a compiler run: a SHA-256 of its intent and of all that it read."""
    return digest_of({"intent": intent_key, "inputs": sorted(inputs.items())})


class Actions:
    """The actions of one depot.

    :param on_problem: called with a sentence for every record that cannot be read.
    """

    def __init__(self, layout: DepotLayout, blobs: Blobs, on_problem: Callable[[str], None]) -> None:
        self._layout = layout
        self._blobs = blobs
        self._on_problem = on_problem

    def find(self, intent_key: str, current_digest: Callable[[str], str | None]) -> ActionRecord | None:
        """The newest action of an intent whose inputs have the digests that they had then, and whose object is right."""
        for key in self._known(intent_key):
            record = self.read(self._layout.action(key))
            if (
                record is None
                or record.intent_key != intent_key
                or any(current_digest(path) != digest for path, digest in record.inputs.items())
                or self._blobs.find(record.object.digest) is None
            ):
                continue
            for output in record.outputs.values():
                self._blobs.mark_used(output.digest)
            mark_used(self._layout.action(key))
            if self._blobs.has(record.object.digest):  # gc may have been faster than the mark
                return record
        return None

    def record(self, record: ActionRecord, object_path: Path) -> ActionRecord:
        """Keep what a compiler made, and return the record with its outputs and the time: from here on :meth:`find` has it."""
        # The size is the file's, not the blob's: gc may look at a blob aside for a moment before it puts it back.
        outputs = {"object": Output(self._blobs.put_file(object_path), object_path.stat().st_size)}
        created = datetime.now(timezone.utc).isoformat(timespec="seconds")
        record = replace(record, outputs=outputs, created=created)
        with disk_errors(self._layout.root):
            with lock_file(self._layout.lock("intents")):
                others = [key for key in self._known(record.intent_key) if key != record.action_key]
                keys = [record.action_key, *others][:_ACTIONS_KEPT]
                listed = {"schema": ACTION_SCHEMA, "intent_key": record.intent_key, "actions": keys}
                write_record(self._layout.intent(record.intent_key), listed)
            # The way to it is there before it is: a kill leaves no action that nothing finds.
            write_record(self._layout.action(record.action_key), record.to_json())
        return record

    def read(self, path: Path) -> ActionRecord | None:
        """The record in a file; ``None`` when it is gone, or when it cannot be read, which is reported."""
        return self._reported(path, read_action)

    def files(self) -> Iterator[Path]:
        """The file of every record there is, in order."""
        yield from records(self._layout.root / "actions")

    def intent_files(self) -> Iterator[Path]:
        """The file of every intent there is, in order."""
        yield from records(self._layout.root / "intents")

    def _known(self, intent_key: str) -> list[str]:
        return self._reported(self._layout.intent(intent_key), read_intent) or []

    def _reported(self, path: Path, read: Callable[[Path], _T]) -> _T | None:
        try:
            return read(path)
        except FileNotFoundError:
            return None
        except (IntegrityError, OSError) as error:
            self._on_problem(f"{path} cannot be used: {error} What it led to will be compiled again.")
            return None


def read_action(path: Path) -> ActionRecord:
    """Read a file of ``actions/``; :raises IntegrityError: when it is damaged, or of another run than its name says."""
    try:
        record = ActionRecord.from_json(read_record(path, ACTION_SCHEMA))
    except ValueError as error:
        raise IntegrityError(f"{path} is damaged: {error}.") from error
    if record.action_key != key_of(path):
        raise IntegrityError(f"{path} is damaged: it records the run {record.action_key}.")
    return record


def read_intent(path: Path) -> list[str]:
    """The action keys that a file of ``intents/`` lists, newest first."""
    data = read_record(path, ACTION_SCHEMA)
    try:
        intent = read(data, _Intent)
    except ValueError as error:
        raise IntegrityError(f"{path} is damaged: {error}.") from error
    if intent.intent_key != key_of(path):
        raise IntegrityError(f"{path} is damaged: it lists the actions of {intent.intent_key}.")
    return intent.actions
