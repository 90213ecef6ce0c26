"""Host records, recorded or written by hand from documented output of the tools, with what doctor must say of each.

Next to ``NAME.json``, which ``--host`` takes, is ``NAME.findings.json``: what the machine is, and for each intention
the exit code and the findings in their order. Everything is asserted: a finding too many is as wrong as one missing.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from flashdepot.cli.host_commands import describe
from flashdepot.diagnose.case import Intention, severity_word, verdict
from flashdepot.diagnose.examine import examine
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest

RECORDS = Path(__file__).with_name("records")
PAGE = (Path(__file__).parents[2] / "docs" / "host.md").read_text()
NAMES = sorted(p.name.removesuffix(".json") for p in RECORDS.glob("*.json") if not p.name.endswith(".findings.json"))


def load(name: str) -> HostRecord:
    return HostRecord.from_json(json.loads((RECORDS / f"{name}.json").read_text()))


def expected(name: str) -> Any:
    return json.loads((RECORDS / f"{name}.findings.json").read_text())


def test_there_are_records_of_many_kinds() -> None:
    assert len(NAMES) >= 25
    assert {load(n).platform.system for n in NAMES} == {"linux", "windows", "darwin"}


@pytest.mark.parametrize("intention", list(Intention))
@pytest.mark.parametrize("name", NAMES)
def test_doctor_says_of_each_machine_what_is_wrong_and_no_more(name: str, intention: Intention) -> None:
    findings = examine(load(name), intention, LibraryRequest())
    said = [f"{severity_word(f)} {f.id}" for f in findings]
    wanted = expected(name)[intention.value]
    assert (verdict(findings), said) == (wanted["exit"], wanted["findings"]), expected(name)["about"]


@pytest.mark.parametrize("name", NAMES)
def test_each_finding_says_what_was_observed_why_it_matters_and_the_fix(name: str) -> None:
    for intention in Intention:
        findings = examine(load(name), intention, LibraryRequest())
        for finding in findings:
            assert finding.observed.endswith((".", "?")), finding
            assert finding.expected.endswith("."), finding
            assert finding.fix, finding
        ranks = [f.severity.rank for f in findings]
        assert ranks == sorted(ranks), "worst first"
        assert len({(f.id, f.observed) for f in findings}) == len(findings), "nothing is said twice"


@pytest.mark.parametrize("name", [n for n in NAMES if n != "earlier-form"])
def test_a_record_says_again_what_it_was_read_from(name: str) -> None:
    document = json.loads((RECORDS / f"{name}.json").read_text())
    assert load(name).to_json() == document


def test_a_record_of_the_earlier_form_has_its_later_fields_unknown() -> None:
    record = load("earlier-form")
    assert (record.container, record.wsl, record.memory_facts, record.disks) == (None, None, None, ())
    assert (record.python, record.programs, record.driver_cuda) == (None, None, None)
    assert record.toolkits[0].missing is None
    assert HostRecord.from_json(record.to_json()) == record


def documented(heading: str) -> set[str]:
    table = PAGE.split(f"| {heading} |")[1].split("\n\n")[0]
    return {name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_every_field_of_a_record_is_documented_and_no_other() -> None:
    document = load("ubuntu-24.04-h100").to_json()
    assert documented("field") == set(document)
    assert documented("field of `python`") == set(document["python"])


def test_every_class_that_doctor_finds_is_documented() -> None:
    found = set()
    for path in RECORDS.glob("*.findings.json"):
        for part in json.loads(path.read_text()).values():
            if isinstance(part, dict):
                found |= {line.split()[1] for line in part["findings"]}
    assert len(found) > 30
    assert found <= set(re.findall(r"`([a-z0-9-]+)`", PAGE.split("## The findings")[1]))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ubuntu-24.04-h100", "NVIDIA H100 80GB HBM3, compute capability 9.0"),
        ("ubuntu-24.04-h100", "nvcc 13.0.88 in /usr/local/cuda-13.0, found by PATH, accepts GCC up to 15"),
        ("ubuntu-22.04-distribution-nvcc", "550.120, serves CUDA up to 12.4"),
        ("ubuntu-22.04-distribution-nvcc", "/usr/lib/nvidia-cuda-toolkit, found by PATH, accepts GCC up to 11 and "),
        ("ubuntu-22.04-distribution-nvcc", "older than CUDA 12.0, so it is skipped"),
        ("kubernetes-tmpfs", "not complete: lacks include/cuda_runtime.h"),
        ("kubernetes-tmpfs", "3.2 GB free for temp in /tmp, tmpfs"),
        ("docker-memory-limit", "limited to 2.0 GB by the control group"),
        ("wsl2-ubuntu-rtx-4090", "the Windows Subsystem for Linux"),
        ("opensuse-15.6-no-driver", "1 without a driver"),
        ("torch-old-abi-and-leftovers", "2.4.1+cu121, CUDA 12.1, old C++ ABI"),
        ("torch-rocm", "ROCm 6.4.43482"),
        ("free-threaded-python", "(cp314t)"),
        ("alpine-3.20-docker", "musl libc"),
        ("windows-10-no-compiler", "no C++ compiler; one is needed to build"),
        ("earlier-form", "driver    580.65.06"),
    ],
)
def test_the_page_says_it(name: str, said: str) -> None:
    assert said in describe(load(name))


@pytest.mark.parametrize(
    ("system", "command"),
    [("Ubuntu 24.04", ": sudo ubuntu-drivers install"), ("Fedora Linux 42", ": sudo dnf install"), ("Void", ".")],
)
def test_without_a_driver_the_fix_is_the_command_of_the_system(system, command) -> None:
    bare = replace(load("opensuse-15.6-no-driver"), os_name=system)
    (found,) = (f for f in examine(bare, Intention.RUN, LibraryRequest()) if f.id == "driver-missing")
    assert f"Install NVIDIA's driver, 580 or newer{command}" in found.fix
