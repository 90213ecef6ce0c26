import json
import signal
from types import SimpleNamespace

import pytest

from catalog.listing_server import serve_listings
from flashdepot.cli import app


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch, no_system_settings):
    monkeypatch.setattr("flashdepot.net.errors.WAITS", (0.0, 0.0))


@pytest.fixture
def depot(tmp_path):
    return tmp_path / "depot"


@pytest.fixture
def catalog(monkeypatch, capsys, depot):
    """Run ``flashdepot catalog`` on a depot and give its exit code and what it printed."""
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["flashdepot", "catalog", *arguments, "--depot", str(depot)])
        code = app.run()
        said = capsys.readouterr()
        document = json.loads(said.out) if "--json" in arguments else None
        return SimpleNamespace(code=code, out=said.out, err=said.err, json=document)

    yield run
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def server():
    with serve_listings() as listings:
        yield listings


@pytest.fixture
def one_source(depot, server):
    """Make the server the one place that publishes wheels, by replacing what is known of where they are listed."""

    def replace(format_, path, **more):
        own = {
            "name": "mjun0812", "kind": "community", "format": format_, "listing": server.url + path,
            "files": "", "page": "https://example.org/", "licence": "", **more,
        }  # fmt: skip
        (depot / "catalog").mkdir(parents=True, exist_ok=True)
        (depot / "catalog/sources.json").write_text(json.dumps({"source": [own]}))

    return replace
