"""Everything in a depot, read and compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from flashdepot.depot.actions import ActionRecord, read_action, read_intent
from flashdepot.depot.layout import Fingerprint, inside, is_leftover, key_of
from flashdepot.depot.libraries import read_artifact
from flashdepot.depot.store import Depot
from flashdepot.errors import IntegrityError, NewerError
from flashdepot.files.disk import sha256_file
from flashdepot.files.documents import read_record
from flashdepot.files.folders import changed_files
from flashdepot.kernels import FAMILIES
from flashdepot.model.manifest import Manifest
from flashdepot.toolchain import wheels

_T = TypeVar("_T")
_NAMES_SHOWN = 5


class VerifyReport(msgspec.Struct, frozen=True):
    """How many blobs, records and folders were checked, the bytes of the blobs, and what is wrong, a sentence each.

    ``folders`` is how many of what was checked are folders of compilers and sources, ``folder_bytes`` what they hold.
    ``skipped`` counts the records that another version of flashdepot wrote; they are left untouched.
    """

    checked: int
    bytes: int
    folders: int
    folder_bytes: int
    skipped: int
    problems: tuple[str, ...]


def verify(depot: Depot) -> VerifyReport:
    """Read every byte of a depot that is executed, compiled or handed out.

    Damaged blobs and records are moved to ``quarantine/``, and so are actions whose object is lost, so that what they
    held is made again. A library, a source tree or a compiler that is damaged stays, and is reported until the next
    command that uses it has made it again. Logs are not covered: nobody but people reads them.
    """
    return _Verification(depot).run()


class _Verification:
    def __init__(self, depot: Depot) -> None:
        self._problems: list[str] = []
        self._depot = Depot(depot.root, on_problem=self._problems.append)  # knows no blob yet: reads them all
        self._counts = dict.fromkeys(("checked", "bytes", "folders", "folder_bytes", "skipped"), 0)

    def run(self) -> VerifyReport:
        depot = self._depot
        for blob in depot.blobs.files():
            with contextlib.suppress(FileNotFoundError):
                self._counts["bytes"] += blob.stat().st_size
                self._counts["checked"] += 1
                depot.blobs.find(key_of(blob))
        for path in depot.actions.files():
            self._check_record(path, read_action, self._action_problem)
        for path in depot.actions.intent_files():
            self._check_record(path, read_intent)
        for path in depot.artifacts.files():
            self._check_record(path, read_artifact, lambda found: self._manifest_problem(found[0]))
        for path in (*sorted(depot.layout.toolchains.glob("probe-*.json")), depot.layout.estimates):
            self._check_record(path, read_record)
        self._check_fetched()
        return VerifyReport(**self._counts, problems=tuple(self._problems))

    def _check_record(
        self, path: Path, read: Callable[[Path], _T], problem_of: Callable[[_T], str] = lambda _: ""
    ) -> None:
        try:
            seen = Fingerprint.of(path)
            problem = problem_of(read(path))
        except FileNotFoundError:
            return
        except NewerError:
            self._counts["skipped"] += 1
            return
        except IntegrityError as error:
            done = self._depot.layout.set_aside(path, seen)
            problem = f"{error.message} Its record {done}." if done else ""
        except OSError as error:
            problem = f"{path} cannot be read: {error.strerror}."
        self._count(problem)

    def _count(self, problem: str) -> None:
        self._counts["checked"] += 1
        if problem:
            self._problems.append(problem)

    def _check_fetched(self) -> None:
        """Compilers and sources: every byte of their folders, and the archives of sdists."""
        layout = self._depot.layout
        trees = {name: tree for family in FAMILIES for name, tree in family.sources.known_trees().items()}
        trees.update(wheels.known_trees())
        for folder in (*inside(layout.toolchains), *inside(layout.upstreams)):
            if is_leftover(folder) or not folder.is_dir():
                continue
            self._count(_folder_problem(folder, trees.get(folder.name)))
            self._counts["folders"] += 1
            for file in folder.rglob("*"):
                with contextlib.suppress(FileNotFoundError):
                    self._counts["folder_bytes"] += 0 if file.is_dir() else file.lstat().st_size
        for sdist in (sdist for family in FAMILIES for sdist in family.sources.published().values()):
            archive = layout.upstreams / sdist.filename
            with contextlib.suppress(FileNotFoundError):
                right = sha256_file(archive) == sdist.sha256
                self._count("" if right else f"{archive} is damaged. It is fetched again when it is needed.")

    def _action_problem(self, record: ActionRecord) -> str:
        if self._depot.blobs.find(record.object.digest) is None:
            raise IntegrityError(f"The object of {record.name} is lost; it will be compiled again when it is needed.")
        return ""

    def _manifest_problem(self, manifest: Manifest) -> str:
        depot, key = self._depot, manifest.recipe_key
        lost = [f.path for f in manifest.files if not f.link and depot.blobs.find(f.digest) is None]
        if lost and depot.layout.artifact(key).exists():  # otherwise it has been removed
            return f"The library {key[:16]} ({manifest.selection}) lost {', '.join(lost)}. 'flashdepot get' makes it again."
        if wrong := depot.libraries.differences(manifest):
            folder = depot.layout.library(key)
            return f"{folder} does not hold what its manifest says: {', '.join(wrong)}. 'flashdepot get' fixes it."
        return ""


def _folder_problem(folder: Path, tree: str | None) -> str:
    changed = changed_files(folder, tree)
    if changed == []:
        return ""
    changed = changed or ["which files cannot be determined"]
    more = f" and {len(changed) - _NAMES_SHOWN} more" if len(changed) > _NAMES_SHOWN else ""
    shown = ", ".join(changed[:_NAMES_SHOWN])
    return f"{folder} does not hold what was put there: {shown}{more}. The next command that uses it makes it again."
