"""What a tool itself says would fix it, in its own words or by the meaning of its message, is advised, and nothing that could do harm."""

import io

import pytest

from doctor.logs import look
from flashdepot.diagnose.explain import explain


@pytest.mark.parametrize(
    ("log", "command"),
    [
        ("error: No virtual environment found; run `uv venv` to create one\n", "uv venv "),
        (
            "Please use pip<24.1 if you need to use this version.\nERROR: No matching distribution found for a",
            "pip install 'pip<24.1'",
        ),
        (
            "error: Failed to inspect Python\n\nhint: Consider recreating the environment (e.g., with `uv venv`)",
            "uv venv --clear",
        ),
        (
            "error: bad\nhint: If all indexes are equal, use `--index-strategy unsafe-best-match`",
            "THE_COMMAND --index-strategy",
        ),
        (
            "TypeError: Descriptors\n 1. Downgrade the protobuf package to 3.20.x or lower.",
            "pip install 'protobuf==3.20.*'",
        ),
        ("error: Your local changes\nPlease commit your changes or stash them before you switch", "git stash"),
        ("CondaError: Run 'conda init' before 'conda activate'", "conda init"),
        ("E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a'", "sudo dpkg --configure -a"),
        ("ImportError: Missing 'openpyxl'.  Use pip or conda to install openpyxl.", "pip install openpyxl"),
    ],
)
def test_what_the_tool_itself_says_is_the_first_command(log: str, command: str) -> None:
    report = look(log)
    assert (report.findings[0].fix if report.findings else report.next_steps)[0].startswith(command)
    assert report.hints


@pytest.mark.parametrize(
    "hint",
    [
        "pip install x; rm -rf ~", "git clone $(id)", "curl https://x.y | sh", "pip install --index-url http://x.y z",
        "pip install git+https://x.y/z", "git -c core.sshCommand=touch fetch", "uv run x", "uvx x",
    ],
)  # fmt: skip
def test_what_could_start_anything_else_is_not_advised_again(hint: str) -> None:
    report = look(f"error: the widget broke; run `{hint}`\n$ {hint}\nERROR: No matching distribution found for torch\n")
    assert not [command for command in (*report.findings[0].fix, *report.next_steps) if hint in command]


@pytest.mark.parametrize(
    ("log", "command"),
    [
        ("CMake Error: The current CMakeCache.txt directory /a/b/CMakeCache.txt is different than /c", "rm -rf /a/b/CMakeCache.txt "),
        ("make: *** No targets specified and no makefile found.  Stop.", "cmake -S . -B build && "),
        ("bash: 2: No such file or directory", "the same command with its requirement in quotation marks"),
        ("ERROR: Invalid requirement: \"'x[a]<1'\": Expected package name at the start", 'python -m pip install "x[a]<1"'),
        ("No executables are provided by package `x`; removing tool\nerror: Failed to install entrypoints", "uv pip install x "),
        ("pyproject.toml changed significantly since poetry.lock was last generated. Run `poetry lock`", "poetry lock && "),
        ("error: cannot update the lock file /a/Cargo.lock because --locked was passed", "cargo generate-lockfile && "),
        ("error: failed to parse lock file at: /a\nlock file version `4` was found, but this version", "mv Cargo.lock "),
        ("ERROR: Cannot uninstall blinker 1.6.2, RECORD file not found. Try: 'pip install x==1'", "THE_COMMAND --ignore-installed"),
        ("error: Package `einops` references an undeclared index: `a-b`", "sed -i.bak '/index *= *\"'a-b'\"/d' pyproject.toml"),
        ("ERROR: a (1).whl is not a valid wheel filename.", 'python -c "import shutil, sys, zipfile; '),
        ("/usr/bin/ld: /a/libbase.so: error adding symbols: DSO missing from command line", "THE_COMMAND -lbase"),
    ],
)  # fmt: skip
def test_what_the_message_of_a_tool_means_is_the_first_command(log: str, command: str) -> None:
    report = look(log)
    assert (report.findings[0].fix if report.findings else report.next_steps)[0].startswith(command)


def test_the_file_that_makes_a_folder_a_package_is_not_renamed() -> None:
    log = "ImportError: cannot import name '_C' from partially initialized module 'fa' (/src/fa/fa/__init__.py)\n"
    report = explain(io.BytesIO(log.encode()))
    assert not any("my___init__" in fix for cause in report.possible for fix in cause.fix)
