"""Who reaches the scheduler of a farm runs programs on its workers, and through their answers here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import flashdepot
from flashdepot.build.cluster import connect
from flashdepot.errors import NetworkError, UsageError
from support.farm import NEEDS_DASK

OPEN_ADDRESSES = [
    "tcp://10.0.0.5:8786",
    "tcp://head:8786",
    "tcp://127.0.0.1.example.org:8786",
    "tcp://localhost.example.org:8786",
    "tcp://user@127.0.0.1@10.0.0.5:1",
    "tcp://[::ffff:10.0.0.1]:8786",
    "tcp://[fe80::1]:8786",
    "tcp://0.0.0.0:8786",
    "ws://head:8786",
    "ucx://head:8786",
    "TLS://head:8786",
    "tcp://",
    "tcp://[",
]


@pytest.mark.parametrize("address", OPEN_ADDRESSES)
def test_a_farm_on_a_network_is_encrypted_or_that_is_said_to_be_meant(tmp_path: Path, address: str) -> None:
    file = tmp_path / "farm.json"
    file.write_text(json.dumps({"address": address}))
    for farm in (address, str(file)):
        with pytest.raises(UsageError, match="not encrypted") as caught:
            connect(farm)
        assert "tls://" in caught.value.hint
        assert f"--farm open+{farm}" in caught.value.hint.replace("'", "")


@NEEDS_DASK
@pytest.mark.parametrize("farm", ["tcp://127.0.0.1:9", "tcp://[::1]:9", "tcp://localhost:9", "open+tcp://127.0.0.2:9"])
def test_a_farm_of_this_machine_needs_no_encryption(farm: str) -> None:
    with pytest.raises(NetworkError, match="No Dask scheduler answers"):
        connect(farm)


def test_nothing_of_flashdepot_reads_pickles() -> None:
    package = Path(flashdepot.__file__).parent
    assert [path.name for path in package.rglob("*.py") if "pickle" in path.read_text(encoding="utf-8")] == []
