import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from flashdepot.cli.app import app
from flashdepot.cli.output import ask
from flashdepot.errors import UsageError
from flashdepot.model.limits import duration, joined, parse_size, size
from support.toolkits import make_host
from support.tools import assert_ends, flashdepot_in, posix, run_program
from support.tools import flashdepot_here as flashdepot

RECORD = Path(__file__).parents[1] / "doctor" / "records" / "ubuntu-24.04-h100.json"


def test_the_version_is_printed_without_importing_the_command_line() -> None:
    code = "import sys; sys.argv[1:] = ['--version']; from flashdepot.__main__ import main; main(); "
    code += "print([m for m in ('click', 'rich', 'flashdepot.cli') if m in sys.modules])"
    said = run_program([sys.executable, "-c", code])
    assert said.splitlines()[0].startswith("flashdepot ")
    assert said.splitlines()[1] == "[]"


def test_the_help_lists_every_command_on_one_line_and_how_to_begin() -> None:
    done = flashdepot("--help", COLUMNS="80")
    assert done.returncode == 0
    assert "--profile quick" in done.stdout
    table = done.stdout.split("Options:")[0].splitlines()
    assert not [line for line in table[3:] if line.startswith("   ")], "a line takes two"


def test_the_help_of_a_command_shows_its_own_options_first_and_those_of_every_command_last() -> None:
    titles = [line for line in flashdepot("get", "--help").stdout.splitlines() if line[:1].strip() and line[-1] == ":"]
    assert titles == ["Options:", "Which library:", "How it is built:", "Where it must run:", "Common options:"]


@pytest.mark.parametrize("command", [[], ["depot"], ["depot", "pull"]], ids=" ".join)
def test_the_help_on_a_narrow_terminal_has_no_line_that_it_breaks_within_a_word(command) -> None:
    lines = flashdepot(*command, "--help", COLUMNS="40").stdout.split("Examples:")[0].splitlines()
    long = [line.strip() for line in lines if len(line) > 40]
    assert [line for line in long if not line.startswith("--")] == [], (
        "only names of options, which have no blanks to break at"
    )
    assert max(map(len, lines)) > 30, "most of the terminal is used"


