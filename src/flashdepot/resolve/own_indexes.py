"""Wheels of our index (``flashdepot index``) as candidates.

One file of it says what decides whether each fits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from flashdepot.errors import IntegrityError, NetworkError, UsageError
from flashdepot.fit.needs import DriverNeed
from flashdepot.fit.rules import ask
from flashdepot.model.candidate import Candidate, Judged, Origin, PublishedWheel, WheelRequest
from flashdepot.model.diagnosis import Diagnosis, Reasons, Verdict, verdict_of
from flashdepot.model.index_record import RECORD_NAME, IndexedWheel, IndexRecord
from flashdepot.model.selection import Selection
from flashdepot.model.wheel import FLASH_ATTN, INDEX, WheelName, version_key
from flashdepot.resolve.rules import judge
from flashdepot.resolve.times import fetch_seconds

_LONGEST = 64 << 20
_ELSEWHERE = "name another source: --source index:https://..., or a folder: --source index:DIR"
_FILES = "files"


def index_source(text: str) -> str:
    """The source ``index:ADDRESS`` as it is compared and locked: an address with a slash at its end."""
    place = text.removeprefix(INDEX)
    if "://" not in place:
        if not (Path(place) / RECORD_NAME).is_file():
            raise UsageError(
                f"There is no index in {place or 'that folder'}: {RECORD_NAME} is not there.", hint=_hint("a folder")
            )
        return f"{INDEX}{Path(place).absolute().as_uri()}/"
    parts = urlsplit(place)
    if parts.scheme not in {"https", "http", "file"} or not place.isascii() or not place.isprintable() or " " in place:
        raise UsageError(f"'{place}' is not the address of an index.", hint=_hint("https://..."))
    if parts.username or parts.password:
        raise UsageError(
            "An index's address must not hold a password: it would be written into locks.",
            hint="Put it into ~/.netrc (machine, login, password), where pip and uv find it too.",
        )
    return f"{INDEX}{parts._replace(query='', fragment='').geturl().rstrip('/')}/"


def index_candidates(request: WheelRequest, wanted: Sequence[Selection]) -> Iterator[Judged]:
    """Of each index that is named: the wheels that may fit, by the first selection that any can do, else the nearest one."""
    for source in sorted(source for source in request.sources if source.startswith(INDEX)):
        address = source.removeprefix(INDEX)
        rows = [row for row in read_index_record(address).wheels if row.distribution == FLASH_ATTN]
        judged = [[_judged(request, row, source, selection) for row in rows] for selection in wanted]
        fitting = ([found for found in some if found.verdict is not Verdict.MISFIT] for some in judged)
        if best := next(filter(None, fitting), []):
            yield from best
        elif rows:
            yield max(judged[-1], key=lambda one: (-len(one.reasons), version_key(one.candidate.wheel.version)))


def read_index_record(address: str) -> IndexRecord:
    """What an index holds, by its address."""
    url = f"{address}{RECORD_NAME}"
    try:
        body = _read(address, RECORD_NAME)
        record = IndexRecord.from_json(json.loads(body))
    except (OSError, ValueError, RecursionError) as error:
        raise NetworkError(f"{url} is not the list of our index: {error}.", hint=_hint("its address")) from error
    _require_signed(address, body)
    return record


def _require_signed(address: str, body: bytes) -> None:
    """Anyone who ever trusted a key takes no index that none of their keys has signed, unless they said so of this one."""
    from flashdepot.remotes.user_settings import UserSettings  # noqa: PLC0415

    settings = UserSettings.of_this_user()
    if not settings.needs_signature(address):
        return
    from flashdepot.net.errors import NotThereError  # noqa: PLC0415
    from flashdepot.remotes.trust import ENDING, read_envelopes, refusal_of_index  # noqa: PLC0415  (securesystemslib)

    url = f"{address}{RECORD_NAME}"
    try:
        signed = read_envelopes(_read(address, f"{RECORD_NAME}{ENDING}"))
    except (NotThereError, FileNotFoundError):
        signed = []
    except OSError as error:
        raise NetworkError(f"{url}{ENDING} cannot be read: {error.strerror}.", hint=_ELSEWHERE.capitalize()) from error
    if refused := refusal_of_index(address, RECORD_NAME, body, signed, settings):
        raise IntegrityError(
            f"{url} is not trusted: {refused.reason}.",
            hint=f"{refused.hint}\nTo take this index without signatures: flashdepot keys unsigned {address}",
        )


def _read(address: str, name: str) -> bytes:
    parts = urlsplit(address)
    return Path(url2pathname(parts.path), name).read_bytes() if parts.scheme == "file" else _fetched(f"{address}{name}")


def _fetched(url: str) -> bytes:
    from flashdepot.net.errors import network_errors  # noqa: PLC0415
    from flashdepot.net.fetch import require_network  # noqa: PLC0415
    from flashdepot.net.index import PAGE_TIMEOUTS  # noqa: PLC0415  (half a second of imports)
    from flashdepot.net.transport import open_session, read_body, read_index_settings  # noqa: PLC0415
    from flashdepot.net.waiting import within  # noqa: PLC0415

    require_network(f"Reading {url}")
    settings = read_index_settings()

    def fetched() -> bytes:
        with open_session(url, settings) as session, session.get(url, timeout=settings.timeout, stream=True) as answer:
            answer.raise_for_status()
            return read_body(answer, _LONGEST)

    with network_errors(url.rpartition("/")[2], url, _ELSEWHERE):
        return within(PAGE_TIMEOUTS * settings.timeout, url, fetched)


def _judged(request: WheelRequest, row: IndexedWheel, source: str, wanted: Selection) -> Judged:
    """A wheel by every rule; its manifest tells the oldest driver, and what it can do."""
    wheel = _published(row, source)
    reasons = [reason for reason in judge(request, wheel) if reason.id != "driver"]
    driver = ask("driver", request.facts, DriverNeed(str(row.cuda), row.driver_floor))
    found: Reasons = (*reasons, *filter(None, (driver, _lacks(row, wanted))))
    seconds = fetch_seconds(row.size)
    candidate = Candidate(Origin.INDEX, row.filename, wheel, seconds, row.size, size_known=True)
    return Judged(candidate, verdict_of(found), found)


def _lacks(row: IndexedWheel, wanted: Selection) -> Diagnosis | None:
    if more := sorted(set(row.families) - set(wanted.families)):
        text = f"It has kernels of {', '.join(more)} too, which were not asked for."
        fix = 'Ask for them: families = "all" in flashdepot.toml.'
        return Diagnosis.misfit("selection", ", ".join(more), row.version, text, fix)
    missing = sorted({*map(str, wanted.units)} - row.units) + sorted(f.value for f in wanted.features - row.features)
    if not missing:
        return None
    text = f"It lacks {len(missing)} of the kernels and features that are wanted, such as {missing[0]}."
    fix = "Ask for less (--profile inference, say), or publish a wheel that has them."
    return Diagnosis.misfit("selection", missing[0], row.version, text, fix)


def _published(row: IndexedWheel, source: str) -> PublishedWheel:
    return PublishedWheel.of(
        WheelName.parse(row.filename),
        source,
        cuda=str(row.cuda),
        torch="",
        cxx11_abi=None,
        url=f"{source.removeprefix(INDEX)}{_FILES}/{quote(row.filename)}",
        size=row.size,
        sha256=row.sha256,
        seen=True,
        sass=tuple(map(str, row.sass)),
    )


def _hint(what: str) -> str:
    return f"Name {what} that 'flashdepot index' wrote: --source index:https://wheels.example.org/"
