"""What a project needs, in the words of the command line and of ``flashdepot.toml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from flashdepot.errors import UsageError, not_one_of
from flashdepot.facts.gpus import known_architectures, parse_architectures
from flashdepot.kernels import ALL, FAMILIES, default_family, oldest_gpu, parse_families
from flashdepot.model import selection
from flashdepot.model.limits import Compiling, joined
from flashdepot.model.request import AnyCuda, CudaChoice, GpuChoice, Gpus, LibraryRequest
from flashdepot.model.target import Platform, Version

if TYPE_CHECKING:
    from flashdepot.files.trust import Consents
    from flashdepot.model.remote import RemoteSettings


def library_request(**words: str | None) -> LibraryRequest:
    """Read a request; ``None`` says nothing. The names are those of :class:`LibraryRequest`."""
    if unknown := words.keys() - WORDS.keys():
        raise not_one_of(min(unknown), "an option of a library", WORDS)
    return LibraryRequest(**{name: WORDS[name].read(word) for name, word in words.items() if word is not None})


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


def _architectures() -> list[str]:
    known = (row.architecture for row in known_architectures())
    return ["native", "universal", "list", *(str(one) for one in known if one >= oldest_gpu())]


def _targets() -> list[str]:
    from flashdepot.toolchain.targets import TARGETS  # noqa: PLC0415

    return [str(row) for row in TARGETS]


class Word(msgspec.Struct, frozen=True):
    """How one field of a request is said: on the command line, in ``flashdepot.toml`` and in a matrix file.

    :param read: makes its value of a text; :raises UsageError: for one that is not known.
    :param values: those that are known by name, for the shell to complete.
    """

    read: Callable[[str], Any]
    metavar: str
    help: str
    values: Callable[[], Iterable[str]] = tuple


WORDS: Mapping[str, Word] = {
    "upstream": Word(
        str,
        "VERSION|DIR|git+URL@REF",
        "flash-attn version, source folder or git commit.  [default: the newest known version]",
        lambda: default_family().sources.known_versions(),  # noqa: PLW0108  (reads a table)
    ),
    "profile": Word(
        selection.parse_profile,
        "full|training|inference|quick",
        "Named selection.  [default: full]",
        lambda: selection.PROFILES,
    ),
    "arch": Word(
        _parse_arch,
        "native|universal|80,90,...",
        "GPU architectures to serve; 'list' shows them.  [default: native]",
        _architectures,
    ),
    "passes": Word(
        selection.parse_passes,
        "fwd,splitkv,bwd",
        "Passes to include, instead of the profile's.",
        lambda: (member.value for member in selection.Pass),
    ),
    "head_dims": Word(
        selection.parse_head_dims,
        "64,128,...",
        "Head dims to include, instead of the profile's.",
        lambda: map(str, sorted({unit.head_dim for unit in default_family().full()})),
    ),
    "dtypes": Word(
        selection.parse_dtypes,
        "bf16,fp16",
        "Element types to include, instead of the profile's.",
        lambda: (member.value for member in selection.Dtype),
    ),
    "features": Word(
        selection.parse_features,
        "a,b|none|all",
        "Features to include: dropout, alibi, softcap, local, uneven_k; instead of the profile's.",
        lambda: [*(member.value for member in selection.Feature), "none", "all"],
    ),
    "families": Word(
        parse_families,
        "fa2|fa3|fa4|all",
        "Families of kernels: FlashAttention-2, FlashAttention-4 (Hopper), both (all), and FlashAttention-3 for FP8 and "
        "absorbed MLA (Hopper).  [default: fa2; with full, all]",
        lambda: [*(family.name for family in FAMILIES), ALL],
    ),
    "cuda": Word(_parse_cuda, "auto|13.0|DIR", "Which nvcc builds.  [default: auto]"),
    "target": Word(
        _parse_target,
        "linux-x86_64|linux-aarch64|windows-x86_64",
        "Build for this system, without a compiler or toolkit of this machine.",
        _targets,
    ),
}
"""One for each field of :class:`LibraryRequest`."""

KEYS = tuple(name.replace("_", "-") for name in WORDS)
"""The same as keys of a file."""


NAME = "flashdepot.toml"
REMOTE = "remote"
BUILD = "build"
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

        :param over: what is asked on the command line: it comes first, and the file's own is not used.
        """
        used = (over or LibraryRequest()).or_else(self.asked)
        found = [f"{self.planted[:1].upper()}{self.planted[1:]}."] if self.planted else []
        if isinstance(self.asked.cuda, Path) and used.cuda is self.asked.cuda:
            found.append(f"It runs the compiler in {self.asked.cuda}.")
        if (upstream := self.asked.upstream) and used.upstream is upstream:
            published = (version for family in FAMILIES for version in family.sources.known_versions())
            found += [] if upstream in published else [f"It takes the source from {upstream}."]
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
    trusted = (
        "anyone who has made them" if remote.unsigned else f"signed by {signers}" if signers else "signed by your keys"
    )
    more = ", and gives it what you build" if remote.push else ""
    return f"It takes libraries from {remote.url}, {trusted}{more}."


def word_of(value: Any, key: str, path: Path) -> str:
    """A text or a number of a file; a list of these is joined by commas, as the command line has it."""
    members = value if isinstance(value, list) else [value]
    if not members or not all(isinstance(word, (str, int, float)) and not isinstance(word, bool) for word in members):
        raise UsageError(f"{path}: '{key}' must be texts or numbers, or lists of these.")
    return ",".join(map(str, members))


def require_known(table: Iterable[str], known: Sequence[str], path: Path, where: str = "of this file") -> None:
    """Refuse a table with a key that it cannot have."""
    for key in table:
        if key not in known:
            raise UsageError(f"{path}: {not_one_of(key, f'a key {where}', known)}")


def _read(asked: Mapping[str, Any], path: Path) -> LibraryRequest:
    require_known(asked, (*KEYS, BUILD, REMOTE), path)
    words = {key.replace("-", "_"): word_of(value, key, path) for key, value in asked.items()}
    for key in ("upstream", "cuda"):
        word = words.get(key, "")
        if word.startswith(".") or ("/" in word and not word.startswith("git+")):
            words[key] = str((path.parent / Path(word).expanduser()).resolve())
    try:
        return library_request(**words)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


def require_trust(project: Project, consents: Consents, objections: Sequence[str]) -> None:
    """Refuse a project file that asks for more than its user has allowed."""
    if objections and not consents.given(project.path, project.digest):
        raise UsageError(
            f"{project.path} is not used, because you have not trusted it. {' '.join(objections)}",
            hint=f"Read it. If you trust it, as it is now: flashdepot trust {joined([project.path])}",
        )


def trusted_remotes(folder: Path) -> tuple[RemoteSettings, ...]:
    """The remotes of the nearest project file, from a folder upwards."""
    path = find_project(folder)
    project = read_project(path) if path is not None else None
    if project is None or not project.remotes:
        return ()
    from flashdepot.files.trust import users_consents  # noqa: PLC0415  (most project files need none)

    require_trust(project, users_consents(), project.objections())
    return project.remotes
