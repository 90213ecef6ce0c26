import base64
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest
import requests

from flashdepot.errors import IntegrityError, MissingToolError, NetworkError
from flashdepot.net.download import Downloaded, Remote
from flashdepot.net.errors import retry_after
from flashdepot.net.fetch import fetch_url
from flashdepot.net.transport import IndexSettings, open_session
from support.servers import Fault, FileServer, serve_files
from support.tools import KILL

CONTENT = os.urandom(300_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
CHANGED = os.urandom(300_000)
PATH = "/wheels/demo.whl"
ALWAYS = 99

Get = Callable[..., Downloaded]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr("flashdepot.net.errors.WAITS", (0.0, 0.0))
    with serve_files() as found:
        found.files[PATH] = CONTENT
        yield found


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def get(server: FileServer, tmp_path: Path, notes: list[str]) -> Get:
    """Download the file, with its digest known unless said otherwise."""

    def run(sha256: str = DIGEST, size: int = 0, path: str = PATH, **options: object) -> Downloaded:
        place = tmp_path / "depot" / "demo.whl"
        remote = Remote(server.url + path, sha256, size)
        return fetch_url(remote, place, elsewhere="name another.", on_note=notes.append, **options)  # type: ignore[arg-type]

    return run


def hidden(folder: Path) -> int:
    """The bytes that are kept for a later try."""
    return sum(path.stat().st_size for path in folder.glob(".*.download.tmp"))


@pytest.mark.parametrize("validator", ["etag", "date", "weak", "none"])
@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_a_connection_that_drops_twice_costs_only_what_was_lost(server, get, ranges, validator) -> None:
    server.ranges, server.validator = ranges, validator
    server.faults = [Fault(drop_after=100_000), Fault(drop_after=90_000)]
    done = get()
    assert done.path.read_bytes() == CONTENT
    assert (done.sha256, done.size) == (DIGEST, len(CONTENT))
    starts = [int((asked or "bytes=0-")[6:-1]) for _, asked in server.seen]
    assert starts[0] < starts[1]
    if ranges:
        assert starts[1] < starts[2]
        assert done.fetched == len(CONTENT)


@pytest.mark.parametrize(("validator", "starts_again"), [("etag", False), ("date", False), ("none", True)])
def test_without_a_digest_only_a_validator_lets_it_continue(server, get, validator, starts_again) -> None:
    server.validator = validator
    server.faults = [Fault(drop_after=200_000)]
    assert get(sha256="").sha256 == DIGEST
    assert (server.seen[1][1] is None) == starts_again


def test_the_next_run_continues_where_the_last_was_stopped(server, get, tmp_path) -> None:
    server.faults = [Fault(drop_after=200_000), *[Fault(status=503)] * ALWAYS]
    with pytest.raises(NetworkError, match="answers 503"):
        get()
    kept = hidden(tmp_path / "depot")
    assert 100_000 < kept <= 200_000
    server.faults, server.seen = [], []
    assert get().fetched == len(CONTENT) - kept
    assert server.seen == [(PATH, f"bytes={kept}-")]
    assert [p.name for p in (tmp_path / "depot").iterdir()] == ["demo.whl"]


@pytest.mark.parametrize("digest", [DIGEST, ""], ids=["digest known", "digest unknown"])
@pytest.mark.parametrize("validator", ["etag", "date"])
def test_a_file_that_changed_meanwhile_is_never_joined_with_its_old_beginning(
    server, get, tmp_path, validator, digest
) -> None:
    server.validator = validator
    server.files[PATH] = CHANGED
    server.faults = [Fault(drop_after=200_000), *[Fault(status=503)] * ALWAYS]
    with pytest.raises(NetworkError):
        get(sha256=digest)
    server.files[PATH], server.faults, server.seen = CONTENT, [], []
    assert get(sha256=digest).sha256 == DIGEST
    assert len(server.seen) == 1, "If-Range had the server send all of it"


def test_a_beginning_that_does_not_belong_to_the_file_is_thrown_away_once(server, get, tmp_path, notes) -> None:
    server.faults = [Fault(drop_after=200_000), *[Fault(status=503)] * ALWAYS]
    with pytest.raises(NetworkError):
        get()
    (part,) = (tmp_path / "depot").glob(".*.download.tmp")
    part.write_bytes(os.urandom(part.stat().st_size))
    server.faults = []
    assert get().path.read_bytes() == CONTENT
    assert "starting again" in notes[-1]


def test_what_was_received_whole_is_not_asked_for_again(server, get, tmp_path) -> None:
    assert get().fetched == len(CONTENT)
    server.seen = []
    assert get().fetched == 0
    assert server.seen == []
    (tmp_path / "depot" / "demo.whl").rename(tmp_path / "depot" / ".demo.whl.download.tmp")
    (tmp_path / "depot" / ".demo.whl.origin.tmp").write_text(f'{{"url": "{server.url}{PATH}", "validator": ""}}')
    assert get().fetched == 0
    assert server.seen == [(PATH, f"bytes={len(CONTENT)}-")]


@pytest.mark.parametrize("answer", ["bytes 0-299999/300000", "bytes 5-9/300000", "bytes 200000-299999/*", "nonsense"])
def test_another_range_than_was_asked_for_is_refused(server, get, tmp_path, answer) -> None:
    server.faults = [Fault(drop_after=200_000), Fault(content_range=answer)]
    with pytest.raises(IntegrityError, match=r"was asked for demo.whl from byte \d+ on and sent") as caught:
        get()
    assert answer in caught.value.message
    assert hidden(tmp_path / "depot") == 0
    assert get().sha256 == DIGEST


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sha256": "0" * 64}, f"its SHA-256 is {DIGEST}, expected {'0' * 64}"),
        ({"size": 299_999}, "has 300000 bytes, expected 299999"),
        ({"size": 300_001}, "has 300000 bytes, expected 300001"),
    ],
)
@pytest.mark.parametrize("ranges", [True, False])
def test_another_file_than_the_expected_is_refused_and_not_kept(server, get, tmp_path, ranges, options, said) -> None:
    server.ranges = ranges
    with pytest.raises(IntegrityError) as caught:
        get(**options)
    assert said in caught.value.message
    assert list((tmp_path / "depot").glob("[!.]*")) == []
    assert hidden(tmp_path / "depot") == 0
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("headers", "expected", "said"),
    [
        ({"Content-Length": "", "Connection": "close"}, {"size": len(CONTENT)}, "has 2 bytes, expected 300000"),
        ({"Content-Length": str(9 << 30)}, {}, f"has {9 << 30} bytes, expected at most {8 << 30}"),
    ],
)
def test_a_body_is_held_to_the_size_that_was_published_or_to_that_of_any_wheel(
    server, get, headers, expected, said
) -> None:
    server.faults = [Fault(status=200, headers=headers)]
    with pytest.raises(IntegrityError, match=said):
        get(**expected)
    assert len(server.seen) == 1


