"""`flashdepot install --wheel`: fetched from a real server, checked, installed, proved; or nothing has changed."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from flashdepot.errors import IntegrityError
from flashdepot.host.python_environment import probe_python
from flashdepot.install import change
from flashdepot.install.installation import Imported, verify_numbers
from support import forge
from support.servers import Fault, FileServer, serve_files
from support.tools import assert_ends, posix, unchanged
from support.venvs import SET_DEVICE, SET_DEVICE_BEFORE_2_8, TAG, add_official

VERSION = "2.8.3+cu12torch2.9cxx11abiTRUE"
FOREVER = 99


@pytest.fixture
def good(tmp_path: Path, parts: Callable[[str], dict[str, bytes]]) -> Path:
    """A wheel that fits the environment, with the local version only in its file name, as upstream's have it."""
    (tmp_path / "dist").mkdir()
    return forge.wheel(tmp_path / "dist", parts(SET_DEVICE), version=VERSION, tag=TAG, metadata_version="2.8.3")


@pytest.fixture
def server(good: Path) -> Iterator[FileServer]:
    with serve_files() as found:
        found.files[f"/{good.name.replace('+', '%2B')}"] = good.read_bytes()
        yield found


def address(server: FileServer) -> str:
    return server.url + next(iter(server.files))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


anywhere = pytest.mark.parametrize("installer", ["uv"], indirect=True)
"""For what ends before an installer runs."""


@pytest.mark.parametrize("how", ["at once", "redirect"])
def test_a_wheel_that_arrives_is_installed(command, server, good, environment, installer, how) -> None:
    if how == "redirect":
        server.faults = [Fault(status=302, headers={"Location": address(server)})]
    done = command("--wheel", f"{address(server)}#sha256={digest(good)}", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["status"], document["source"], document["installer"]) == ("installed", "named", installer)
    assert (document["version"], document["replaced"]) == ("2.8.3", None)
    assert document["wheel"] == {
        "filename": good.name,
        "url": address(server),
        "sha256": digest(good),
        "size": good.stat().st_size,
    }
    assert document["numbers"]["not_run"] in {"there is no GPU here", "torch 2.9.1 sees no GPU"}
    assert environment.imports("flash_attn_2_cuda") == str(environment.site / "flash_attn_2_cuda.py")


FAILING: dict[str, tuple[dict[str, object], list[str], int, str]] = {
    "another digest": ({}, ["--sha256", "0" * 64], 6, "is not the expected file: its SHA-256 is"),
    "no digest": ({}, [], 6, "No SHA-256 is known"),
    "always cut off": (
        {"faults": [Fault(drop_after=50_000)] * FOREVER, "ranges": False},
        ["D"],
        7,
        "ended its answer after 50000 bytes",
    ),
    "never there": ({"files": {}}, ["D"], 7, "answers 404"),
    "wrong range": (
        {"faults": [Fault(drop_after=100_000), Fault(content_range="bytes 0-9/10")]},
        ["D"],
        6,
        "and sent 'bytes 0-9/10'",
    ),
}


@anywhere
@pytest.mark.parametrize("how", FAILING)
def test_a_wheel_that_does_not_arrive_leaves_the_environment_as_it_was(command, server, good, environment, how) -> None:
    add_official(environment)
    where = address(server)
    settings, options, code, said = FAILING[how]
    for name, value in settings.items():
        setattr(server, name, copy(value))
    with unchanged(environment):
        done = command("--wheel", where, *(["--sha256", digest(good)] if options == ["D"] else options))
    assert_ends(done, code, said)


