import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.tools import assert_ends, flashdepot_here, posix

HOST = Path(__file__).parent / "records" / "ubuntu-24.04-h100.json"
FAILED = "a.cu(3): warning\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n"


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return flashdepot_here("explain", "--host", HOST, *arguments)


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (FAILED, 0, ["unsupported-gpu-arch", "line 2: nvcc fatal"]),
        (
            "all well\nerror: the widget broke\n",
            4,
            ["No rule knows this log", "line 2: error: the widget broke"],
        ),
        (
            "I think that flash_attn is not installed.\n",
            4,
            ["These are your own words", "module-missing: ", "What to do next:"],
        ),
    ],
    ids=["a log", "an unknown log", "a description"],
)
def test_a_file_is_explained_as_far_as_it_is_known(tmp_path, text, code, said) -> None:
    log = tmp_path / "build.log"
    log.write_text(text)
    done = run(str(log))
    assert done.returncode == code
    assert [words for words in said if words not in done.stdout] == []


def test_what_is_not_certain_is_said_once_with_the_command_of_each_cause() -> None:
    done = run("-", stdin='nvcc -c a.cu\na.cu(9): error: identifier "cuda_pool_alloc" is undefined\n')
    assert done.returncode == 0
    assert done.stdout.startswith(
        "This log does not say for certain why it failed. The line that says most:\n  line 2: a.cu(9)"
    )
    assert re.findall(r"^  (\d)\. (\S+):", done.stdout, re.MULTILINE)[:2] == [
        ("1", "compile-failed"),
        ("2", "source-torch-incompat"),
    ]
    assert done.stdout.count("A source file or a crate does not compile.") == 1
    assert re.search(r"1\. .*\n     Why: .*\bthe package\b.*\n     How to fix it:\n       \S", done.stdout)
    assert re.search(r"2\. source-torch-incompat: .*\n       \S.*\n  3\. ", done.stdout)


def test_an_error_and_a_hint_are_shown_once_and_what_a_program_threw_is_an_error() -> None:
    widget = "error: the widget broke"
    thrown = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no diff\n"
    hints = "".join(f"hint: wait, then export WIDGET_CACHE_PATH=/w{n}\n" for n in (1, 1, 2))
    shown = run(
        "-", stdin=f"{widget}\nRuntimeError: {widget}!\n{widget}\n{thrown}{hints}Setting WIDGET_HOME=/x.\n"
    ).stdout
    assert re.findall(r"^  line (\d)", shown, re.MULTILINE) == ["1", "2", "4", "5", "6", "8"]
    assert "WIDGET_HOME" not in shown


def test_standard_input_is_explained_as_one_document() -> None:
    done = run("-", "--json", stdin=FAILED)
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document["status"] == "explained"
    assert document["findings"][0]["class"] == "unsupported-gpu-arch"
    assert document["findings"][0]["line"] == 2


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [(FAILED, 0, "unsupported-gpu-arch"), ("error: the widget broke\n", 4, "No rule knows this log")],
    ids=["a known failure", "one that no rule knows"],
)
def test_without_a_name_it_is_the_last_failed_compile_of_the_depot(tmp_path: Path, text, code, said) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    older = "nvcc error   : 'cicc' died due to signal 9\n"
    for age, (name, written) in enumerate([("good", "a.cu(1): warning\n"), ("failed", text), ("older", older)]):
        (logs / f"{name}.log").write_text(written)
        os.utime(logs / f"{name}.log", (10**9 - age, 10**9 - age))
    done = run("--depot", str(tmp_path))
    assert_ends(done, code, "failed.log")
    assert said in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere.log"], "nowhere.log cannot be read"),
        (["--depot", "/nowhere/depot"], "No compile failed in this depot"),
        (["-", "--host", "/nowhere.json"], "flashdepot host --save"),
        (["pip", "install", "flash-attn"], "flashdepot explain -- pip install flash-attn"),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert_ends(done, 2, said)