@pytest.mark.parametrize("code", [404, 410])
def test_a_file_that_is_gone_is_reported_at_once(server, get, code) -> None:
    server.faults = [Fault(status=code)]
    with pytest.raises(NetworkError, match=f"answers {code}") as caught:
        get()
    assert "taken away: name another." in caught.value.hint
    assert len(server.seen) == 1


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_server_is_waited_for_as_long_as_it_asks(server, get, notes, monkeypatch, code) -> None:
    slept: list[float] = []
    monkeypatch.setattr("flashdepot.net.errors.time.sleep", slept.append)
    server.faults = [Fault(status=code, headers={"Retry-After": "7"})]
    assert get().sha256 == DIGEST
    assert 7 in slept
    assert f"answers {code}" in notes[0]
    assert "in 7 s" in notes[0]


def test_a_server_that_asks_for_an_hour_is_not_waited_for(server, get) -> None:
    server.faults = [Fault(status=429, headers={"Retry-After": "3600"})]
    with pytest.raises(NetworkError, match="answers 429 Too Many Requests and asks to come back in 3600 s"):
        get()
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7), (" 7 ", 7), ("30 s from now", 30), ("-5", 0), ("soon", 0), ("", 0), ("9" * 5000, 0)],
)
def test_the_time_to_wait_is_a_number_or_a_date(value, seconds) -> None:
    response = requests.Response()
    date = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=30))
    response.headers["Retry-After"] = date if "from now" in value else value
    assert retry_after(requests.HTTPError(response=response)) == pytest.approx(seconds, abs=5 if seconds == 30 else 0)


def test_a_redirect_is_followed_and_the_rest_is_fetched_through_it(server, get) -> None:
    to = Fault(status=302, headers={"Location": PATH})
    server.faults = [to, Fault(drop_after=200_000), to]
    assert get(path="/latest.whl").sha256 == DIGEST
    assert [path for path, _ in server.seen] == ["/latest.whl", PATH, "/latest.whl", PATH]


