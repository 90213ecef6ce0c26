"""What files and servers say cannot steer the terminal on which it is shown."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from flashdepot.cli.common import printable

CLEAR = "\x1b\x1b[0m[2J"
STEERING = set(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) - {"\n"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("ünï 中文 👩\u200d💻", "ünï 中文 👩\u200d💻"),
        (CLEAR, r"\x1b\x1b[0m[2J"),
        ("\x9b2J\r\x07\x00", r"\x9b2J\r\x07\x00"),
        ("safe\u202egnp.exe", r"safe\u202egnp.exe"),
        ("not\udce9UTF-8", r"not\udce9UTF-8"),
    ],
)
def test_only_what_steers_a_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def run(*arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-m", "flashdepot", *arguments]
    done = subprocess.run(command, capture_output=True, check=False, cwd=cwd, timeout=120)
    return (done.stdout + done.stderr).decode(errors="surrogateescape")


def hostile_wheel(folder: Path) -> str:
    path = folder / "flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"flash_attn_2_cuda{CLEAR}.so", b"\x7fELF not really")
        archive.writestr(f"flash_attn-2.8.3.dist-info/{CLEAR}", b"")
    return f"./{path.name}"


def hostile_log(folder: Path) -> str:
    (folder / "log").write_text(
        f"undefined symbol: _ZN3c10{CLEAR}4cuda\nModuleNotFoundError: No module named '{CLEAR}'\n"
    )
    return "./log"


def hostile_record(folder: Path) -> str:
    (folder / "record").write_text(f'{{"{CLEAR!r}": 1'.replace("\\x1b", "\x1b"))
    return "./record"


def hostile_project(folder: Path) -> str:
    (folder / "flashdepot.toml").write_text('profile = "\\u001b[2J"\n')
    return "--profile=\x1b[2J"


def test_no_command_passes_on_what_steers_the_terminal(tmp_path: Path) -> None:
    depot = ("--depot", str(tmp_path / "depot"))
    wheel, log, record = hostile_wheel(tmp_path), hostile_log(tmp_path), hostile_record(tmp_path)
    outputs = [
        run("check", wheel, cwd=tmp_path),
        run("explain", log, cwd=tmp_path),
        run("get", "--host", record, *depot, cwd=tmp_path),
        run("get", hostile_project(tmp_path), *depot, cwd=tmp_path),
        run("get", *depot, cwd=tmp_path),
        run("install", "--wheel", wheel, *depot, cwd=tmp_path),
        run("get", "--upstream", f"./{CLEAR}", *depot, cwd=tmp_path),
    ]
    assert [sorted(STEERING & set(output.replace(os.linesep, ""))) for output in outputs] == [[]] * len(outputs)
    assert all(outputs)
    assert any(r"\x1b" in output for output in outputs), "it is shown, and harmless"
