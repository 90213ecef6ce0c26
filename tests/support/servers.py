"""Web servers on this machine, which misbehave on request."""

import contextlib
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Answers with a body whose length is promised, and writes no log."""

    piece, pace = 1 << 14, 0.0
    """Bytes that are sent at once, and the seconds to wait after them."""

    def answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None, *, sent: int | None = None
    ) -> None:
        """Send the body, or so many bytes of it."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        body = b"" if self.command == "HEAD" else body[:sent]
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(body), self.piece):
                self.wfile.write(body[start : start + self.piece])
                time.sleep(self.pace)
                if 2 * start > len(body):
                    self.wait()

    def wait(self) -> None:
        """What happens behind the middle of a long body."""

    def start(self) -> int | None:
        """The byte that the client wants to begin with, if it asks for a range."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        return int(asked[1]) if asked else None

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # with the usual 5, clients that come ten at once wait a second for the next try


@contextlib.contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler] | Any) -> Iterator[str]:
    """Serve, and give the address, without a slash at its end."""
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Fault:
    """What one answer does instead of the right thing."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    drop_after: int | None = None
    """Close the connection after so many bytes of the body."""
    content_range: str = ""


@dataclass
class FileServer:
    """``files`` by path; ``faults`` are used up, one a request; ``seen`` has the path and Range of each request."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    ranges: bool = True
    validator: str = "etag"
    pace: float = 0.0
    """Seconds to wait after each 16 kB."""
    resumed: threading.Event = field(default_factory=threading.Event)
    """While it is not set, no answer gets beyond its first half, for two minutes at most."""
    authorization: str | None = None
    seen: list[tuple[str, str | None]] = field(default_factory=list)

    def validators(self, body: bytes) -> dict[str, str]:
        digest = hashlib.sha256(body).hexdigest()[:16]
        if self.validator == "date":
            return {"Last-Modified": formatdate(int(digest[:7], 16), usegmt=True)}
        return {"etag": {"ETag": f'"{digest}"'}, "weak": {"ETag": f'W/"{digest}"'}, "none": {}}[self.validator]


@contextlib.contextmanager
def serve_files() -> Iterator[FileServer]:
    server = FileServer()
    server.resumed.set()

    class Files(Handler):
        def do_GET(self) -> None:
            server.seen.append((self.path, self.headers.get("Range")))
            self.pace = server.pace
            fault = server.faults.pop(0) if server.faults else Fault()
            body = server.files.get(self.path)
            if fault.status:
                return self.answer(fault.status, b"no", fault.headers)
            if server.authorization not in {None, self.headers.get("Authorization")}:
                return self.answer(401, b"who are you")
            if body is None:
                return self.answer(404, b"no such thing")
            status, headers = 200, server.validators(body)
            start = self.start() if server.ranges else None
            if start is not None and self.headers.get("If-Range") in {None, *headers.values()}:
                if start >= len(body):
                    return self.answer(416, headers={"Content-Range": f"bytes */{len(body)}"})
                where = fault.content_range or f"bytes {start}-{len(body) - 1}/{len(body)}"
                status, headers, body = 206, {**headers, "Content-Range": where}, body[start:]
            return self.answer(status, body, headers, sent=fault.drop_after)

        def wait(self) -> None:
            server.resumed.wait(120)

    with serving(Files) as server.url:
        try:
            yield server
        finally:
            server.resumed.set()


@dataclass
class IndexServer:
    """What it serves and how. ``statuses`` are answered first, one a request; ``requests`` are those that came."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    declared: dict[str, str] = field(default_factory=dict)
    yanked: set[str] = field(default_factory=set)
    statuses: list[int] = field(default_factory=list)
    truncations: int = 0
    as_json: bool = True
    authorization: str | None = None
    requests: list[str] = field(default_factory=list)

    def page(self) -> tuple[str, bytes]:
        digests = {name: self.declared.get(name, hashlib.sha256(data).hexdigest()) for name, data in self.files.items()}
        if not self.as_json:
            yanked = {n: " data-yanked" if n in self.yanked else "" for n in digests}
            links = "".join(f'<a href="../../files/{n}#sha256={d}"{yanked[n]}>{n}</a>\n' for n, d in digests.items())
            return "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()
        files = [
            {"filename": n, "url": f"/files/{n}", "hashes": {"sha256": d}, "yanked": n in self.yanked}
            for n, d in digests.items()
        ]
        document = {"meta": {"api-version": "1.0"}, "name": "demo", "files": files}
        return "application/vnd.pypi.simple.v1+json", json.dumps(document).encode()


