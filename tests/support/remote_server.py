"""A web server that keeps what is put there, as WebDAV does, and fails in the ways that it is told to."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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


Fault = Callable[[str, str], "Answer | None"]
"""From the method and the path of a request to what is answered; ``None`` is the right thing."""


def answers(path_begins: str, answer: Answer, method: str = "GET") -> Fault:
    """A fault of all requests with this method for paths that begin so."""
    return lambda asked, path: answer if asked == method and path.startswith(path_begins) else None


@dataclass
class RemoteServer:
    """``files`` by path without the first slash; ``seen`` has method and path of each request; ``ranges``: it knows them."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    fault: Fault = lambda _method, _path: None
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

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.give(with_body=True)

        def do_HEAD(self) -> None:
            self.give(with_body=False)

        def do_PUT(self) -> None:
            path, fault = self.begin()
            length = int(self.headers["Content-Length"])
            data = self.rfile.read(length)
            if len(data) < length:  # the client was killed: as every server does, nothing is kept
                self.close_connection = True
                return
            if fault and fault.status:
                self.answer(fault.status, b"no")
                return
            with lock:
                server.files[path] = data
            self.answer(201, b"")

        def begin(self) -> tuple[str, Answer | None]:
            path = self.path.lstrip("/")
            with lock:
                server.seen.append((self.command, path))
            return path, server.fault(self.command, path)

        def give(self, *, with_body: bool) -> None:
            path, fault = self.begin()
            body = server.files.get(path)
            if fault and fault.status:
                self.answer(fault.status, b"no" if with_body else b"")
                return
            body = fault.body if fault and fault.body is not None else body
            if body is None:
                self.answer(404, b"" if not with_body else b"no such thing")
                return
            status, more = 200, {}
            if server.ranges and (match := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")):
                start, total = int(match[1]), len(body)
                if start >= total:
                    self.answer(416, b"")
                    return
                status, more = 206, {"Content-Range": f"bytes {start}-{total - 1}/{total}"}
                body = body[start:]
            self.answer(status, body, fault if with_body else None, more, with_body=with_body)

        def answer(
            self,
            status: int,
            body: bytes,
            fault: Answer | None = None,
            more: dict[str, str] | None = None,
            *,
            with_body: bool = True,
        ) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(more or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if not with_body:
                return
            with contextlib.suppress(ConnectionError):
                if fault is None or not fault.pace:
                    self.close_connection = fault is not None
                    self.wfile.write(body[: fault.drop_after if fault else None])
                    return
                self.close_connection = True
                for byte in body[: fault.drop_after]:
                    time.sleep(fault.pace)
                    self.wfile.write(bytes([byte]))

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # with the usual 5, clients that come ten at once wait a second for the next try

    http = Server(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.block_on_close = False
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    stopped = threading.Event()

    def stop() -> None:
        if not stopped.is_set():
            stopped.set()
            http.shutdown()
            http.server_close()
            thread.join()

    server.stop = stop
    try:
        yield server
    finally:
        stop()