FAILING = f"import sys; print('out', flush=True); sys.stderr.write({FAILED!r}); sys.exit(3)"


def test_a_command_is_run_and_its_failure_explained_with_its_own_exit_code() -> None:
    done = run("--", sys.executable, "-c", FAILING)
    assert done.returncode == 3
    assert done.stderr.replace("\r\n", "\n") == "out\n" + FAILED
    assert "failed with exit code 3" in done.stdout
    assert "unsupported-gpu-arch" in done.stdout


def test_a_command_that_works_is_not_explained() -> None:
    done = run("--", sys.executable, "-c", "print('error: no error', flush=True)")
    assert (done.returncode, done.stdout, done.stderr.split()) == (0, "", ["error:", "no", "error"])


def test_the_document_of_a_command_has_its_exit_code_and_options_after_the_dashes_are_its_own() -> None:
    done = run("--json", "-q", "--", sys.executable, "-c", FAILING, "--json", "--depot")
    document = json.loads(done.stdout)
    assert (document["exit_code"], document["command"][-1], done.stderr) == (3, "--depot", "")
    assert document["findings"][0]["class"] == "unsupported-gpu-arch"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_a_command_that_a_signal_ended_has_the_exit_code_that_a_shell_gives_it() -> None:
    assert run("--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)").returncode == 137


@posix("signals")
def test_a_build_that_the_kernel_killed_is_known_by_its_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "setup.py"
    script.write_text("import os; print('[1/3] nvcc -c a.cu -o a.o', flush=True); os.kill(os.getpid(), 9)\n")
    done = run("-q", "--json", "--", sys.executable, str(script), "bdist_wheel")
    assert done.returncode == 137
    assert json.loads(done.stdout)["findings"][0]["class"] == "oom-killed"


def test_the_steps_of_a_command_begin_with_the_command_itself(tmp_path: Path) -> None:
    script = tmp_path / "setup.py"
    script.write_text("raise SystemExit(3)\n")
    done = run("--steps", "--", "python", str(script), "bdist_wheel")
    assert done.returncode == 3
    assert "build (python" in done.stdout


def test_a_word_that_names_no_file_is_text() -> None:
    assert run("Killed").returncode == 4
    assert run("killed.log").returncode == 2


def test_for_two_logs_the_way_to_read_them_as_one_is_shown(tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(FAILED)
    done = run(str(tmp_path / "a.log"), str(tmp_path / "b.log"))
    assert done.returncode == 2
    assert ("type " if os.name == "nt" else "cat ") in done.stderr


def test_output_is_shown_as_it_comes() -> None:
    waits = "import sys; print('first', flush=True); sys.stdin.read()"
    command = [sys.executable, "-m", "flashdepot", "explain", "--", sys.executable, "-c", waits]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        assert running.stderr.readline().strip() == b"first"  # the command still waits for its input
        assert running.poll() is None
        running.communicate(timeout=60)
    assert running.returncode == 0


def test_what_a_command_left_running_is_not_waited_for() -> None:
    leaves = (
        "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(20)']); sys.exit(5)"
    )
    done = subprocess.run(
        [sys.executable, "-m", "flashdepot", "explain", "-q", "--json", "--", sys.executable, "-c", leaves],
        stdout=subprocess.PIPE,
        check=False,
        timeout=120,
    )
    assert json.loads(done.stdout)["exit_code"] == 5


def test_a_program_that_is_not_there_is_said_so() -> None:
    done = run("--", "no-such-program-here")
    assert_ends(done, 3, "'no-such-program-here' cannot be run")


WITHOUT_RE2 = """
import sys
sys.modules["re2"] = None  # as in Python 3.15, for which it has no wheel
from flashdepot.cli import run
sys.argv = ["flashdepot", *sys.argv[1:]]
sys.exit(run())
"""


def test_without_re2_explain_says_which_python_has_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RE2, "explain", "--", sys.executable, "-c", "print('ran')"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "uv tool install --python 3.14 ." in done.stderr
