import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from flashdepot import api
from flashdepot.index.site import IndexSite
from flashdepot.wheel import Name
from support.own_world import CONFIG
from support.servers import serving
from support.wheels import WheelMaker

Publish = Callable[..., IndexSite]
JSON = "application/vnd.pypi.simple.v1+json"


@contextlib.contextmanager
def serve_site(folder: Path, *, negotiates: bool = True) -> Iterator[str]:
    """Serve a folder; ``negotiates`` says whether a client that accepts JSON gets it."""

    class Site(SimpleHTTPRequestHandler):
        extensions_map = {**SimpleHTTPRequestHandler.extensions_map, ".json": JSON}  # noqa: RUF012

        def send_head(self):
            document = Path(self.translate_path(self.path)) / "index.json"
            if negotiates and document.is_file() and JSON in self.headers.get("Accept", ""):
                self.path = f"{self.path.rstrip('/')}/index.json"
            return super().send_head()

        def log_message(self, *_: object) -> None:
            pass

    with serving(functools.partial(Site, directory=str(folder))) as url:
        yield f"{url}/"


@pytest.fixture
def maker(tmp_path: Path) -> WheelMaker:
    return WheelMaker(tmp_path / "made")


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """Where the index is."""
    return tmp_path / "public"


@pytest.fixture
def address(public: Path) -> Iterator[str]:
    """Serve the index, and what is next to its folder; the address ends with a slash."""
    public.mkdir(parents=True)
    with serve_site(public.parent) as url:
        yield f"{url}{public.name}/"


@pytest.fixture
def publish(maker: WheelMaker, public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Write the index of some wheels at a moment, in seconds since the epoch, as a user without a key."""
    monkeypatch.setenv(CONFIG, str(tmp_path / "config"))
    monkeypatch.delenv("FLASHDEPOT_SIGNING_KEY", raising=False)

    def write(*wheels: Path, when: int = 1_790_000_000, url: str = "", names: Sequence[Name] = ()) -> IndexSite:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(when))
        return api.index(public, wheels, url=url, names=names, depot=maker.depot)

    return write
