"""The folder of an index: our wheels as it holds them, and every file of it, signed, written at once or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.binary.wheel import read_wheel
from flashdepot.errors import FlashdepotError, IncompatibleError, IntegrityError, UsageError
from flashdepot.files.disk import sha256_file
from flashdepot.files.output_folder import OutputFolder
from flashdepot.files.user_files import OutputFile
from flashdepot.index.page import FILES, document_text, page, simple_pages
from flashdepot.index.subindexes import Subindex, subindexes
from flashdepot.model.index_record import RECORD_NAME, IndexedFile, IndexedWheel, IndexRecord
from flashdepot.model.manifest import Manifest
from flashdepot.model.wheel import FLASH_ATTN, WheelName
from flashdepot.remotes.keys import SigningKey
from flashdepot.remotes.statements import Edition, IndexStatement
from flashdepot.remotes.trust import ENDING, LONGEST, Envelope, read_envelopes, write_envelopes
from flashdepot.resolve.own_wheel_name import wheel_name
from flashdepot.wheel import NAMES
from flashdepot.wheel.builder import JAX_PACKAGE, jax_wheel_name


class LocalFile(msgspec.Struct, frozen=True):
    """A wheel file with its row in the record and its METADATA; a small wheel is no more than that."""

    path: Path
    row: IndexedFile
    metadata: bytes

    @property
    def name(self) -> str:
        """Its file name."""
        return self.row.filename


class LocalWheel(LocalFile, frozen=True):
    """A wheel with a library, and the bytes of the library's manifest."""

    row: IndexedWheel
    origin: bytes


def read_local(path: Path, uploaded: str, *, thoroughly: bool = True) -> LocalFile:
    """Read a wheel that flashdepot made, with a library or a small one; ``thoroughly``: every byte, by its RECORD."""
    name = WheelName.parse(path.name)
    small = name.canonical in NAMES
    if small and not name.local.startswith("flashdepot."):
        raise _not_ours(path, "its version does not end in +flashdepot")
    if thoroughly and (problems := read_wheel(path, lambda *_: None).problems):
        raise UsageError(f"{path} is not as it was made: {problems[0]}.", hint="Make it again: flashdepot wheel")
    with zipfile.ZipFile(path) as archive:
        folder = f"{name.distribution}-{name.full_version}.dist-info"
        try:
            metadata = archive.read(f"{folder}/METADATA")
            origin = b"" if small else archive.read(f"{folder}/flashdepot.json")
            manifest = None if small else Manifest.from_json(json.loads(origin))
        except (KeyError, ValueError) as error:
            raise _not_ours(path, str(error)) from error
    of_file: dict[str, Any] = {
        "filename": path.name,
        "sha256": sha256_file(path),
        "size": path.stat().st_size,
        "uploaded": uploaded,
        "metadata_sha256": hashlib.sha256(metadata).hexdigest(),
        "version": name.full_version,
    }
    if manifest is None:
        return LocalFile(path, IndexedFile(**of_file), metadata)
    made = jax_wheel_name(manifest) if name.distribution == JAX_PACKAGE else wheel_name(manifest)
    if path.name != made:
        raise _not_ours(path, f"its manifest makes {made}")
    digest = hashlib.sha256(origin).hexdigest()
    row = IndexedWheel.of(manifest, manifest_sha256=digest, **of_file)
    return LocalWheel(path, row, metadata, origin)


def _not_ours(path: Path, why: str) -> FlashdepotError:
    return UsageError(
        f"{path} is not a wheel that this flashdepot makes ({why}), and our index holds no others.",
        hint="Make one: flashdepot wheel --out DIR",
    )


def _signed_record(data: bytes, earlier: Sequence[Envelope], key: SigningKey | None) -> list[Envelope]:
    """The envelopes of the index's record: those of the same bytes stay, and ours is new when half its time is over."""
    digest = hashlib.sha256(data).hexdigest()
    editions: list[Edition] = []
    kept = []
    for envelope in earlier:
        with contextlib.suppress(IntegrityError):
            statement = IndexStatement.read(envelope.payload)
            editions.append(statement.edition)
            if (statement.name, statement.digest) == (RECORD_NAME, digest) and envelope.signatures:
                kept.append((statement, envelope))
    if key is None:
        return [envelope for _, envelope in kept]
    others = [envelope for _, envelope in kept if not envelope.is_signed_by(key.public)]
    young = [envelope for statement, envelope in kept if envelope not in others and statement.edition.is_young]
    if not young:
        payload = IndexStatement(RECORD_NAME, digest, Edition.after(*editions)).payload()
        young = [Envelope(payload).signed(key)]
    return [*young, *others]


_LISTING = ".flashdepot-index"
_ELSEWHERE = "flashdepot index DIR"
_LONGEST_RECORD = 64 << 20


class IndexSite(msgspec.Struct, frozen=True):
    """An index that was written: its folder, what it holds, its subindexes, and the names of the wheels that are new."""

    path: Path
    record: IndexRecord
    subindexes: tuple[Subindex, ...]
    added: tuple[str, ...]


