"""A web server on this machine that serves files, with ranges or without, and misbehaves when it is told to."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler

from support.web import Quiet, serving


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
    goes_on: threading.Event = field(default_factory=threading.Event)
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
    server.goes_on.set()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            server.seen.append((self.path, asked))
            fault = server.faults.pop(0) if server.faults else Fault()
            body = server.files.get(self.path)
            if fault.status:
                return self.answer(fault.status, dict(fault.headers), b"no")
            if server.authorization not in {None, self.headers.get("Authorization")}:
                return self.answer(401, {}, b"who are you")
            if body is None:
                return self.answer(404, {}, b"no such thing")
            headers = server.validators(body)
            if match := re.fullmatch(r"bytes=(\d+)-", asked or "") if server.ranges else None:
                condition = self.headers.get("If-Range")
                start = int(match[1])
                if condition in {None, *headers.values()}:
                    if start >= len(body):
                        return self.answer(416, {"Content-Range": f"bytes */{len(body)}"}, b"")
                    where = fault.content_range or f"bytes {start}-{len(body) - 1}/{len(body)}"
                    return self.answer(206, {**headers, "Content-Range": where}, body[start:], fault.drop_after)
            return self.answer(200, headers, body, fault.drop_after)

        def answer(self, status: int, headers: Mapping[str, str], body: bytes, drop_after: int | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                for start in range(0, len(body[:drop_after]), 1 << 14):
                    self.wfile.write(body[start : min(start + (1 << 14), drop_after or len(body))])
                    time.sleep(server.pace)
                    if 2 * start > len(body):
                        server.goes_on.wait(120)

    with serving(Handler) as server.url:
        try:
            yield server
        finally:
            server.goes_on.set()
