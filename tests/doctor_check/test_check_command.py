import json
from functools import partial
from pathlib import Path

import places
import pytest
from places import ERROR_NEW_ABI, SET_DEVICE_2_3, SET_DEVICE_2_8

from support import forge
from support.tools import flashdepot_here

check = partial(flashdepot_here, "check")


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "venv"
    return places.environment_with_torch(folder, SET_DEVICE_2_8, ERROR_NEW_ABI)


@pytest.mark.parametrize(
    ("symbol", "code", "said"),
    [
        (SET_DEVICE_2_8, 0, "torch 2.8.0+cu128 has them all"),
        (
            SET_DEVICE_2_3,
            4,
            f"torch 2.8.0+cu128 lacks 1: {SET_DEVICE_2_3}\n{'':15}Take the build for torch 2.8.0+cu128,",
        ),
        ("_ZN2at99nobody_knowsEv", 4, "lacks 1"),
    ],
)
def test_the_torch_of_a_python_is_read_and_not_imported(tmp_path, python, symbol, code, said) -> None:
    done = check(places.extension(tmp_path, symbol), "--python", python)
    assert done.returncode == code, done.stderr
    assert said in done.stdout
    assert "torch was imported" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("required", "noted"),
    [
        ("torch<2.8", True),
        ("torch==2.8.0", False),
        ("torch", False),
        ("torch<2.8; extra == 'old'", False),
        ("torch of any kind", False),
    ],
)
def test_what_a_wheel_requires_of_an_installed_torch_is_a_note_because_it_may_load(
    tmp_path, python, required, noted
) -> None:
    packed = forge.wheel(tmp_path, {"pkg/__init__.py": b""}, tag="py3-none-any", requires=(required,))
    done = check(packed, "--python", python)
    assert done.returncode == 0, done.stdout
    assert ("it requires torch<2.8 | torch 2.8.0+cu128" in done.stdout) is noted


def test_of_several_files_the_worst_decides(tmp_path, python) -> None:
    folder = tmp_path / "flash_attn"
    folder.mkdir()
    good = forge.shared_library(folder, name="good.so")
    bad = places.extension(folder, SET_DEVICE_2_3, name="bad.so")
    (folder / "pointer.so").write_bytes(forge.LFS_POINTER)
    assert check(good, "--python", python).returncode == 0
    assert check(good, bad, "--python", python).returncode == 4
    done = check(folder, "--python", python, "--json")  # as in site-packages
    assert done.returncode == 6
    document = json.loads(done.stdout)
    assert document["status"] == "damaged"
    for marker in (folder / "pyvenv.cfg", folder / "conda-meta"):  # of an environment only what is flash_attn's
        marker.touch()
        assert check(folder, "--python", python).returncode == 2
        marker.unlink()
    assert [file["verdict"] for file in document["files"]] == ["does not fit", "fits", "damaged"]
    line = document["files"][0]["evidence"][0]
    assert set(line) == {"outcome", "topic", "where", "seen", "environment", "fix"}


def test_of_a_library_s_folder_both_libraries_are_checked(quick_library, tmp_path) -> None:
    done = check(quick_library, "--gpu", "8.0", "--json")
    assert done.returncode == 0, done.stderr
    seen = [Path(file["file"]).relative_to(quick_library) for file in json.loads(done.stdout)["files"]]
    assert seen == [Path("lib/shared/libflashattention.so.1"), Path("lib/static/libflashattention.a")]
    assert done.stderr == ""  # no Python loads it: none is named
    linked = json.loads(check(quick_library / "lib", "--gpu", "8.0", "--json").stdout)["files"]
    assert [Path(file["file"]).name for file in linked] == ["libflashattention.so.1"]
    other = check(tmp_path)
    assert (other.returncode, other.stdout) == (2, "")
    assert f"{tmp_path} is not a library that flashdepot wrote" in other.stderr


def test_what_cannot_be_known_has_an_exit_code_of_its_own(tmp_path) -> None:
    done = check(places.extension(tmp_path, "_ZN2at99nobody_knowsEv"), "--torch", "2.8")
    assert done.returncode == 3
    assert "cannot tell" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument"),
        (["/nowhere.so"], "/nowhere.so cannot be read"),
        (["FILE", "--torch", "new"], "'new' is not a version of PyTorch"),
        (["FILE", "--torch", "2"], "'2' is not a version of PyTorch"),
        (["FILE", "--gpu", "hopper"], "'hopper' is not a GPU architecture"),
        (["FILE", "--python", "true"], "does not answer like a Python"),
        (["FILE", "--host", "/nowhere.json"], "flashdepot host --save"),
    ],
)
def test_wrong_usage_says_what_was_wrong(tmp_path, arguments, said) -> None:
    library = str(forge.shared_library(tmp_path))
    done = check(*[library if argument == "FILE" else argument for argument in arguments])
    assert done.returncode == 2
    assert said in done.stderr


def test_a_saved_host_decides_instead_of_this_machine(tmp_path) -> None:
    record = tmp_path / "host.json"
    record.write_text(json.dumps(places.machine("linux-aarch64").to_json()))
    assert check(forge.shared_library(tmp_path), "--host", record).returncode == 4
