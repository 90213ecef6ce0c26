"""A server that lists wheels as GitHub and the Hugging Face Hub do, and misbehaves on request."""

import contextlib
import hashlib
import json
from dataclasses import dataclass, field

from support.servers import Handler, serving


@dataclass
class ListingAnswer:
    """What is sent for a path. ``cut`` sends half of the body that the headers promise."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass
class ListingServer:
    """``answers`` by path with query; each has an etag by its body. ``first`` are sent before them, one a request."""

    url: str = ""
    answers: dict[str, ListingAnswer] = field(default_factory=dict)
    first: list[ListingAnswer] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    not_modified: int = 0

    def serve(self, path, document, **more):
        self.answers[path] = ListingAnswer(json.dumps(document).encode(), **more)


def release(tag, *assets):
    """A release as GitHub's "List releases" has it, less the fields that nobody reads."""
    return {"tag_name": tag, "draft": False, "prerelease": False, "assets": list(assets)}


def asset(name, *, tag="v1", size=1000, sha256="", where="https://github.com/o/r/releases/download"):
    """An asset of a release; before 2025 GitHub had no digests."""
    return {
        "name": name,
        "size": size,
        "state": "uploaded",
        "content_type": "application/octet-stream",
        "digest": f"sha256:{sha256}" if sha256 else None,
        "browser_download_url": f"{where}/{tag}/{name.replace('+', '%2B')}",
    }


def wheel_name(python="cp312", *, version="2.8.3", torch="2.8", cuda="128", platform="linux_x86_64"):
    return f"flash_attn-{version}+cu{cuda}torch{torch}-{python}-{python}-{platform}.whl"


@contextlib.contextmanager
def serve_listings():
    listings = ListingServer()

    class Listings(Handler):
        def do_GET(self):  # noqa: N802  (the name that http.server calls)
            listings.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
            if listings.first:
                return self.send(listings.first.pop(0), {})
            answer = listings.answers.get(self.path, ListingAnswer(b'{"message": "Not Found"}', status=404))
            etag = f'W/"{hashlib.sha256(answer.body).hexdigest()}"'
            if answer.status == 200 and self.headers.get("If-None-Match") == etag:
                listings.not_modified += 1
                answer = ListingAnswer(b"", status=304)
            return self.send(answer, {"ETag": etag})

        def send(self, answer, headers):
            headers = {"Content-Type": "application/json; charset=utf-8", **headers, **answer.headers}
            self.answer(answer.status, answer.body, headers, sent=len(answer.body) // 2 if answer.cut else None)

    with serving(Listings) as listings.url:
        yield listings
