"""What a project needs, in the words of the command line and of ``flashdepot.toml``."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flashdepot.errors import UsageError, did_you_mean
from flashdepot.facts.gpus import parse_architectures
from flashdepot.kernels import FAMILIES, parse_families
from flashdepot.model.limits import Compiling
from flashdepot.model.request import AnyCuda, CudaChoice, GpuChoice, Gpus, LibraryRequest
from flashdepot.model.selection import (
    parse_dtypes,
    parse_features,
    parse_head_dims,
    parse_passes,
    parse_profile,
)
from flashdepot.model.target import Platform, Version

if TYPE_CHECKING:
    from flashdepot.files.trust import Consents
    from flashdepot.model.remote import RemoteSettings


def library_request(**words: str | None) -> LibraryRequest:
    """Read a request; ``None`` says nothing. The names are those of :class:`LibraryRequest`.

    :raises UsageError: for a word that is not known.
    """
    if unknown := words.keys() - _PARSE.keys():
        word = min(unknown)
        known = ", ".join(_PARSE)
        raise UsageError(f"'{word}' is nothing that a library has: there are {known}.{did_you_mean(word, _PARSE)}")
    return LibraryRequest(**{name: _PARSE[name](word) for name, word in words.items() if word is not None})


def _parse_arch(text: str) -> GpuChoice:
    word = text.strip().lower()
    return Gpus(word) if word in {g.value for g in Gpus} else parse_architectures(text)


def _parse_cuda(text: str) -> CudaChoice:
    word = text.strip()
    if word.lower() == AnyCuda.AUTO.value:
        return AnyCuda.AUTO
    if "/" in word or "\\" in word:
        return Path(word)
    try:
        return Version.parse(word)
    except UsageError:
        raise UsageError(
            f"'{text}' is not a choice of CUDA: expected 'auto', a version such as 13.0, or a toolkit's folder.",
            hint=f"If it is a folder: --cuda ./{text}",
        ) from None


def _parse_target(text: str) -> Platform:
    from flashdepot.toolchain.targets import parse_target  # noqa: PLC0415  (who names no target needs none of them)

    return parse_target(text).platform


_PARSE: Mapping[str, Callable[[str], Any]] = {
    "upstream": str,
    "profile": parse_profile,
    "arch": _parse_arch,
    "passes": parse_passes,
    "head_dims": parse_head_dims,
    "dtypes": parse_dtypes,
    "features": parse_features,
    "families": parse_families,
    "cuda": _parse_cuda,
    "target": _parse_target,
}


NAME = "flashdepot.toml"
REMOTE = "remote"
BUILD = "build"
KEYS = ("upstream", "profile", "arch", "passes", "head-dims", "dtypes", "features", "families", "cuda", "target")
_LARGEST = 1 << 20


class Project(msgspec.Struct, frozen=True):
    """A project file: where it is, the SHA-256 of its bytes, and what it asks.

    ``planted`` says why another user may have written the file; it is empty for one of this user's. ``remotes`` are those
    that it names, and ``build`` whether compilers may start for it.
    """

    path: Path
    digest: str
    asked: LibraryRequest
    planted: str
    remotes: tuple[RemoteSettings, ...] = ()
    build: Compiling | None = None

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
        if self.build is Compiling.ALWAYS:
            found.append("It lets compilers start without asking, however long they take.")
        found.extend(map(_objection, self.remotes))
        return tuple(found)


def find_project(folder: Path) -> Path | None:
    """The nearest ``flashdepot.toml``, from a folder upwards; ``None`` when there is none."""
    return next((p / NAME for p in (folder, *folder.parents) if (p / NAME).is_file()), None)


def read_project(path: Path) -> Project:
    """Read a project file. It has the words of the command line; a list may stand for words joined by commas.

    A relative path is one from the file's folder.

    :raises UsageError: for a key or a value that is not known, or a file that cannot be read; it names the file.
    """
    from flashdepot.files.documents import parse_toml  # noqa: PLC0415
    from flashdepot.files.trust import planted  # noqa: PLC0415  (a folder without a project needs none of it)

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
    asked = parse_toml(text, str(path))
    remotes = _read_remotes(asked.pop(REMOTE, []), path)
    build = Compiling.parse(str(asked.pop(BUILD)), f"{path}: {BUILD}") if BUILD in asked else None
    return Project(path, sha256(data).hexdigest(), _read(asked, path), by_others, remotes, build)


def _read_remotes(rows: Any, path: Path) -> tuple[RemoteSettings, ...]:
    from flashdepot.model.codec import read  # noqa: PLC0415
    from flashdepot.model.remote import RemotesFile  # noqa: PLC0415

    try:
        return read({REMOTE: rows}, RemotesFile).remotes
    except ValueError as error:
        raise UsageError(f"{path}: {error}.") from None


def _objection(remote: RemoteSettings) -> str:
    signers = ", ".join(f"{key.name} ({key.id[:12]})" for key in remote.keys)
    believed = (
        "whoever has made them" if remote.unsigned else f"signed by {signers}" if signers else "signed by your keys"
    )
    more = ", and gives it what you build" if remote.push else ""
    return f"It takes libraries from {remote.url}, {believed}{more}."


def _read(asked: Mapping[str, Any], path: Path) -> LibraryRequest:
    words = {}
    for key, value in asked.items():
        if key not in KEYS:
            keys = (*KEYS, BUILD, REMOTE)
            suggestion = did_you_mean(key, keys)
            raise UsageError(f"{path}: '{key}' is not a key of this file: there are {', '.join(keys)}.{suggestion}")
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
    return any(upstream in family.sources.known_versions() for family in FAMILIES)


def require_trust(project: Project, consents: Consents, objections: Sequence[str]) -> None:
    """Refuse a project file that asks for more than its user has allowed.

    :raises UsageError: with what it asks for, and the command that allows it.
    """
    if objections and not consents.given(project.path, project.digest):
        raise UsageError(
            f"{project.path} is not used: {' '.join(objections)}",
            hint=f"Read it. If you trust it, as it is now: flashdepot trust {shlex.quote(str(project.path))}",
        )


def trusted_remotes(folder: Path) -> tuple[RemoteSettings, ...]:
    """The remotes of the nearest project file, from a folder upwards.

    :raises UsageError: when the user has not allowed the file.
    """
    path = find_project(folder)
    project = read_project(path) if path is not None else None
    if project is None or not project.remotes:
        return ()
    from flashdepot.files.trust import users_consents  # noqa: PLC0415  (most project files need none)

    require_trust(project, users_consents(), project.objections())
    return project.remotes
