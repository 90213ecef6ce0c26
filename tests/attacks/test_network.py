"""Servers that lie, talk without end, or want a secret."""

import contextlib
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest
import requests

from flashdepot.catalog.load import Catalog, Collection
from flashdepot.catalog.matrix_page import page
from flashdepot.catalog.pages import PageToken
from flashdepot.catalog.refresh import Source, refresh
from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.model.candidate import PublishedWheel
from flashdepot.model.codec import read
from flashdepot.net.fetch import fetch
from support.servers import Handler, serving
from support.tools import PEAK, run_program

NAME = "demo-1.0.tar.gz"
DIGEST = "0" * 64
JSON = "application/vnd.pypi.simple.v1+json"
Body = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Liar:
    """What is answered to every request, and the requests that came with their headers."""

    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    body: Body = lambda _: None
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)


@pytest.fixture
def liar(monkeypatch: pytest.MonkeyPatch) -> Iterator[Liar]:
    liar = Liar()

    class Misleading(Handler):
        def do_GET(self) -> None:  # noqa: N802  (the name that http.server calls)
            liar.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            self.send_response(liar.status)
            for name, value in liar.headers.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(OSError):
                liar.body(self)

    with serving(Misleading) as liar.url:
        monkeypatch.setenv("PIP_INDEX_URL", f"{liar.url}/simple/")
        yield liar


def says(text: bytes) -> Body:
    return lambda handler: handler.wfile.write(text) and None


