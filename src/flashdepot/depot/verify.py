"""Everything in a depot, proved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flashdepot.depot.actions import ACTION_SCHEMA, ActionRecord, read_intent
from flashdepot.depot.actions import action_key as key_of
from flashdepot.depot.artifacts import read_manifest
from flashdepot.depot.fingerprint import Fingerprint, move_if_unchanged
from flashdepot.depot.store import Depot
from flashdepot.errors import IntegrityError
from flashdepot.model.manifest import MANIFEST_SCHEMA
from flashdepot.system import own_names
from flashdepot.system.files import read_json


@dataclass(frozen=True)
class VerifyReport:
    """How many blobs and records were checked, the blobs' bytes, and what is wrong, a sentence each.

    ``skipped`` counts the records that another version of flashdepot wrote; they are left alone.
    """

    checked: int
    bytes: int
    skipped: int
    problems: tuple[str, ...]


def verify(depot: Depot, on_progress: Callable[[int, int], None] = lambda _done, _total: None) -> VerifyReport:
    """Read every byte of a depot.

    Damaged blobs and records are moved to ``quarantine/``, and so are actions whose object is lost, so that what they
    held is made again. A manifest whose files are lost stays, and is reported until it is built again or removed.

    :param on_progress: called with the bytes read and the bytes there are.
    """
    return _Verification(depot, on_progress).run()


class _Verification:
    def __init__(self, depot: Depot, on_progress: Callable[[int, int], None]) -> None:
        self._problems: list[str] = []
        self._depot = Depot(depot.root, on_problem=self._problems.append)  # knows no blob yet: reads them all
        self._on_progress = on_progress
        self._checked = 0
        self._bytes = 0
        self._skipped = 0

    def run(self) -> VerifyReport:
        self._check_blobs()
        for path in self._depot.actions.files():
            self._check_record(path, ACTION_SCHEMA, self._action_problem)
        for path in self._depot.actions.intent_files():
            self._check_record(path, ACTION_SCHEMA, self._intent_problem)
        for path in self._depot.artifacts.files():
            self._check_record(path, MANIFEST_SCHEMA, self._manifest_problem)
        return VerifyReport(self._checked, self._bytes, self._skipped, tuple(self._problems))

    def _check_blobs(self) -> None:
        sizes: dict[Path, int] = {}
        for blob in self._depot.blobs.files():
            with contextlib.suppress(FileNotFoundError):
                sizes[blob] = blob.stat().st_size
        total = sum(sizes.values())
        for blob, size in sizes.items():
            self._depot.blobs.find(own_names.key_of(blob))
            self._checked += 1
            self._bytes += size
            self._on_progress(self._bytes, total)

    def _check_record(self, path: Path, schema: int, problem_of: Callable[[Path], str]) -> None:
        try:
            seen = Fingerprint.of(path)
            if _is_foreign(path, schema):
                self._skipped += 1
                return
            problem = problem_of(path)
        except FileNotFoundError:
            return
        except (IntegrityError, ValueError) as error:
            problem = self._set_aside(path, seen, str(error))
        self._checked += 1
        if problem:
            self._problems.append(problem)

    def _set_aside(self, path: Path, seen: Fingerprint, problem: str) -> str:
        """Move a record away; :returns: what to report, nothing when another process replaced or removed it."""
        try:
            destination = self._depot.layout.new_quarantine(path.name)
            moved = move_if_unchanged(path, seen, destination)
        except OSError as error:
            return f"{problem} {path} could not be moved away ({error.strerror})."
        return f"{problem} Its record was moved to {destination}." if moved else ""

    def _action_problem(self, path: Path) -> str:
        record = ActionRecord.from_json(read_json(path))
        if not record.action_key == own_names.key_of(path) == key_of(record.intent_key, record.inputs):
            raise IntegrityError(f"{path} is damaged: its contents do not give the key that it is named by.")
        if self._depot.blobs.find(record.object.digest) is None:
            raise IntegrityError(f"The object of {record.name} is lost; it will be compiled again when it is needed.")
        return ""

    def _intent_problem(self, path: Path) -> str:
        read_intent(path)
        return ""

    def _manifest_problem(self, path: Path) -> str:
        manifest = read_manifest(path)
        lost = [f.path for f in manifest.files if not f.link and self._depot.blobs.find(f.digest) is None]
        if lost and path.exists():  # otherwise it was removed meanwhile
            return (
                f"The library {manifest.recipe_key[:16]} ({manifest.selection}) lost {', '.join(lost)}. "
                "'flashdepot get' makes it again."
            )
        if wrong := self._depot.libraries.differences(manifest):
            folder = self._depot.layout.library(manifest.recipe_key)
            return f"{folder} does not hold what its manifest says: {', '.join(wrong)}. 'flashdepot get' fixes it."
        return ""


def _is_foreign(path: Path, schema: int) -> bool:
    data = read_json(path)
    return isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] != schema