def test_help_is_a_command_too() -> None:
    assert flashdepot("help").stdout == flashdepot("--help").stdout
    assert flashdepot("help", "depot", "ls").stdout == flashdepot("depot", "ls", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["get", "--arch", "75"], 4, "sm_75 cannot run FlashAttention-2"),
        (["get", "--arch", "hopper"], 2, "'hopper' is not a GPU architecture"),
        (["get", "--profile", "fast"], 2, "'fast' is not a profile: there are full, training, inference, quick"),
        (["get", "--head-dims", "80"], 2, "no kernels of head dim 80: there are 32, 64, 96, 128, 192, 256"),
        (["get", "--features", "rotary"], 2, "'rotary' is not a feature: there are dropout"),
        (["get", "--passes", "up"], 2, "'up' is not a pass"),
        (["get", "--dtypes", "fp8"], 2, "'fp8' is not a dtype"),
        (["get", "--upstream", "2.6.3"], 2, "2.8.3.post2"),
        (["get", "--upstream", "/nowhere/at/all"], 2, str(Path("/nowhere/at/all"))),
        (["get", "--host", "/nowhere.json"], 2, "flashdepot host --save"),
        (["install", "flash_attn==2.8.3", "--dry-run"], 2, "flashdepot install --upstream 2.8.3 --dry-run"),
        (["install", "own.whl"], 2, "flashdepot install --wheel own.whl"),
        (["build", "--compress-mode", "both"], 2, "'both' is not one of"),
        (["build", "--memory", "much"], 2, "'much' is not an amount of bytes"),
        (["build", "--cuda", "newest", "--arch", "80"], 2, "'newest' is not a choice of CUDA"),
        (["build", "--cuda", "/nowhere", "--arch", "80"], 3, "nowhere holds no CUDA toolkit"),
        (["doctor", "fly"], 2, "'fly' is not one of"),
        (["doctor", "install", "--python", "/nowhere/python"], 2, "is not a Python interpreter"),
        (["host", "--python", "/etc"], 2, "holds no Python environment"),
        (["depot", "show", "abc"], 2, "no stored library has the key"),
        pytest.param(
            ["host", "--save", "/dev/null/x"],
            2,
            "/dev/null/x cannot be used: Not a directory",
            marks=posix("/dev/null"),
        ),
        pytest.param(
            ["host", "--save", "."], 2, "cannot be used: Is a directory", marks=posix("such error of a folder")
        ),
        pytest.param(
            ["lock", "--check", "--out", "/dev/null/x"],
            2,
            "/dev/null/x cannot be used: Not a directory",
            marks=posix("/dev/null"),
        ),
        (["get", "--memory", "9" * 400], 2, "is not an amount of bytes"),
        (["get", "--memory", "8"], 2, "--memory 8 is 8 bytes, and one compiler takes gigabytes."),
        pytest.param(
            ["get", "--target", "windows-x86_64", "--driver", "550", "--glibc", "2.31", "--arch", "90"],
            2,
            "The library is for windows-x86_64, and --driver and --glibc would describe linux-",
            marks=posix("other system than that target's"),
        ),
        (
            ["get", "--arch", "90", "--target", "macos-arm64"],
            2,
            "'macos-arm64' is not a target: there are linux-x86_64",
        ),
        pytest.param(
            ["get", "--offline", "--arch", "80,200"],
            3,
            "nvcc 13.0.88 cannot make sm_200: its newest is sm_121. 'flash",
            marks=posix("nvcc that flashdepot could start"),
        ),
        (["get", "--dtypes", "int8", "--dtypes", "bf16"], 2, "'int8' is not a dtype"),
        (["keys", "new", "--name", "me"], 2, "No such option '--name'.\n"),
        (["depot", "pull", "--arch", "90"], 4, "whom you trust, 'flashdepot keys ls'"),
        (["catalog", "ls", "--cuda", "12.8"], 2, "No such option"),
        (["get", "--out", "lib/aux", "--arch", "90"], 2, "'aux' is a device of Windows, and no folder."),
        (["vendor", "third/NUL.d", "--arch", "90"], 2, "'NUL.d' is a device of Windows, and no folder."),
    ],
)
def test_wrong_words_get_their_exit_code_and_the_right_ones(tmp_path, arguments, code, said) -> None:
    words = (*arguments, "--depot", str(tmp_path))
    looks = (
        arguments[0] in {"host", "lock"} or "--python" in arguments
    )  # at the compilers of this machine, as no test in this process may
    done = flashdepot_in(tmp_path, *words) if looks else flashdepot(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


@posix("nvcc that flashdepot could start")
@pytest.mark.parametrize(
    ("driver", "way_out"),
    [("535.104.05", "name the folder of a toolkit of CUDA 12"), ("470.82", "Update the driver: no nvcc")],
)
def test_a_driver_below_the_floor_is_refused_with_the_way_out(driver, way_out, tmp_path) -> None:
    record = tmp_path / "host.json"
    record.write_text(json.dumps({**json.loads(RECORD.read_text()), "driver": driver}))
    words = ("--arch", "90", "--host", record, "--depot", tmp_path / "depot", "--offline")
    done = flashdepot_in(tmp_path, "get", "--profile", "quick", *words)
    assert_ends(done, 4, f"driver is {driver}; what nvcc 13.0.88 builds needs 580", way_out)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("candle", "flashdepot link candle"),
        ("push", "flashdepot depot push"),
        ("instal", "flashdepot install"),
        ("sing", "There are install, resolve,"),
        ("farm", "It is an option: flashdepot build --farm ADDRESS"),
    ],
)
def test_a_wrong_command_gets_the_right_one_of_its_group_too(word, said) -> None:
    assert f"error: No such command '{word}'.\n  {said}" in flashdepot(word).stderr


@pytest.mark.parametrize("name", ["aux", "Con.old", "COM1"])
def test_a_key_whose_file_windows_cannot_have_is_not_made(name, tmp_path) -> None:
    config = {"XDG_CONFIG_HOME": str(tmp_path), "APPDATA": str(tmp_path)}
    assert_ends(flashdepot("keys", "new", name, **config), 2, "it is a device of Windows")


