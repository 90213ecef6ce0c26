"""A web server on this machine for a folder, as nginx and Caddy serve an index: by what the client accepts."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from support.web import Quiet, serving

JSON = "application/vnd.pypi.simple.v1+json"


@contextlib.contextmanager
def serve_site(folder: Path, *, negotiates: bool = True) -> Iterator[str]:
    """Serve a folder; ``negotiates`` says whether a client that accepts JSON gets it."""

    class Handler(Quiet, SimpleHTTPRequestHandler):
        extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".json": JSON}  # noqa: RUF012

        def send_head(self):
            document = Path(self.translate_path(self.path)) / "index.json"
            if negotiates and document.is_file() and JSON in self.headers.get("Accept", ""):
                self.path = f"{self.path.rstrip('/')}/index.json"
            return super().send_head()

    with serving(functools.partial(Handler, directory=str(folder))) as url:
        yield f"{url}/"
