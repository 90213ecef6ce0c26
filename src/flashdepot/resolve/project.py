"""``flashdepot.toml``: what a project needs, so that ``flashdepot get`` there takes no options.

It is found on the way up, as git finds ``.git``: nobody named it. So it may name versions and selections, and no more.
What runs a program or brings source from elsewhere needs the consent of the user, once for these bytes of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from flashdepot.errors import UsageError, did_you_mean
from flashdepot.families import default_family
from flashdepot.model.library_request import LibraryRequest
from flashdepot.resolve.words import library_request
from flashdepot.system.consent import Consents
from flashdepot.system.ownership import planted
from flashdepot.system.toml import parse_toml

NAME = "flashdepot.toml"
KEYS = ("upstream", "profile", "arch", "passes", "head-dims", "dtypes", "features", "cuda", "target")
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Project:
    """A project file: where it is, the SHA-256 of its bytes, and what it asks.

    ``planted`` says why another user may have written the file; it is empty for one of this user's.
    """

    path: Path
    digest: str
    asked: LibraryRequest
    planted: str

    def objections(self, over: LibraryRequest | None = None) -> tuple[str, ...]:
        """What needs consent before the file is used, a sentence each.

        :param over: what is asked besides and comes first, so that the file's own is not used.
        """
        used = (over or LibraryRequest()).or_else(self.asked)
        found = [f"{self.planted[:1].upper()}{self.planted[1:]}."] if self.planted else []
        if isinstance(self.asked.cuda, Path) and used.cuda is self.asked.cuda:
            found.append(f"It runs the compiler in {self.asked.cuda}.")
        if self.asked.upstream and used.upstream is self.asked.upstream and not _is_published(self.asked.upstream):
            found.append(f"It takes the source from {self.asked.upstream}.")
        return tuple(found)


def find_project(folder: Path) -> Path | None:
    """The nearest ``flashdepot.toml``, from a folder upwards; ``None`` when there is none."""
    return next((p / NAME for p in (folder, *folder.parents) if (p / NAME).is_file()), None)


def read_project(path: Path) -> Project:
    """Read a project file. It has the words of the command line; a list may stand for words joined by commas.

    A relative path is one from the file's folder.

    :raises UsageError: for a key or a value that is not known, or a file that cannot be read; it names the file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
        text = data.decode()
        by_others = planted(path) or planted(path.resolve())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.") from error
    if len(data) > _LARGEST:
        raise UsageError(f"{path} is not a project file: it is larger than 1 MB.")
    return Project(path, sha256(data).hexdigest(), _read(text, path), by_others)


def _read(text: str, path: Path) -> LibraryRequest:
    words = {}
    for key, value in parse_toml(text, str(path)).items():
        if key not in KEYS:
            suggestion = did_you_mean(key, KEYS)
            raise UsageError(f"{path}: '{key}' is not a key of this file: there are {', '.join(KEYS)}.{suggestion}")
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(v, (str, int, float)) and not isinstance(v, bool) for v in values):
            raise UsageError(f"{path}: '{key}' must be a text, a number, or a list of these.")
        words[key.replace("-", "_")] = ",".join(str(v) for v in values)
    for key in ("upstream", "cuda"):
        word = words.get(key, "")
        if word.startswith(".") or ("/" in word and not word.startswith("git+")):
            words[key] = str((path.parent / Path(word).expanduser()).resolve())
    try:
        return library_request(**words)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


def _is_published(upstream: str) -> bool:
    return upstream in default_family().sources.known_versions()


def require_consent(project: Project, consents: Consents, objections: Sequence[str]) -> None:
    """Refuse a project file that asks for more than its user has allowed.

    :raises UsageError: with what it asks for, and the command that allows it.
    """
    if objections and not consents.given(project.path, project.digest):
        raise UsageError(
            f"{project.path} is not used: {' '.join(objections)}",
            hint=f"Read it. If you trust it, as it is now: flashdepot trust {project.path}",
        )
