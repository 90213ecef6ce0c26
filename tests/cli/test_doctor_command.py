import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.tools import flashdepot_here as flashdepot

RECORDS = Path(__file__).parents[1] / "doctor" / "records"


@pytest.mark.parametrize(
    ("intention", "record", "code", "said"),
    [
        ("build", "ubuntu-24.04-h100", 0, "'build' can work here."),
        ("build", "docker-memory-limit", 3, "1.9 GB of memory can be used"),
        ("run", "turing-t4", 4, "Tesla T4 (7.5) cannot run FlashAttention-2"),
        ("install", "torch-cpu-only", 3, f"PyTorch 2.13.0+cpu in {Path('/home/me/.venv')} is built without CUDA."),
    ],
)
def test_doctor_says_its_findings_and_ends_by_them(intention, record, code, said) -> None:
    done = flashdepot("doctor", intention, "--host", str(RECORDS / f"{record}.json"))
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout


def test_the_worst_comes_first_with_its_fix() -> None:
    done = flashdepot("doctor", "install", "--host", str(RECORDS / "torch-old-abi-and-leftovers.json"))
    severities = [line.split(":")[0] for line in done.stdout.splitlines() if not line.startswith((" ", "'"))]
    assert severities == ["warning", "warning", "note", "note"]
    assert "  -> Delete it: rm /home/me/.venv" in done.stdout


def test_findings_are_one_json_document_when_asked_for() -> None:
    done = flashdepot("doctor", "build", "--json", "--host", str(RECORDS / "docker-memory-limit.json"))
    document = json.loads(done.stdout)
    assert (document["intention"], document["exit_code"], done.returncode) == ("build", 3, 3)
    first = document["findings"][0]
    assert (first["severity"], first["class_id"], first["incompatible"]) == ("blocker", "oom-killed", False)
    assert {"seen", "why", "fix"} <= set(first)


def test_arch_decides_what_is_looked_for() -> None:
    record = str(RECORDS / "blackwell-rtx-5090-old-torch.json")
    assert "cannot make sm_120" in flashdepot("doctor", "build", "--host", record).stdout
    assert "cannot make" not in flashdepot("doctor", "build", "--arch", "90", "--host", record).stdout
    assert flashdepot("doctor", "build", "--arch", "75", "--host", record).returncode == 4


def test_a_record_and_an_interpreter_are_not_asked_together() -> None:
    record = str(RECORDS / "ubuntu-24.04-h100.json")
    done = flashdepot("doctor", "install", "--python", sys.executable, "--host", record)
    assert done.returncode == 2
    assert "give one of them" in done.stderr


def test_quiet_says_nothing_of_a_machine_that_is_fit() -> None:
    assert flashdepot("doctor", "build", "-q", "--host", str(RECORDS / "ubuntu-24.04-h100.json")).stdout == ""


def test_what_is_little_is_said_before_compiling_and_once(tmp_path) -> None:
    code = (
        "import sys\n"
        "from msgspec.structs import replace\n"
        "from flashdepot import host\n"
        "from flashdepot.cli import app\n"
        "from flashdepot.errors import MissingToolError\n"
        "from flashdepot.resolve import build as building\n"
        "probe = host.probe\n"
        "host.probe = lambda **_: replace(probe(), memory=10**9, memory_facts=None)\n"
        "def make(*_):\n"
        "    raise MissingToolError('the compiler would start here')\n"
        "building.Making.make = make\n"
        f"sys.argv = ['flashdepot', 'build', '--profile', 'quick', '--depot', {str(tmp_path)!r}]\n"
        "sys.exit(app.run())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.count("warning: 1.0 GB of memory can be used.") == 1
    assert done.stderr.index("warning: 1.0 GB") < done.stderr.index("the compiler would start here")


def test_an_environment_without_torch_hears_that_it_has_none(tmp_path) -> None:
    record = json.loads((RECORDS / "ubuntu-24.04-h100.json").read_text())
    record["python"]["torch"] = None
    (tmp_path / "host.json").write_text(json.dumps(record))
    done = flashdepot("doctor", "install", "--host", str(tmp_path / "host.json"))
    assert "has no PyTorch." in done.stdout
    assert "without CUDA" not in done.stdout
