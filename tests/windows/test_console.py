"""flashdepot at a console of Windows: Ctrl-C, colours, letters of other alphabets, and files that a program has open."""

import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import forge
from support.servers import FileServer, serve_files
from support.tools import Wine, windows_path

pytestmark = pytest.mark.network

AT_CONSOLE = Path(__file__).with_name("at_console.py")
INTERRUPTED, READS_ESCAPES = 130, 4
STARTS_OTHERS = """
import sys
from flashdepot.process.run import run
ignores = "import pathlib, signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)"
beats = f"{ignores}\\nwhile True: pathlib.Path('beat').write_text(str(time.time())); time.sleep(0.02)"
starts = f"import subprocess, sys; {ignores}; subprocess.run([sys.executable, '-c', {beats!r}])"
run([sys.executable, "-c", starts], timeout=600)
"""


@dataclass(frozen=True)
class Seen:
    """How a program ended, what stood on the screen then, and the console's mode of output."""

    code: int
    screen: str
    mode: int


Console = Callable[..., Seen]


@pytest.fixture
def console(wine: Wine, portable: Path, home_there: dict[str, str], tmp_path: Path) -> Console:
    """Run the Windows Python at a console; Ctrl-C is pressed when the file ``mark`` is there."""

    def start(*words: str, mark: str = "-", **variables: str) -> Seen:
        python = str(portable / "python.exe")
        asked = (python, windows_path(AT_CONSOLE), "answer.json", mark, python, *words)
        done = wine.run(*asked, cwd=tmp_path, **home_there, **variables)
        assert done.returncode == 0, done.stderr
        said = json.loads((tmp_path / "answer.json").read_text("utf-8"))
        return Seen(said["code"], "".join(row.ljust(80) for row in said["rows"]), said["mode"])

    return start


def flash_attn_of(folder: Path, version: str, server: FileServer) -> str:
    """A wheel on a server, with its digest."""
    files = {"flash_attn/__init__.py": f"__version__ = '{version}'\n".encode(), "flash_attn_2_cuda.py": b"#" * 200_000}
    made = forge.wheel(folder, files, version=version, tag="cp311-cp311-win_amd64")
    server.files[f"/{made.name}"] = made.read_bytes()
    return f"{server.url}/{made.name}#sha256={hashlib.sha256(made.read_bytes()).hexdigest()}"


def test_ctrl_c_ends_an_installation_which_continues_where_it_was(
    console: Console, with_torch: Path, tmp_path: Path
) -> None:
    site = with_torch / "Lib/site-packages"
    before = {path.name for path in site.iterdir()}
    with serve_files() as server:
        url, server.pace = flash_attn_of(tmp_path, "2.8.1", server), 0.5

        def press() -> None:
            while not server.seen:
                time.sleep(0.01)
            time.sleep(1)
            (tmp_path / "asked").touch()

        threading.Thread(target=press, daemon=True).start()
        seen = console("-m", "flashdepot", "install", "--wheel", url, mark="asked")
    assert seen.code == INTERRUPTED
    assert "Stopped. What was finished is kept" in seen.screen
    assert "Traceback" not in seen.screen
    assert {path.name for path in site.iterdir()} == before
    assert not (with_torch / ".flashdepot-install").exists()


def test_ctrl_c_ends_programs_that_do_not_listen_to_it(console: Console, tmp_path: Path) -> None:
    seen = console("-c", STARTS_OTHERS, mark="beat")
    assert seen.code != 0
    last = (tmp_path / "beat").read_text()
    time.sleep(1)
    assert (tmp_path / "beat").read_text() == last


def test_a_console_reads_colours_where_it_can_and_shows_every_alphabet(console: Console) -> None:
    """Wine 8 takes the mode and shows the sequences all the same."""
    seen = console("-m", "flashdepot", "depot", "show", "Ключ-鍵")
    assert "Ключ-鍵" in seen.screen
    assert seen.mode & READS_ESCAPES
    plain = console("-m", "flashdepot", "depot", "show", "Ключ-鍵", NO_COLOR="1")
    assert plain.screen.startswith("error: 'Ключ-鍵': no stored library")


@pytest.mark.parametrize("words", [(), ("-X", "utf8")])
def test_what_is_redirected_has_no_escapes_and_no_letter_that_its_code_page_lacks(
    wine: Wine, portable: Path, home_there: dict[str, str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    folder = tmp_path / "Имя 表" / ("long" * 40) / ("path" * 30)
    asked = ("-m", "flashdepot", "depot", "init", "--depot", windows_path(folder))
    done = wine.run(str(portable / "python.exe"), *words, *asked, cwd=tmp_path, **home_there)
    assert done.returncode == 0, done.stderr
    assert (folder / "blobs").is_dir() or (folder / "README.txt").is_file()
    shown = "Имя 表" if words else r"\u0418\u043c\u044f \u8868"
    assert shown in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_library_that_a_program_has_open_stays_whole(
    console: Console, wine: Wine, with_torch: Path, home_there: dict[str, str], tmp_path: Path
) -> None:
    """As ComfyUI has it while it runs."""
    python, site = str(with_torch / "python.exe"), with_torch / "Lib/site-packages"
    with serve_files() as server:
        older, newer = (flash_attn_of(tmp_path, version, server) for version in ("2.8.1", "2.8.2"))
        assert console("-m", "flashdepot", "install", "--wheel", older).code == 0
        opened = windows_path(site / "flash_attn_2_cuda.py")
        holds = f"f = open({opened!r}); open('held', 'w').close(); import time; time.sleep(600)"
        with subprocess.Popen(
            wine.command(python, "-c", holds), cwd=tmp_path, env=wine.environment(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as program:  # fmt: skip
            try:
                while not (tmp_path / "held").exists():
                    assert program.poll() is None
                    time.sleep(0.05)
                seen = console("-m", "flashdepot", "install", "--wheel", newer, NO_COLOR="1")
            finally:
                program.kill()
        assert seen.code not in {0, 1}, seen.screen
        assert "flash_attn_2_cuda.py is open in another program" in seen.screen.replace(" " * 80, "")
        assert (site / "flash_attn/__init__.py").read_text() == "__version__ = '2.8.1'\n"
        assert console("-m", "flashdepot", "install", "--wheel", newer).code == 0
    assert (site / "flash_attn/__init__.py").read_text() == "__version__ = '2.8.2'\n"
