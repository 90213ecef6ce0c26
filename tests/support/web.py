"""Web servers of tests: on this machine, at a free port, in a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Quiet:
    """What a handler is besides, so that it writes no log."""

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler] | Any) -> Iterator[str]:
    """Serve, and give the address, without a slash at its end."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
