"""A package index on this machine that can be told to misbehave."""

import contextlib
import hashlib
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from support.web import Quiet, serving


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

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self):
            index.requests.append(self.path)
            if index.statuses:
                return self.answer(index.statuses.pop(0), "text/plain", b"not now")
            if index.authorization not in {None, self.headers.get("Authorization")}:
                return self.answer(401, "text/plain", b"who are you")
            name = self.path.rpartition("/")[2]
            if self.path in {"/simple/demo/", "/simple/flash-attn/", "/simple/ziglang/"}:
                return self.answer(200, *index.page())
            if self.path.startswith("/files/") and name in index.files:
                return self.answer(200, "application/octet-stream", index.files[name], may_be_cut=True)
            return self.answer(404, "text/plain", b"no such thing")

        def answer(self, status, content_type, body, *, may_be_cut=False):
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if may_be_cut and index.truncations:
                index.truncations -= 1
                body = body[: len(body) // 2]
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

    with serving(Handler) as url:
        index.url = f"{url}/simple/"
        yield index
