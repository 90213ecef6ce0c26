"""Host records, recorded or written by hand from documented output of the tools, with what doctor must say of each.

Beside ``NAME.json``, which ``--host`` takes, lies ``NAME.findings.json``: what the machine is, and for each intention
the exit code and the findings in their order. Everything is asserted: a finding too many is as wrong as one missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashdepot.diagnose import Intention, examine, severity_word, verdict
from flashdepot.model.host import HostRecord
from flashdepot.model.request import LibraryRequest

RECORDS = Path(__file__).with_name("records")
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
def test_each_finding_says_what_was_seen_why_it_matters_and_what_mends_it(name: str) -> None:
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
