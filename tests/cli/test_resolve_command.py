"""``resolve`` and ``lock`` as a user runs them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flashdepot.model.limits import joined
from support.own_world import CONFIG
from support.tools import assert_ends, flashdepot_here, posix

RECORDS = Path(__file__).parents[1] / "doctor" / "records"
H100 = ("--host", str(RECORDS / "ubuntu-24.04-h100.json"))
OFFICIAL = "flash_attn-2.8.3.post1+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"


@pytest.fixture
def flashdepot_at(tmp_path: Path) -> Any:
    """Run a command in an empty folder, with an empty depot and without the network."""
    return lambda *words: flashdepot_here(*words, "--depot", tmp_path / "depot", cwd=tmp_path, FLASHDEPOT_OFFLINE="1")


def test_the_page_names_the_choice_its_reason_the_runner_up_and_what_was_left_out(flashdepot_at) -> None:
    done = flashdepot_at("resolve", *H100)
    assert done.returncode == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert f"take       {OFFICIAL}" in lines
    assert "fits torch 2.8, CUDA 12, its C++ ABI, cp312; machine code for 80,90,100,120" in lines
    assert "runner-up  flash-attn 2.8.3.post2, built here for sm_90" in lines
    assert "comes second: the first needs no compiler" in lines
    assert any(line.endswith("for another torch (nearest: 2.7)") for line in lines)


def test_the_newest_version_is_the_nearest_to_one_that_is_newer_than_all(flashdepot_at) -> None:
    wheels = json.loads(flashdepot_at("catalog", "ls", "--json").stdout)
    versions = {wheel["version"] for wheel in wheels if wheel["distribution"] == "flash-attn"}
    newest = max(tuple(map(int, version.split("."))) for version in versions if re.fullmatch(r"[\d.]+", version))
    rejected = json.loads(flashdepot_at("resolve", *H100, "--version", "5", "--json").stdout)["rejected"]
    (nearest,) = [one["nearest"] for one in rejected if one["rule"] == "version"]
    assert nearest == ".".join(map(str, newest))


def test_the_json_document_has_choice_verdict_and_counts(flashdepot_at) -> None:
    document = json.loads(flashdepot_at("resolve", *H100, "--json").stdout)
    assert (document["status"], document["chosen"]["name"]) == ("decided", OFFICIAL)
    assert (document["chosen"]["verdict"], document["chosen"]["verified"]) == ("fits", False)
    assert document["facts"]["gpus"] == ["9.0"]
    rejected = sum(group["count"] for group in document["rejected"])
    kept = document["fitting"] + document["uncertain"] + len(document["misfits"])
    assert document["considered"] == rejected + kept > 9000


def test_the_answer_ends_in_its_address_and_the_command_that_takes_it(flashdepot_at) -> None:
    done = flashdepot_at("resolve", *H100)
    url = next(line.strip() for line in done.stdout.splitlines() if "https://" in line)
    assert url.endswith(f"/{OFFICIAL}")
    command = f"flashdepot install --wheel {url}"  # asks the release for the digest, which the catalog does not have
    assert done.stdout.splitlines()[-1] == f"  {command}"
    assert json.loads(flashdepot_at("resolve", *H100, "--json").stdout)["command"] == command


@posix("system that is also the record's")
def test_for_another_machine_our_wheel_is_made_for_its_gpus(flashdepot_at) -> None:
    done = flashdepot_at("resolve", *H100, "--source", "ours")
    command = done.stdout.splitlines()[-1].strip()
    assert command.startswith("flashdepot wheel --arch 90 ")
    assert f"--host {joined([RECORDS / 'ubuntu-24.04-h100.json'])} " in command
    assert command.endswith(" --out dist")
    assert "--yes" not in command, "compiling for long is agreed to when its forecast is read"


def test_a_version_of_python_is_as_good_as_its_tag(flashdepot_at) -> None:
    by_version, by_tag = (flashdepot_at("resolve", *H100, "--python-tag", word).stdout for word in ("3.11", "cp311"))
    assert by_version == by_tag
    assert "cp311" in by_version


NO_CUDA = ("--torch", "2.9.1+cpu")


@pytest.mark.parametrize(
    ("options", "code", "status", "said"),
    [
        (("--gpu", "7.5"), 4, "nothing fits", "Its kernels need compute capability 8.0 or newer"),
        (("--torch", "none"), 4, "nothing fits", "Install PyTorch first."),
        (("--torch", "2.5", "--gpu", "12.0"), 4, "nothing fits", "flashdepot resolve --torch 2.8 --gpu 12.0 "),
        ((*NO_CUDA, "--python-tag", "3.14"), 4, "nothing fits", " --allow community --depot "),
        ((*NO_CUDA, "--platform", "windows-x86_64"), 4, "nothing fits", " --allow community --depot "),
        ((*NO_CUDA, "--python-tag", "3.15"), 4, "nothing fits", "built here for sm_90 first"),
        (("--python-tag", "3.13t", "--source", "official"), 4, "nothing fits", " --python-tag cp313 "),
        (("--gpu", "orin"), 4, "nothing fits", "A Jetson (8.7) has an Arm CPU"),
        (("--platform", "windows"), 2, "error", "windows-x86_64 or darwin-arm64"),
    ],
)
def test_without_a_choice_the_exit_code_and_the_page_say_what_is_in_the_way(
    options, code, status, said, flashdepot_at
) -> None:
    page, document = flashdepot_at("resolve", *H100, *options), flashdepot_at("resolve", *H100, *options, "--json")
    assert (page.returncode, document.returncode) == (code, code)
    assert said in page.stdout + page.stderr
    assert json.loads(document.stdout)["status"] == status


@posix("C library to ask for")
@pytest.mark.parametrize("verb", ["resolve", "lock"])
def test_a_missing_fact_ends_in_the_command_that_tells_it(flashdepot_at, tmp_path, verb) -> None:
    unknown_abi = ("--torch", "2.6+own", "--torch-cuda", "12.4", "--python-tag", "cp311", "--gpu", "9.0")
    *_, last = (
        flashdepot_at("resolve", *unknown_abi, "--driver", "580", "--source", "official").stdout.rstrip().splitlines()
    )
    assert flashdepot_at("resolve", *last.split()[2:]).returncode == 0
    asked = (verb, "--torch", "2.9", "--python-tag", "cp311", "--glibc", "2.35")
    done = flashdepot_at(*asked)
    assert done.returncode == 3
    *_, last = done.stdout.rstrip().splitlines()
    assert last.startswith(f"  flashdepot {' '.join(asked)} ")
    assert last.endswith(" --gpu 9.0 --driver 580")
    assert flashdepot_at("resolve", *last.split()[2:]).returncode == 0
    assert not (tmp_path / "flashdepot.lock").exists()


@pytest.mark.parametrize(
    ("record", "ends_in"),
    [("no-gpu", "--gpu 9.0"), ("no-driver", "--torch 2.8.0+cu128 --driver 580")],
)
def test_a_record_of_a_jetson_that_lacks_facts_ends_in_the_command_that_tells_them(
    flashdepot_at, tmp_path, record, ends_in
) -> None:
    orin = json.loads((RECORDS / "aarch64-jetson-orin.json").read_text())
    gpus = [] if record == "no-gpu" else [{"name": "Orin", "architecture": "8.7", "memory": 0}]
    (tmp_path / "orin.json").write_text(json.dumps({**orin, "gpus": gpus}))
    done = flashdepot_at("resolve", "--host", tmp_path / "orin.json")
    assert done.returncode == 3
    last = done.stdout.rstrip().splitlines()[-1]
    assert ends_in in last
    assert " --allow " not in last
    again = flashdepot_at("resolve", *last.split()[2:])
    assert "A fact is missing" not in again.stdout


def test_without_pytorch_here_the_answer_ends_in_the_command_that_gets_it(
    flashdepot_at, bare_venv, monkeypatch
) -> None:
    monkeypatch.setattr("flashdepot.host.tools.find_compilers", tuple)  # no compiler is asked its version
    python = str(bare_venv.root)
    done = flashdepot_at("resolve", "--python", python, "--gpu", "9.0", "--driver", "580")
    assert done.returncode == 4, done.stderr
    last = done.stdout.rstrip().splitlines()[-1]
    assert "pip install " in last
    assert last.endswith(" --upgrade torch")
    fitting = flashdepot_at("resolve", "--python", python, "--torch", "2.8", "--torch-cuda", "12.8", "--cxx11abi", "--gpu",
        "9.0", "--driver", "580", "--platform", "linux-x86_64", "--glibc", "2.35", "--python-tag", "3.12")  # fmt: skip
    assert fitting.stdout.splitlines()[-1].startswith(
        f"  {joined(['flashdepot', 'install', '--python', python])} --wheel "
    )


def test_nobody_on_windows_is_shown_a_wheel_for_linux(flashdepot_at) -> None:
    windows = ("--host", str(RECORDS / "windows-11-msvc-2022.json"))
    done = flashdepot_at(
        "resolve", *windows, "--torch", "2.8", "--torch-cuda", "12.8", "--gpu", "8.9", "--source", "official"
    )
    assert done.returncode == 4
    assert "win_amd64.whl" in done.stdout
    assert "linux_x86_64.whl" not in done.stdout


@pytest.mark.parametrize(
    ("named", "code", "said"),
    [
        (
            "flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp312-cp312-linux_x86_64.whl",
            4,
            [
                "abiFALSE-cp312-cp312-linux_x86_64.whl: does not fit",
                "It is built for torch 2.6, and this is 2.8.0+cu128",
                "It is built with the old C++ ABI",
                "keeps: distribution, version, platform",
            ],
        ),
        (OFFICIAL.replace(".post1", ""), 0, ["it is number 2 of 3 that fit", "2.8.3.post1 is newer than 2.8.3"]),
        (
            "flash_attn-2.8.3+cu128torch2.7me-cp312-cp312-linux_x86_64.whl",
            4,
            ["It is built for torch 2.7", "only its name is judged"],
        ),
    ],
    ids=["one that does not fit", "one that fits", "one that nobody lists"],
)
def test_explain_tells_rule_by_rule_why_a_wheel_is_not_the_one(flashdepot_at, named, code, said) -> None:
    done = flashdepot_at("resolve", *H100, "--explain", named)
    assert done.returncode == code
    assert [words for words in said if words not in done.stdout + done.stderr] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--explain", "nothing"), "neither the file name nor the version"),
        (("--source", "community:nobody"), "is not a source: there are community, community:"),
        (("--version", "newest"), "'newest' is not a version"),
        (("--gpu", "fast"), "'fast' is not a GPU architecture"),
        (("--python", sys.executable), "give one of them"),
    ],
)
def test_a_value_that_cannot_be_understood_is_a_usage_error(options, said, flashdepot_at) -> None:
    done = flashdepot_at("resolve", *H100, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_lock_writes_keeps_checks_and_renews(flashdepot_at, tmp_path) -> None:
    path = tmp_path / "flashdepot.lock"
    refused = flashdepot_at("lock", *H100, "--version", "2.8.3")
    assert (refused.returncode, path.exists()) == (6, False)
    assert "No SHA-256 is known" in refused.stderr
    assert flashdepot_at("lock", *H100, "--version", "2.8.3", "--accept-unverified").returncode == 0
    first = path.read_bytes()
    assert b'torch = "2.8.0+cu128"' in first
    kept = flashdepot_at("lock", *H100)
    assert (kept.returncode, path.read_bytes()) == (0, first)
    assert flashdepot_at("lock", *H100, "--check").returncode == 0
    moved = flashdepot_at("lock", *H100, "--check", "--torch", "2.7.1+cu128")
    assert (moved.returncode, path.read_bytes()) == (4, first)
    assert "It is built for torch 2.8, and this is 2.7.1+cu128" in moved.stdout
    assert " torch 2.8.0+cu128 " in moved.stdout.splitlines()[-3]
    assert moved.stdout.splitlines()[-1].endswith(
        f" {joined(['--host', H100[1]])} --depot {tmp_path / 'depot'} --upgrade"
    )
    assert flashdepot_at("lock", *H100, "--upgrade", "--accept-unverified").returncode == 0
    assert OFFICIAL.encode() in path.read_bytes()


def test_lock_check_names_what_is_wrong_with_the_file(flashdepot_at, tmp_path) -> None:
    assert_ends(flashdepot_at("lock", *H100, "--check", "--out", "other.lock"), 2, "lock --upgrade --out other.lock")
    (tmp_path / "flashdepot.lock").write_text("schema = 1\nwheel = 3\n")
    wrong = flashdepot_at("lock", *H100, "--check")
    assert_ends(wrong, 2, "wheel is 3: expected a table")


def test_what_must_be_compiled_before_it_is_locked_is_answered_with_the_command_for_that_gpu(flashdepot_at) -> None:
    refused = flashdepot_at("lock", *H100, "--source", "ours", "--gpu", "8.9")
    assert_ends(refused, 4, "cannot be pinned", "flashdepot wheel --arch 89 ", " --out dist")


def test_names_are_locked_only_over_our_flash_attn(flashdepot_at, tmp_path) -> None:
    options = ("--source", "official", "--names", "flash-attn-3", "--accept-unverified")
    refused = flashdepot_at("lock", *H100, *options)
    assert_ends(refused, 4, "is not flashdepot's, and flash-attn-3 only work with ours")
    assert not (tmp_path / "flashdepot.lock").exists()


def test_lock_leaves_no_file_when_nothing_fits(flashdepot_at, tmp_path) -> None:
    done = flashdepot_at("lock", *H100, "--gpu", "7.5", "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (4, "nothing fits")
    assert not (tmp_path / "flashdepot.lock").exists()


@posix("variables that name a user's folders, so that platformdirs is asked")
def test_a_decision_imports_nothing_that_it_does_not_need(tmp_path) -> None:
    words = [
        "resolve",
        "--torch",
        "2.8.0+cu128",
        "--python-tag",
        "cp312",
        "--gpu",
        "9.0",
        "--depot",
        str(tmp_path / "d"),
    ]
    code = (
        f"import sys; before = set(sys.modules); sys.argv[1:] = {words}; import flashdepot.cli; flashdepot.cli.run(); "
    )
    code += "print(*set(sys.modules) - before, file=sys.stderr)"
    environment = {**os.environ, "HOME": str(tmp_path), CONFIG: str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    heavy = {"packaging", "platformdirs", "psutil", "requests", "rich", "securesystemslib", "subprocess", "tarfile"}
    heavy |= {"tempfile", "tomllib", "urllib3", "zipfile", "flashdepot.toolchain.zig", "flashdepot.toolchain.archives"}
    assert "flash_attn-2.8.3" in done.stdout
    assert heavy & set(done.stderr.split()) == set()