def endless(text: bytes, most: int = 1 << 30) -> Body:
    """Text without end, as far as a test lets it continue."""

    def body(handler: BaseHTTPRequestHandler) -> None:
        for _ in range(most // len(text)):
            handler.wfile.write(text)
        raise AssertionError("it was read to its end")

    return body


def bomb(begin: bytes, again: bytes, size: int) -> bytes:
    """``again`` and again, a few megabytes of gzip that become that many bytes."""
    press = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = again * ((1 << 20) // len(again))
    return b"".join([press.compress(begin), *(press.compress(block) for _ in range(size // len(block))), press.flush()])


MEASURE = f"""
import sys
from pathlib import Path
from flashdepot.errors import FlashdepotError
from flashdepot.net.fetch import fetch
try:
    fetch("demo", sys.argv[1], "0" * 64, Path(sys.argv[2]))
except FlashdepotError as error:
    print(error.exit_code, {PEAK}, error.message)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from Linux's /proc")
@pytest.mark.parametrize(
    ("kind", "begin", "again"),
    [(JSON, b"[", b" "), (JSON, b"[", b"[],"), ("text/html", b"<html>", b"<a>"), ("text/html", b"", b"x")],
)
def test_an_index_page_that_unpacks_to_gigabytes_is_read_as_far_as_a_page_goes(
    liar, tmp_path, kind, begin, again
) -> None:
    liar.headers = {"Content-Type": kind, "Content-Encoding": "gzip"}
    liar.body = says(bomb(begin, again, 1 << 29))
    code, kilobytes, message = run_program([sys.executable, "-c", MEASURE, NAME, str(tmp_path / NAME)]).split(" ", 2)
    assert code == "7"
    assert "is not a package index" in message
    assert int(kilobytes) < 300_000


def test_an_index_page_without_end_is_left(liar, tmp_path) -> None:
    liar.headers = {"Content-Type": JSON}
    liar.body = endless(b" " * 65536)
    with pytest.raises(NetworkError, match="more than 16 MiB"):
        fetch("demo", NAME, DIGEST, tmp_path / NAME)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (JSON, "[" * 100_000),
        (JSON, '{"a":' * 100_000),
        (JSON, '{"meta": {"api-version": "1.0"}, "name": "demo", "files": [1e999]}'),
        (JSON, '{"meta": {"api-version": "1.0"}, "name": "demo", "files": {"a": NaN}}'),
        (JSON, '{"meta": 7, "name": [], "files": null}'),
        (JSON, "null"),
        ("text/html", "<div>" * 50_000),
        ("text/html", "<a href='http://[' >x</a>"),
        ("application/pdf", "%PDF"),
    ],
)
def test_a_page_that_makes_no_sense_is_refused_in_a_sentence(liar, tmp_path, kind, text) -> None:
    liar.headers = {"Content-Type": kind}
    liar.body = says(text.encode())
    with pytest.raises(NetworkError, match=r"package index"):
        fetch("demo", NAME, DIGEST, tmp_path / NAME)


def test_a_body_without_end_stops_at_the_size_that_the_index_tells(liar, tmp_path) -> None:
    files = [{"filename": NAME, "url": f"/files/{NAME}", "hashes": {"sha256": DIGEST}, "size": 100_000}]
    index = json.dumps({"meta": {"api-version": "1.1"}, "name": "demo", "files": files}).encode()
    forever = endless(b"x" * 65536)
    liar.headers = {"Content-Type": JSON}
    liar.body = lambda handler: forever(handler) if "/files/" in handler.path else says(index)(handler)
    with pytest.raises(IntegrityError, match="expected 100000"):
        fetch("demo", NAME, DIGEST, tmp_path / NAME)


def source(listing: str, **fields: str) -> Source:
    row = {"name": "evil", "kind": "community", "format": "github-releases", "listing": listing, "licence": ""}
    return read({**row, "files": "", "page": listing, **fields}, Source)


NOTHING = Catalog((), (), ())


def test_the_token_of_github_is_not_sent_to_a_server_that_a_depot_calls_github(liar, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "s3cret")
    liar.headers, liar.body = {"Content-Type": "application/json"}, says(b"[]")
    outcome = next(refresh([source(f"{liar.url}/repos/o/r/releases")], NOTHING, tmp_path))
    assert outcome.error is None
    assert "s3cret" not in str(liar.seen)
    assert "authorization" not in liar.seen[0][1]


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://api.github.com/repos/o/r/releases", True),
        ("http://api.github.com/repos/o/r/releases", False),
        ("https://api.github.com.evil.org/", False),
        ("https://api.github.com@evil.org/", False),
        ("https://api.github.com:8443/", False),
        ("https://evil.org/https://api.github.com/", False),
    ],
)
def test_a_token_goes_to_its_own_server_over_https_only(url, sent) -> None:
    request = requests.Request("GET", url, auth=PageToken("https://api.github.com", "s3cret")).prepare()
    assert ("Authorization" in request.headers) == sent


def test_a_token_is_not_taken_along_by_a_redirect(liar) -> None:
    token = PageToken(liar.url, "s3cret")
    elsewhere = liar.url.replace("127.0.0.1", "localhost")
    liar.status, liar.headers = 302, {"Location": f"{elsewhere}/other"}
    with requests.Session() as session, contextlib.suppress(requests.TooManyRedirects):
        session.auth, session.max_redirects, session.trust_env = token, 1, False
        session.get(f"{liar.url}/first")
    assert "authorization" in liar.seen[0][1]
    assert all("authorization" not in headers for path, headers in liar.seen if path == "/other")


def test_a_listing_that_unpacks_to_gigabytes_is_left(liar, tmp_path) -> None:
    liar.headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    liar.body = says(bomb(b"[", b" ", 1 << 28))
    outcome = next(refresh([source(f"{liar.url}/repos/o/r/releases")], NOTHING, tmp_path))
    assert "more than 64 MiB" in str(outcome.error)


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)//x-1-py3-none-any.whl", "JavaScript:x", "data:text/html,x", " javascript:x"]
)
def test_an_address_that_runs_a_script_is_not_a_link_on_the_page(address) -> None:
    tags = ("cp312", "cp312", "linux_x86_64")
    wheel = PublishedWheel("flash-attn", "2.8.3", "12", "2.8", True, *tags, "evil", address, 1, "", True, (), "")
    unseen = wheel._replace(seen=False)
    written = page(
        Catalog((wheel, unseen), (Collection("evil", "community", address, "", "2026-11-21T00:00:00Z"),), ())
    )
    assert "script:" not in written.lower()
    assert "data:text" not in written.lower()


def test_a_source_whose_page_is_a_script_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a URL"):
        source("https://example.org/", page="javascript:alert(1)")
