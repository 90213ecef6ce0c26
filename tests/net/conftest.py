import pytest

from support.servers import serve_index


@pytest.fixture(autouse=True)
def settings_free(no_system_settings):
    """Be a user who has configured nothing; gives their home."""
    return no_system_settings


@pytest.fixture
def index(monkeypatch):
    """Serve an index that pip is configured to use."""
    monkeypatch.setattr("flashdepot.net.errors.WAITS", (0.0, 0.0))
    with serve_index() as server:
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        yield server