@pytest.mark.parametrize(
    ("old", "new", "is_refused"),
    [
        ("https://a.example/x.whl", "http://a.example/x.whl", True),
        ("https://a.example/x.whl", "file:///etc/passwd", True),
        ("http://a.example/x.whl", "file:///etc/passwd", True),
        ("https://a.example/x.whl", "//b.example/x.whl", False),
        ("http://a.example/x.whl", "https://a.example/x.whl", False),
    ],
)
def test_a_redirect_never_leads_off_https_nor_to_a_local_file(old, new, is_refused) -> None:
    session = open_session(old, IndexSettings())
    response = requests.Response()
    response.status_code, response.url = 302, old
    response.headers["Location"] = new
    (hook,) = session.hooks["response"]
    if is_refused:
        with pytest.raises(requests.exceptions.InvalidURL, match="which is refused"):
            hook(response)
    else:
        hook(response)


def test_credentials_stay_with_the_server_that_they_are_for(server, get, monkeypatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", server.url.replace("://", "://me:s3cret@") + "/simple")
    server.authorization = "Basic " + base64.b64encode(b"me:s3cret").decode()
    assert get().sha256 == DIGEST
    with serve_files() as other:
        other.files[PATH] = CONTENT
        other.authorization = server.authorization
        server.faults = [Fault(status=302, headers={"Location": other.url.replace("127.0.0.1", "localhost") + PATH})]
        with pytest.raises(NetworkError, match="answers 401"):
            get(sha256="")


def test_an_address_with_a_password_is_never_shown(server, tmp_path) -> None:
    server.faults = [Fault(status=403)]
    remote = Remote(server.url.replace("://", "://me:s3cret@") + PATH)
    with pytest.raises(NetworkError, match="answers 403") as caught:
        fetch_url(remote, tmp_path / "demo.whl", elsewhere="name another.")
    assert "s3cret" not in caught.value.message + caught.value.hint


def test_offline_says_so_and_asks_nobody(server, get, monkeypatch) -> None:
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    with pytest.raises(NetworkError, match=r"Fetching demo.whl needs the network, and --offline or FLASHDEPOT_OFFLINE"):
        get()
    assert server.seen == []


def test_a_disk_that_cannot_hold_it_is_named_before_anything_comes(server, get, tmp_path, monkeypatch) -> None:
    class Usage:
        free = 1000

    monkeypatch.setattr("flashdepot.net.download.shutil.disk_usage", lambda _: Usage)
    with pytest.raises(MissingToolError, match=r"needs 0.3 MB more, and the disk of .* has 0.0 MB free"):
        get()
    assert hidden(tmp_path / "depot") == 0


PROCESS = """
import sys
from pathlib import Path
from flashdepot.net.download import Remote
from flashdepot.net.fetch import fetch_url
said = lambda text: print(text, flush=True)
begun = lambda done, total: said("begun") if done else None
done = fetch_url(Remote(sys.argv[1], sys.argv[2]), Path(sys.argv[3]), elsewhere="", on_progress=begun, on_note=said)
said(f"fetched {done.fetched}")
"""


def start(server: FileServer, tmp_path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS, server.url + PATH, DIGEST, str(tmp_path / "depot" / "demo.whl")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"it ended without saying '{words}'")


def test_two_processes_fetch_a_file_once(server, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PIP_TIMEOUT", "300")
    server.resumed.clear()
    with start(server, tmp_path) as first:
        read_until(first, "begun")
        with start(server, tmp_path) as second:
            read_until(second, "Another process is fetching demo.whl: waiting for it.")
            server.resumed.set()
            assert "fetched 300000" in read_until(first, "fetched")
            assert "fetched 0" in read_until(second, "fetched")
    assert len(server.seen) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, KILL])
def test_what_a_stopped_process_had_received_is_not_lost(server, get, tmp_path, number) -> None:
    server.pace = 0.05
    with start(server, tmp_path) as process:
        for _ in range(3):
            read_until(process, "begun")
        os.kill(process.pid, number)
        process.wait()
    server.pace = 0.0
    kept = hidden(tmp_path / "depot")
    assert kept > 0
    done = get()
    assert (done.sha256, done.fetched) == (DIGEST, len(CONTENT) - kept)


def test_a_server_that_falls_silent_is_left_after_the_timeout_of_pip(server, get, monkeypatch) -> None:
    monkeypatch.setenv("PIP_TIMEOUT", "0.2")
    server.pace = 1.0
    began = time.monotonic()
    with pytest.raises(NetworkError, match=r"cannot be reached \(.*timed out"):
        get()
    assert time.monotonic() - began < 30