@contextlib.contextmanager
def serve_index():
    index = IndexServer()

    class Index(Handler):
        def do_GET(self):
            index.requests.append(self.path)
            if index.statuses:
                return self.answer(index.statuses.pop(0), b"not now")
            if index.authorization not in {None, self.headers.get("Authorization")}:
                return self.answer(401, b"who are you")
            named = {file.partition("-")[0].replace("_", "-") for file in index.files}
            if self.path in {f"/simple/{project}/" for project in ("demo", *named)}:
                kind, body = index.page()
                return self.answer(200, body, {"Content-Type": kind})
            body = index.files.get(self.path.rpartition("/")[2])
            if not self.path.startswith("/files/") or body is None:
                return self.answer(404, b"no such thing")
            index.truncations -= (cut := index.truncations > 0)
            return self.answer(200, body, sent=len(body) // 2 if cut else None)

        def do_CONNECT(self):  # of a proxy that refuses
            self.do_GET()

    with serving(Index) as url:
        index.url = f"{url}/simple/"
        yield index


@dataclass(frozen=True)
class Answer:
    """What is answered instead of the right thing.

    ``status`` 0 is the right one; ``body`` replaces the file; ``drop_after`` closes the connection after so many bytes;
    ``pace`` seconds pass before each byte.
    """

    status: int = 0
    body: bytes | None = None
    drop_after: int | None = None
    pace: float = 0.0


Rule = Callable[[str, str], "Answer | None"]
"""From the method and the path of a request to what is answered; ``None`` is the right thing."""


def answers(path_begins: str, answer: Answer, method: str = "GET") -> Rule:
    """A fault of all requests with this method for paths that begin so."""
    return lambda asked, path: answer if asked == method and path.startswith(path_begins) else None


@dataclass
class RemoteServer:
    """``files`` by path without the first slash; ``seen`` has method and path of each request; ``ranges``: it knows them."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    fault: Rule = lambda _method, _path: None
    seen: list[tuple[str, str]] = field(default_factory=list)
    stop: Callable[[], None] = lambda: None
    ranges: bool = True

    def blobs(self) -> list[str]:
        return [path for path in self.files if path.startswith("blobs/")]

    def records(self) -> list[str]:
        return [path for path in self.files if path.startswith(("signed/units/", "signed/libraries/"))]


@contextlib.contextmanager
def serve_remote() -> Iterator[RemoteServer]:
    server = RemoteServer()
    lock = threading.Lock()

    class Remote(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, fault = self.begin()
            body = server.files.get(path) if fault.body is None else fault.body
            if fault.status or body is None:
                return self.answer(fault.status or 404, b"no")
            status, headers = 200, {}
            start = self.start() if server.ranges else None
            if start is not None:
                if start >= len(body):
                    return self.answer(416)
                status, headers = 206, {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
                body = body[start:]
            if fault != Answer() and self.command == "GET":
                self.close_connection = True
                self.piece, self.pace = 1 if fault.pace else self.piece, fault.pace
            return self.answer(status, body, headers, sent=fault.drop_after)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            path, fault = self.begin()
            length = int(self.headers["Content-Length"])
            data = self.rfile.read(length)
            if len(data) < length:  # the client was killed: as every server does, nothing is kept
                self.close_connection = True
            elif fault.status:
                self.answer(fault.status, b"no")
            else:
                with lock:
                    server.files[path] = data
                self.answer(201)

        def begin(self) -> tuple[str, Answer]:
            path = self.path.lstrip("/")
            with lock:
                server.seen.append((self.command, path))
            return path, server.fault(self.command, path) or Answer()

    with contextlib.ExitStack() as stack:
        server.url = stack.enter_context(serving(Remote))
        server.stop = stack.close
        yield server


Reply = Callable[[bytes], bytes]


class Raw:
    """A server that sends the bytes that it is given to, without looking whether they are HTTP; then ``drip`` forever."""

    def __init__(self, wrap: Callable[[socket.socket], socket.socket] = lambda plain: plain) -> None:
        self.reply: Reply = lambda _request: b""
        self.drip = b""
        self.seen: list[bytes] = []
        self._wrap, self._stopped = wrap, threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.05)
        self.port = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                threading.Thread(target=self._answer, args=(self._listening.accept()[0],), daemon=True).start()

    def _answer(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), self._wrap(plain) as client:
            client.settimeout(2)
            request = b""
            while b"\r\n\r\n" not in request and (more := client.recv(65536)):
                request += more
            self.seen.append(request)
            client.sendall(self.reply(request))
            while self.drip and not self._stopped.is_set():
                client.sendall(self.drip)
                self._stopped.wait(0.05)