@pytest.mark.parametrize("group", [[], ["depot"]])
def test_a_word_too_few_gets_the_help_and_no_error(group) -> None:
    done = flashdepot(*group)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith(f"Usage: {' '.join(['flashdepot', *group])} [OPTIONS] COMMAND")


def test_a_toolkit_that_is_a_link_to_itself_is_refused(tmp_path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    done = flashdepot("get", "--cuda", "./loop", "--arch", "80", "--depot", str(tmp_path / "depot"), cwd=tmp_path)
    assert_ends(done, 3, f"{tmp_path / 'loop'} holds no CUDA toolkit")


def test_an_error_is_one_json_document_when_asked_for(tmp_path) -> None:
    done = flashdepot("get", "--arch", "75", "--json", "--depot", str(tmp_path))
    document = json.loads(done.stdout)
    assert (document["status"], document["exit_code"]) == ("error", 4)
    assert "sm_75" in document["message"]
    assert document["hint"]


def test_a_project_file_sets_what_the_command_line_does_not(tmp_path) -> None:
    (tmp_path / "flashdepot.toml").write_text('profile = "quick"\narch = [75]\n')
    inside = tmp_path / "src" / "deep"
    inside.mkdir(parents=True)
    assert "sm_75 cannot run" in flashdepot("get", cwd=inside).stderr
    assert "sm_61 cannot run" in flashdepot("get", "--arch", "61", cwd=inside).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profle = 'quick'", "'profle' is not a key of this file: there are upstream, profile"),
        ("profile = ", "is not valid TOML"),
        ("[profile]\nname = 'x'", "must be texts or numbers"),
    ],
)
def test_a_mistake_in_a_project_file_names_the_file(tmp_path, text, said) -> None:
    (tmp_path / "flashdepot.toml").write_text(text)
    done = flashdepot("get", cwd=tmp_path)
    assert_ends(done, 2, said, "flashdepot.toml")


def test_a_host_record_is_saved_and_printed(tmp_path) -> None:
    assert flashdepot_in(tmp_path, "host", "--save", str(tmp_path / "h.json"), "--quiet").stdout == ""
    saved = json.loads((tmp_path / "h.json").read_text())
    assert saved["schema"] == 1
    printed = json.loads(flashdepot_in(tmp_path, "host", "--json").stdout)
    changing = {"memory", "memory_facts", "disks"}
    assert {k: v for k, v in printed.items() if k not in changing} == {
        k: v for k, v in saved.items() if k not in changing
    }
    assert "memory" in flashdepot_in(tmp_path, "host").stdout


def test_the_architectures_that_can_be_built_are_listed() -> None:
    assert "9.0" not in flashdepot("get", "--arch", "list").stdout.splitlines()[0]
    listed = json.loads(flashdepot("get", "--arch", "list", "--json").stdout)
    assert {"80", "90", "100", "120"} <= {row["arch"] for row in listed}
    assert "75" not in {row["arch"] for row in listed}


def test_a_system_that_nothing_is_built_for_is_answered_with_those_that_there_are(tmp_path) -> None:
    record = make_host(platform="darwin-arm64")
    (tmp_path / "mac.json").write_text(json.dumps(record.to_json()))
    arguments = ["get", "--profile", "quick", "--arch", "80", "--host", str(tmp_path / "mac.json")]
    done = flashdepot(*arguments, "--depot", str(tmp_path / "d"))
    assert_ends(done, 4, "Nothing is built for darwin-arm64: there are linux-x86_64", "--target linux-x86_64")


@pytest.mark.parametrize("command", ["get --out", "build --out", "wheel --out", "vendor", "link cargo"])
def test_a_folder_that_cannot_be_written_is_named_before_anything_is_made(command, tmp_path) -> None:
    (tmp_path / "file").write_text("mine")
    words = (*command.split(), str(tmp_path / "file" / "x"), "--profile", "quick", "--depot", str(tmp_path / "depot"))
    done = flashdepot(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path / 'file'} is a file" in done.stderr
    assert not (tmp_path / "depot").exists()


