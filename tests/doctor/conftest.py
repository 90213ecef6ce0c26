import pytest


@pytest.fixture(autouse=True)
def offline(home: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No log of these tests is a reason to ask the real index."""
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
