import pytest

from flashdepot.kernels import fa2
from support.servers import serve_index
from support.upstreams import make_sdist, sdists_toml


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "upstreams"


@pytest.fixture
def pin(monkeypatch, tmp_path):
    """Pin a synthetic sdist in place of the published ones."""
    data_file = tmp_path / "sdists.toml"

    def pin(data, version="9.9.9"):
        sdists_toml(data_file, version, data)
        fa2.published.cache_clear()

    monkeypatch.setattr(fa2, "DATA", data_file)
    yield pin
    fa2.published.cache_clear()


@pytest.fixture
def index(monkeypatch, pin):
    """Serve an index with one small sdist, 9.9.9, which is pinned."""
    data = make_sdist()
    pin(data)
    with serve_index() as server:
        server.files["flash_attn-9.9.9.tar.gz"] = data
        monkeypatch.setenv("PIP_INDEX_URL", server.url)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        yield server