@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape"])  # the second: Windows, and the locale C
def test_a_letter_that_the_encoding_of_the_output_lacks_is_written_as_a_number(tmp_path, encoding) -> None:
    command = [sys.executable, "-m", "flashdepot", "depot", "path", "--depot", tmp_path / "gr\u00fcn"]
    said = run_program(command, env={**os.environ, "PYTHONIOENCODING": encoding})
    assert said.strip().endswith("gr\\xfcn")


@pytest.mark.skipif(os.name == "nt", reason="paths are bytes on POSIX only")
@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_program_that_reads_a_path_gets_its_bytes(tmp_path, locale) -> None:
    folder = os.fsencode(tmp_path) + b"/gr\xc3\xbcn-\xff"
    command = [sys.executable, "-m", "flashdepot", "depot", "path", "--depot", folder]
    said = subprocess.run(command, env={**os.environ, **locale}, check=True, capture_output=True).stdout
    assert said == folder + b"\n"


def test_a_folder_with_files_of_the_users_is_refused_before_anything_is_made(tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    done = flashdepot(
        "get", "--out", str(tmp_path / "mine"), "--profile", "quick", "--depot", str(tmp_path / "depot"), cwd=tmp_path
    )
    assert_ends(done, 2, "notes.txt")
    assert not (tmp_path / "depot").exists()


def test_an_empty_depot_says_how_to_fill_it(tmp_path) -> None:
    done = flashdepot("depot", "ls", "--depot", str(tmp_path / "none"))
    assert_ends(done, 0, "get --profile quick")
    assert json.loads(flashdepot("depot", "ls", "--json", "--depot", str(tmp_path / "none")).stdout) == []
    assert not (tmp_path / "none").exists(), "looking makes nothing"


@pytest.mark.parametrize(
    ("text", "count"), [("8GB", 8 * 10**9), ("7.5 GiB", int(7.5 * 2**30)), ("500mb", 5 * 10**8), ("1024", 1024)]
)
def test_amounts_of_memory_read_as_people_write_them(text, count) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "8 XB", "8GBB"])
def test_other_words_are_no_amount_of_memory(text) -> None:
    with pytest.raises(UsageError, match="expected one such as 8GB"):
        parse_size(text)


def test_sizes_and_times_are_said_as_people_say_them() -> None:
    assert [size(n) for n in (12, 1500, 3_700_000, 2 * 10**9)] == ["12 bytes", "1.5 kB", "3.7 MB", "2.0 GB"]
    assert [duration(s) for s in (0.02, 48, 720, 7500)] == ["0.0 s", "48 s", "12 min", "2 h 05 min"]


def test_gc_says_why_nothing_was_freed_and_what_frees_more(tmp_path) -> None:
    done = flashdepot("depot", "gc", "--older-than", "0", "--yes", "--depot", tmp_path)
    assert_ends(done, 0, "what was used in the last hour", "flashdepot depot clean --all")


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("n\n", False)])
def test_a_program_may_answer_a_question(monkeypatch, answer, agreed) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert ask("Free it?") is agreed


def test_a_question_that_nobody_can_answer_names_the_option_that_answers_it(monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(UsageError, match="nobody answered") as refused:
        ask("Free it?")
    assert "--yes" in (refused.value.hint or "")


def test_a_bucket_without_its_package_is_added_with_the_command_that_installs_it(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path))
    said = CliRunner().invoke(app, ["remote", "add", "team", "s3://bucket/v1"]).stderr
    assert f" {joined([sys.executable, '-m', 'pip', 'install', 'flashdepot[remote]'])}\n" in said


def test_a_remote_may_be_named_by_a_folder_that_is_there(tmp_path) -> None:
    share = tmp_path / "share"
    share.mkdir()
    config = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "APPDATA": str(tmp_path / "config")}
    done = flashdepot_in(tmp_path, "remote", "add", "team", "share", "--unsigned", "--json", **config)
    assert json.loads(done.stdout)["url"] == share.as_uri()
    missing = flashdepot_in(tmp_path, "remote", "add", "team", "shared", "--unsigned", **config)
    assert_ends(missing, 2, "or a folder that exists, which this makes: mkdir shared.")
    said = flashdepot_in(tmp_path, "depot", "push", "team", "--depot", tmp_path / "depot", **config).stderr
    assert said.endswith("what is pushed is a library.\n  flashdepot depot push --to team\n")
