import pytest

from depot.conftest import small_disk
from support.index_server import forget_settings, serve_index

__all__ = ["small_disk"]


@pytest.fixture(autouse=True)
def settings_free(monkeypatch, tmp_path):
    """Be a user who has configured nothing; gives their home."""
    home = tmp_path / "home"
    home.mkdir()
    forget_settings(monkeypatch, home)
    monkeypatch.setattr("sys.prefix", str(home / "python"))
    monkeypatch.setattr("flashdepot.system.index_settings._site_folders", lambda: [home / "etc"])
    return home


@pytest.fixture
def index(monkeypatch):
    """Serve an index that pip is configured to use."""
    monkeypatch.setattr("flashdepot.system.patience.WAITS", (0.0, 0.0))
    with serve_index() as server:
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        yield server
