from pathlib import Path

import pytest

from build.bench import Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("FAKE_JOURNAL", "")
    return Bench(tmp_path)