TORCH = {"torch/version.py": b"__version__ = '0'\n"}
REFUSED: dict[str, tuple[dict[str, Any], int, list[str]]] = {
    "symbols of another torch than the name says": (
        {"takes": SET_DEVICE_BEFORE_2_8, "version": VERSION},
        6,
        [f"it takes {SET_DEVICE_BEFORE_2_8}, which torch 2.3 to 2.7 has", "the name says torch 2.9"],
    ),
    "a name for another torch than its symbols": (
        {"version": VERSION.replace("2.9", "2.5")}, 6, ["the name says torch 2.5", SET_DEVICE],
    ),
    "another version in METADATA": (
        {"metadata_version": "2.7.4"}, 6, ["its file name says version 2.8.3 and its METADATA '2.7.4'"],
    ),
    "a file that RECORD does not know": (
        {"recorded": {"flash_attn/__init__.py": b"other"}}, 6, ["is not the file that RECORD lists"],
    ),
    "a file that only RECORD knows": (
        {"recorded": {"flash_attn/gone.py": b""}}, 6, ["RECORD lists 'flash_attn/gone.py', which is not in it"],
    ),
    "a path out of the environment": ({"more": {"../../../evil.py": b""}}, 6, ["'../../../evil.py' leads out"]),
    "an absolute path": ({"more": {"/etc/evil.pth": b""}}, 6, ["'/etc/evil.pth' leads out"]),
    "a file of torch": ({"more": TORCH}, 6, ["torch/version.py, which is a file of torch"]),
    "another project": ({"name": "numpy"}, 2, ["is a wheel of numpy"]),
    "another Python": ({"tag": "cp27-cp27m-linux_x86_64"}, 4, ["tags: cp27-cp27m-linux_x86_64"]),
    "a newer C library": ({"tag": "py3-none-manylinux_2_99_x86_64"}, 4, ["tags: py3-none-manylinux_2_99_x86_64"]),
    "another machine": ({"tag": "py3-none-win_amd64"}, 4, ["tags: py3-none-win_amd64"]),
    "Git LFS pointer": ({"becomes": lambda _: forge.LFS_POINTER}, 6, ["is a Git LFS pointer for 4828304 bytes"]),
    "half of it": ({"becomes": lambda data: data[: len(data) // 2]}, 6, ["is cut off or damaged"]),
    "a web page": ({"becomes": lambda _: b"<!DOCTYPE html><html>Not found</html>"}, 6, ["is a web page"]),
    "a pointer inside": (
        {"more": {"flash_attn/kernels.so": forge.LFS_POINTER}}, 6, ["flash_attn/kernels.so is a Git LFS pointer"],
    ),
}  # fmt: skip
"""How a wheel is made that is not what it says, or not for this place; the exit code, and the evidence."""


@anywhere
@pytest.mark.parametrize(("how", "code", "evidence"), REFUSED.values(), ids=REFUSED)
def test_a_wheel_that_is_false_or_does_not_fit_is_refused_with_the_evidence(
    command, environment, tmp_path, parts, how, code, evidence
) -> None:
    words = {"takes": SET_DEVICE, "more": {}, "becomes": None, "tag": TAG, **how}
    takes, more, becomes = (words.pop(name) for name in ("takes", "more", "becomes"))
    path = forge.wheel(tmp_path, {**parts(takes), **more}, **words)
    if becomes:
        path.write_bytes(becomes(path.read_bytes()))
    add_official(environment)
    with unchanged(environment):
        done = command("--wheel", str(path))
    assert done.code == code, done.err
    assert [line for line in evidence if line not in done.err] == []
    assert not list(tmp_path.glob("evil*"))


BREAKING = {
    "imports what is not there": {"flash_attn/__init__.py": b"import nowhere\n"},
    "ends the process": {"flash_attn/__init__.py": b"import os; os._exit(3)\n"},
    "has programs and data, and does not import": {
        "flash_attn/__init__.py": b"1 / 0\n",
        "flash_attn-2.8.3.data/scripts/attend": b"#!python\n",
        "flash_attn-2.8.3.data/data/share/attention/readme": b"text",
        "flash_attn-2.8.3.data/headers/flash.h": b"",
        "flash_attn-2.8.3.data/purelib/flash_extra/__init__.py": b"",
        "flash_attn-2.8.3.dist-info/entry_points.txt": b"[console_scripts]\nflash-run = flash_attn:main\n",
    },
}


@pytest.mark.parametrize("how", BREAKING)
@pytest.mark.parametrize("official", [True, False], ids=["with another flash-attn", "without one"])
def test_what_fails_after_the_installation_is_undone(command, environment, tmp_path, how, official) -> None:
    if official:
        add_official(environment)
    files = {"flash_attn_2_cuda.py": b"", **BREAKING[how]}
    with unchanged(environment):
        done = command("--wheel", str(forge.wheel(tmp_path, files, tag="py3-none-any")))
    assert_ends(done, 6, "does not import there")


HALF_DONE = """#!/bin/sh
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/SITE/flash_attn" && echo half > "$2/SITE/flash_attn/__init__.py" && echo half > "$2/SITE/flash_attn_2_cuda.py"
echo 'No space left on device' >&2
END
"""


@anywhere
@pytest.mark.parametrize("end", ["exit 2", "kill -9 $$", "sleep 0.5; kill -TERM $PPID; exec sleep 20"])
def test_an_installer_that_leaves_ruins_is_undone(command, good, environment, tmp_path, monkeypatch, end) -> None:
    """It fails, is killed, or flashdepot is asked to stop while it works."""
    add_official(environment)
    program = tmp_path / "programs" / "uv"
    program.parent.mkdir()
    program.write_text(
        HALF_DONE.replace("SITE", str(environment.site.relative_to(environment.root))).replace("END", end)
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    with unchanged(environment):
        done = command("--wheel", str(good))
    assert done.code == (-signal.SIGTERM if "TERM" in end else 3), done.err
    if done.code == 3:
        assert "error: The disk that holds " in done.err
        assert "is full: uv could not install" in done.err


@anywhere
@pytest.mark.parametrize("number", [0, 2, 5])
def test_a_disk_that_fills_up_half_way_changes_nothing(command, good, environment, monkeypatch, number) -> None:
    add_official(environment)
    left, move = [number], change.EnvironmentChange._move

    def moving(self: change.EnvironmentChange, source: Path, destination: Path) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.ENOSPC, "No space left on device", str(destination))
        move(self, source, destination)

    monkeypatch.setattr(change.EnvironmentChange, "_move", moving)
    with unchanged(environment):
        done = command("--wheel", str(good))
    assert_ends(done, 3, "is full")


@anywhere
@posix("a limit for files")
def test_a_full_disk_of_temporary_files_is_not_blamed_on_the_wheel(command, good, environment, monkeypatch) -> None:
    opened = Path.open

    def opening(path: Path, *arguments: Any, **keywords: Any) -> Any:
        if path.name == "member":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opened(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", opening)
    with unchanged(environment):
        done = command("--wheel", str(good))
    assert_ends(done, 3, "The disk that holds temporary files, ", "export TMPDIR=DIR")


@anywhere
def test_an_unverified_wheel_is_taken_only_when_that_is_said(command, server, good, environment) -> None:
    done = command("--wheel", address(server), "--accept-unverified", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["wheel"]["sha256"] == digest(good)
    asked = len(server.seen)
    done = command("--wheel", address(server), "--sha256", digest(good))
    assert (done.code, f" Later: flashdepot verify --python {environment.python}\n" in done.err) == (0, True), done.err
    assert len(server.seen) == asked, "it is kept by its digest"


@anywhere
def test_a_dry_run_says_what_would_happen_and_changes_nothing(command, server, good, environment, tmp_path) -> None:
    add_official(environment)
    before = environment.contents()
    done = command("--wheel", str(good), "--dry-run", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["status"], document["replaces"]) == ("planned", "2.7.0")
    assert (document["sha256"], document["size"]) == (digest(good), good.stat().st_size)
    done = command("--wheel", address(server), "--dry-run")
    assert f"Would install {address(server)}" in done.err
    assert "instead of flash-attn 2.7.0" in done.err
    assert server.seen == []
    assert environment.contents() == before


@anywhere
def test_offline_nothing_is_fetched_and_what_is_there_is_used(command, server, good, environment, monkeypatch) -> None:
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    options = ("--wheel", address(server), "--sha256", digest(good))
    with unchanged(environment):
        done = command(*options)
    assert_ends(done, 7, f"Fetching {good.name} needs the network, and --offline or FLASHDEPOT_OFFLINE forbids it")
    monkeypatch.delenv("FLASHDEPOT_OFFLINE")
    assert command(*options).code == 0
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    assert command(*options).code == 0


@anywhere
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--wheel", "nowhere.whl"], "There is no file nowhere.whl"),
        (["--wheel", "ftp://example.org/a.whl"], "is not an address that can be fetched"),
        (["--wheel", "https://example.org/page"], "does not end with a wheel's file name"),
        (["--wheel", "https://example.org/a.whl", "--sha256", "abc"], "is not a SHA-256"),
        (["--wheel", "x.whl", "--source", "ours"], "contradict each other"),
        (["--sha256", "0" * 64], "is the digest of a wheel that is named"),
        (["--locked"], "There is no lock file"),
        (["--locked", "--source", "official"], "--locked and --source contradict each other"),
        (["--locked", "--wheel", "x.whl"], "--wheel and --locked contradict each other"),
    ],
)
def test_options_that_make_no_sense_are_refused(command, options, said) -> None:
    done = command(*options)
    assert_ends(done, 2, said)


def test_a_kill_while_the_installer_runs_changes_nothing_and_the_next_run_cleans_up(
    command, environment, tmp_path
) -> None:
    """The installer is caught in the middle: it has many files to write. It ends with the process that started it."""
    add_official(environment)
    before = environment.contents()
    files = {f"flash_attn/many/file_{n}.py": b"x = 1\n" * 50 for n in range(8000 if os.name == "posix" else 500)}
    wheel = forge.wheel(tmp_path, {"flash_attn/__init__.py": b"", "flash_attn_2_cuda.py": b"", **files}, tag=TAG)
    words = ["install", "--python", str(environment.python), "--depot", str(tmp_path / "depot"), "--wheel", str(wheel)]
    with subprocess.Popen([sys.executable, "-m", "flashdepot", *words], stderr=subprocess.DEVNULL) as process:
        staged = environment.root / ".flashdepot-install" / "new"
        while not list(staged.rglob("file_*.py")):
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.002)
        process.kill()
    assert {k: v for k, v in environment.contents().items() if not k.startswith(".flashdepot-install")} == before
    assert command("--wheel", "nowhere.whl").code == 2
    assert environment.contents() == before
    time.sleep(0.5)
    assert environment.contents() == before, "the installer of the killed run continues"


NUMERIC = """
import json, sys
if MODE == "memory":
    raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
if MODE == "crash":
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
rows = [{"ok": True, "what": "forward", "dtype": "fp16"}, {"ok": MODE == "right", "what": "backward", "dtype": "bf16"}]
print(json.dumps({"gpu": "a GPU", "rows": rows + [{"ok": None, "what": "kv", "dtype": "fp16"}]}))
"""


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("right", "2 1"),
        ("memory", "the GPU has no free memory now"),
        ("crash", "does not compute: .*illegal memory access"),
        ("wrong", "computes wrong numbers on a GPU: 1 of 3; the first: bf16 backward"),
    ],
)
def test_wrong_numbers_refuse_an_installation_and_a_busy_gpu_does_not(
    bare_venv, tmp_path, monkeypatch, mode, said
) -> None:
    (tmp_path / "numeric.py").write_text(f"MODE = {mode!r}\n{NUMERIC}")
    monkeypatch.setattr("flashdepot.prove.environment.__file__", str(tmp_path / "environment.py"))
    environment = probe_python(bare_venv.python)
    imported = Imported("2.8.3", "2.9.1", tmp_path, sees_gpu=True)
    if mode in {"crash", "wrong"}:
        with pytest.raises(IntegrityError, match=said):
            verify_numbers(environment, imported, has_gpu=True)
    else:
        numbers = verify_numbers(environment, imported, has_gpu=True)
        assert said in {numbers.not_run, f"{numbers.right} {numbers.skipped}"}
