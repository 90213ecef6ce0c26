"""Locks that somebody else wrote: nothing is installed on the word of the server that it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.resolve.lock import LOCK_NAME
from support import forge
from support.servers import FileServer, serve_files
from support.tools import flashdepot_in
from support.venvs import Venv, add_torch

LOCK = """\
schema = 1

[wheel]
source = "{source}"
filename = "{filename}"
url = "{url}"
{more}
[facts]
"""


@pytest.fixture
def environment(bare_venv: Venv) -> Venv:
    add_torch(bare_venv)
    return bare_venv


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """It would leave a mark when it is imported."""
    code = f"open({str(tmp_path / 'it-ran')!r}, 'w').close()\n".encode()
    return forge.wheel(tmp_path, {"flash_attn/__init__.py": code, "flash_attn_2_cuda.py": b""}, tag="py3-none-any")


@pytest.fixture
def server(wheel: Path) -> Iterator[FileServer]:
    with serve_files() as found:
        found.files[f"/{wheel.name}"] = wheel.read_bytes()
        yield found


@pytest.mark.parametrize("source", ["official", "mjun0812", "anything"])
def test_a_lock_without_a_digest_is_not_believed_whatever_it_calls_its_source(
    environment: Venv, wheel: Path, tmp_path: Path, source: str
) -> None:
    before = environment.contents()
    url = f"https://evil.example/{wheel.name}"
    (tmp_path / LOCK_NAME).write_text(LOCK.format(source=source, filename=wheel.name, url=url, more=""))
    done = flashdepot_in(tmp_path, "install", "--locked", "--python", str(environment.python))
    assert done.returncode == 6, done.stderr
    assert f"No SHA-256 is published for {wheel.name}" in done.stderr
    assert environment.contents() == before


def test_a_lock_with_another_digest_installs_nothing(
    environment: Venv, wheel: Path, server: FileServer, tmp_path: Path
) -> None:
    before = environment.contents()
    url = f"{server.url}/{wheel.name}"
    more = f'sha256 = "{hashlib.sha256(b"the file that was meant").hexdigest()}"\n'
    (tmp_path / LOCK_NAME).write_text(LOCK.format(source="official", filename=wheel.name, url=url, more=more))
    done = flashdepot_in(tmp_path, "install", "--locked", "--python", str(environment.python))
    assert done.returncode == 6, done.stderr
    assert "is not the expected file" in done.stderr
    assert environment.contents() == before
    assert not (tmp_path / "it-ran").exists()
