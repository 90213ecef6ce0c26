"""flashdepot itself on Windows: its commands, run by a Windows Python under wine."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import flashdepot
from flashdepot.depot import Depot
from flashdepot.depot.actions import ActionRecord
from support import forge
from support.depots import copy_depot
from support.servers import serve_files
from support.tools import Wine, flashdepot_here, run_program, windows_path

pytestmark = pytest.mark.network

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("remote add team file://server/share/flash", 0, "Added: team         file://server/share/flash"),
        (r"get --out Q:\nowhere\lib", 2, "is nowhere: there is no Q:"),
        ("get --out aux --arch 90", 2, "'aux' is a device of Windows, and no folder"),
        (r"get --out \\server\share\lib", 2, r"there is no \\server\share"),
        ("--version", 0, f"flashdepot {flashdepot.__version__}"),
        ("host", 0, "windows-x86_64"),
        ("depot init", 0, "depot"),
        ("depot ls", 0, "The depot has no library yet"),
        ("depot verify", 0, "no problems"),
        ("catalog stats", 0, "wheels"),
        ("check python.exe", 2, "python.exe"),
        ("link flags", 4, "flashdepot get"),
        ("get --arch 90", 3, "flashdepot get --target windows-x86_64"),
        ("doctor build", 3, "wsl bash -lc"),
        ("doctor install", 3, "has no PyTorch"),
        ("install --dry-run --arch 90", 3, "PyTorch"),
    ],
)
def test_a_command_answers_and_ends_by_its_answer(on_windows: Run, words: str, code: int, said: str) -> None:
    done = on_windows(*words.split())
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "Internal error" not in done.stderr


def test_what_cannot_be_built_there_is_said_once_and_nothing_else_is_advised(on_windows: Run) -> None:
    done = on_windows("resolve", "--torch", "2.9", "--python-tag", "cp311", "--gpu", "9.0", "--driver", "580.0")
    assert done.returncode == 4, done.stderr
    assert "No device code is compiled on Windows" in done.stdout
    assert "--profile quick" not in done.stdout


def test_a_failure_is_explained_there(on_windows: Run) -> None:
    assert "module-missing" in on_windows("explain", "ModuleNotFoundError: No module named 'torch'").stdout


def test_keys_are_made_and_a_remote_of_a_folder_is_read(on_windows: Run, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    address = "file:///" + windows_path(tmp_path / "shared").replace("\\", "/")
    added = on_windows("remote", "add", "team", address, "--push")
    assert added.returncode == 0, added.stderr
    done = on_windows("get", "--profile", "quick", "--arch", "90")
    assert (done.returncode, "keys trust" in done.stderr) == (3, True), "no key is trusted, and nothing is fetched"
    assert on_windows("keys", "new", "me").returncode == 0
    assert "(yours)" in on_windows("keys", "ls").stdout
    for words in ("remote ls", "depot ls"):
        done = on_windows(*words.split())
        assert done.returncode == 0, done.stderr
    (tmp_path / "shared").rename(tmp_path / "away")
    done = on_windows("get", "--profile", "quick", "--arch", "90")
    assert (done.returncode, "wsl bash -lc" in done.stderr) == (3, True), (
        "nobody has device code, and nothing is fetched"
    )


@pytest.mark.skipif(
    os.environ.get("FLASHDEPOT_TEST_COMPILER") != "1", reason="compiles for minutes: set FLASHDEPOT_TEST_COMPILER=1"
)
def test_a_library_is_built_there_around_device_code_of_a_remote_to_the_bytes_of_linux(
    wine: Wine, portable: Path, home_there: dict[str, str], tmp_path: Path, quick_library: Path, real_depot: Path
) -> None:
    """The library ``quick``: compiled, linked and stored by a Windows Python and ``zig.exe``."""
    assert quick_library.is_dir()
    linux = copy_depot(real_depot, tmp_path / "linux")
    shared, wanted = tmp_path / "shared", ("get", "--profile", "quick", "--arch", "80,90", "--yes")
    shared.mkdir()
    flashdepot_here("keys", "new", "me")
    flashdepot_here("remote", "add", "team", shared.as_uri(), "--push")
    assert flashdepot_here("depot", "push", "--depot", linux).returncode == 0
    flashdepot_here("remote", "rm", "team")
    expected = flashdepot_here(*wanted, "--target", "windows-x86_64", "--depot", linux, "--json")
    assert expected.returncode == 0, expected.stderr
    network = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_CERT", "REQUESTS_CA"))
    }
    trusted = json.loads(flashdepot_here("keys", "ls", "--json").stdout)["keys"][0]["key"]
    for words in (
        ("keys", "trust", trusted),
        ("remote", "add", "team", "file:///" + windows_path(shared).replace("\\", "/")),
        wanted,
    ):
        command = wine.command(str(portable / "python.exe"), "-m", "flashdepot", *words)
        run_program(command, env=wine.environment(**network, **home_there))
    (library,) = (tmp_path / "home" / "depot" / "libraries").iterdir()
    made_there, made_here = files_of(library), files_of(Path(json.loads(expected.stdout)["path"]))
    differ = {name for name, digest in made_here.items() if made_there.get(name) != digest}
    assert differ == {"manifest.json", "share/sbom/libflashattention.cdx.json"}, "they name zig by its digest"
    assert made_there.keys() == made_here.keys()
    kept = records(tmp_path / "home" / "depot")
    assert [name for record in kept for name in record.inputs if not name.startswith("{")] == [], "paths of this build"
    made = {record.name: record.object.digest for record in kept}
    there = {record.object.digest for record in records(linux)}
    assert sum("windows" in name for name in made) > 30
    assert [name for name, digest in made.items() if digest not in there] == []


def files_of(library: Path) -> dict[str, str]:
    """The digest of every file of a library, by its place."""
    files = (path for path in library.rglob("*") if path.is_file())
    return {path.relative_to(library).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def records(depot: Path) -> list[ActionRecord]:
    """What a depot has of compiler runs."""
    actions = Depot(depot).actions
    return [record for path in actions.files() if (record := actions.read(path))]


def test_a_wheel_is_fetched_installed_into_a_portable_python_and_imported(
    on_windows: Run, with_torch: Path, wine: Wine, tmp_path: Path
) -> None:
    """ComfyUI's portable edition brings such a Python, and no virtual environment."""
    files = {"flash_attn/__init__.py": b"__version__ = '2.8.3'\n", "flash_attn_2_cuda.py": b""}
    made = forge.wheel(tmp_path, files, tag="cp311-cp311-win_amd64")
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    with serve_files() as server:
        server.files[f"/{made.name}"] = made.read_bytes()
        url = f"{server.url}/{made.name}#sha256={digest}"
        done = on_windows("install", "--wheel", url, "--json")
        again = on_windows("install", "--wheel", url)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "installed"
    assert again.returncode == 0, again.stderr
    asked = wine.run(
        str(with_torch / "python.exe"), "-c", "import flash_attn; print(flash_attn.__version__)", cwd=tmp_path
    )
    assert asked.stdout.strip() == "2.8.3"
    assert not (with_torch / ".flashdepot-install").exists()
