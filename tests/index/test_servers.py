"""The lines that the docs print for web servers, in those servers, asked by pip and uv."""

import contextlib
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from index.conftest import JSON
from support.tools import run_program

PAGE = Path(__file__).parents[2] / "docs" / "wheel-index.md"
UV = shutil.which("uv")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="servers as Debian has them")


def lines_of(heading: str) -> str:
    """The block below a heading of the page."""
    match = re.search(rf"### {heading}\n\n```\w+\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match
    return match[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def served(server: str, public: Path, folder: Path) -> Iterator[str]:
    """Serve an index with the lines of the page, at another address and folder."""
    program = shutil.which(server.lower(), path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip(f"there is no {server}")
    port = free_port()
    lines = lines_of(server).replace("/srv/wheels", str(public))
    config = folder / "config"
    if server == "nginx":
        lines = lines.replace("listen 80", f"listen 127.0.0.1:{port}")
        temporary = "".join(
            f"{name}_temp_path {folder}/t;" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config.write_text(
            f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;\n"
            f"events {{}}\nhttp {{ access_log off; {temporary}\n{lines} }}\n"
        )
        command = [program, "-c", str(config)]
    else:
        config.write_text(f"{{\n admin off\n auto_https off\n}}\n{lines.replace(':80', f'http://127.0.0.1:{port}')}")
        command = [program, "run", "--adapter", "caddyfile", "--config", str(config)]
    with (
        (folder / "said").open("w") as said,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said) as process,
    ):
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            assert process.poll() is None, (folder / "said").read_text()
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()


@pytest.mark.parametrize("server", ["nginx", "Caddy"])
def test_who_accepts_json_gets_it_and_the_others_the_page(server, maker, publish, public, tmp_path) -> None:
    wheel = maker.make()
    publish(wheel.path)
    with served(server, public, tmp_path) as url:
        for place, accepts, kind in (
            ("simple/flash-attn/", f"{JSON}, text/html; q=0.01", JSON),
            ("simple/", JSON, JSON),
            ("simple/flash-attn/", "text/html", "text/html"),
            ("", "*/*", "text/html"),
        ):
            answer = requests.get(url + place, headers={"Accept": accepts}, timeout=10)
            assert answer.status_code == 200
            assert answer.headers["Content-Type"].startswith(kind), place
        pip = [sys.executable, "-m", "pip", "--isolated", "install", "--no-cache-dir", "--no-deps"]
        uv = [str(UV), "pip", "install", "--no-cache", "--no-deps", "--exclude-newer", "2026-12-01"]
        for number, command in enumerate([pip, *([uv] if UV else [])]):
            folder = tmp_path / f"to{number}"
            words = ["--target", str(folder), "--index-url", f"{url}simple/", "flash-attn"]
            run_program([*command, *words])
            assert (folder / "flash_attn_2_cuda" / "lib").is_dir()