def write_site(
    folder: Path, offered: Sequence[Path], *, url: str, now: str, key: SigningKey | None, on_note: Callable[[str], None]
) -> IndexSite:
    """Add our wheels to the index in a folder, or begin one there.

    What the index held stays, with the times at which it came. The same wheels give the same bytes, and files that are
    right already are left as they are.

    :param url: the address that the folder is served under; that of the last time when empty.
    :param now: the time of what is new.
    :param key: what signs it, if there is a key; signatures that the index has of the same bytes stay.
    :param on_note: called with a sentence about a wheel that has gone.
    :raises UsageError: for a wheel that is not ours, or something of the user's in the way; nothing has changed then.
    :raises IntegrityError: for a damaged wheel or index; the same.
    :raises IncompatibleError: when there is no wheel at all.
    :raises MissingToolError: when the disk is full or may not be written; the same.
    """
    earlier = _earlier_record(folder)
    held = {wheel.name: wheel for wheel in _kept(folder, earlier, on_note)}
    before = {*held}
    for path in offered:
        _add(held, read_local(path, now))
    if not any(wheel.row.distribution == FLASH_ATTN for wheel in held.values()):
        raise IncompatibleError(
            f"There is no wheel for the index in {folder}.",
            hint="Make one, and run the same command again: flashdepot get",
        )
    wheels = [wheel for _, wheel in sorted(held.items()) if isinstance(wheel, LocalWheel)]
    small = [wheel for _, wheel in sorted(held.items()) if not isinstance(wheel, LocalWheel)]
    made = IndexRecord(tuple(wheel.row for wheel in wheels), url or earlier.url, tuple(name.row for name in small))
    shown = subindexes(made.wheels)
    record = document_text(made.to_json())
    files = [*_files([*wheels, *small], made, shown), OutputFile.of(RECORD_NAME, record)]
    if signed := _signed_record(record, _earlier_envelopes(folder), key):
        files.append(OutputFile.of(f"{RECORD_NAME}{ENDING}", write_envelopes(signed)))
    output = OutputFolder(folder, "index", _LISTING, _ELSEWHERE)
    return IndexSite(output.write(files), made, shown, tuple(sorted({*held} - before)))


def _add(held: dict[str, LocalFile], wheel: LocalFile) -> None:
    there = held.setdefault(wheel.name, wheel)
    if there.row.sha256 != wheel.row.sha256:
        raise UsageError(
            f"{wheel.path} has other bytes than the {wheel.name} of the index: SHA-256 {wheel.row.sha256}, there "
            f"{there.row.sha256}. A published file never changes.",
            hint="Make the wheel again with this flashdepot, or begin another index.",
        )


def _earlier_envelopes(folder: Path) -> list[Envelope]:
    """The envelopes that the index has of its own record; none where they cannot be read."""
    path = folder / f"{RECORD_NAME}{ENDING}"
    with contextlib.suppress(OSError, IntegrityError):
        if path.stat().st_size <= LONGEST:
            return read_envelopes(path.read_bytes())
    return []


def _earlier_record(folder: Path) -> IndexRecord:
    path = folder / RECORD_NAME
    try:
        if path.stat().st_size > _LONGEST_RECORD:
            raise ValueError("it is larger than 64 MB")  # noqa: TRY301
        return IndexRecord.from_json(json.loads(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return IndexRecord(())
    except (ValueError, RecursionError) as error:
        raise IntegrityError(
            f"{path} cannot be used: {error}.", hint="Restore it, or begin another index: flashdepot index DIR"
        ) from error


def _kept(folder: Path, earlier: IndexRecord, on_note: Callable[[str], None]) -> Iterable[LocalFile]:
    """The wheels of the index as it is; those whose files somebody has taken away are gone."""
    for row in (*earlier.wheels, *earlier.names):
        path = folder / FILES / row.filename
        if not path.is_file():
            on_note(f"{row.filename} is no longer in {folder / FILES}, and leaves the index.")
            continue
        found: LocalFile | None = None
        with contextlib.suppress(FlashdepotError, OSError, ValueError):
            found = read_local(path, row.uploaded, thoroughly=False)
        if found is None or found.row.sha256 != row.sha256:
            raise IntegrityError(
                f"{path} is not the file that was published: its SHA-256 should be {row.sha256}.",
                hint="Restore it, or remove it to take it out of the index, and run the same command again.",
            )
        yield found


def _files(wheels: Sequence[LocalFile], made: IndexRecord, shown: Sequence[Subindex]) -> list[OutputFile]:
    files: list[OutputFile] = []
    for wheel in wheels:
        place = f"{FILES}/{wheel.name}"
        files += [
            OutputFile(place, wheel.row.sha256, lambda path=wheel.path: path),  # type: ignore[misc]
            OutputFile.of(f"{place}.metadata", wheel.metadata),
        ]
        if isinstance(wheel, LocalWheel):
            files.append(OutputFile.of(f"{place}.manifest.json", wheel.origin))
    for subindex in shown:
        pages = simple_pages(subindex, made.names)
        files += [OutputFile.of(f"{subindex.name}/{place}", data) for place, data in pages.items()]
    files.append(OutputFile.of("index.html", page(made, shown).encode()))
    return files
