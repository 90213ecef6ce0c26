"""What `explain` says of a text."""

import io
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.diagnose.explain import Cause, Files, LogReport, explain
from flashdepot.host import saved_host
from flashdepot.model.host import HostRecord


def look(log: str | bytes, host: HostRecord | None = None) -> LogReport:
    return explain(io.BytesIO(log if isinstance(log, bytes) else log.encode()), host)


def first(log: str) -> Cause:
    return look(log).findings[0]


def classes(log: str | bytes) -> list[str]:
    return [finding.id for finding in look(log).findings]


RECORD = saved_host(Path(__file__).parent / "records" / "ubuntu-24.04-h100.json")

NO_ENVIRONMENT = replace(RECORD, python=None, toolkits=(), programs={"uv": "/usr/bin/uv"}, container="docker")


def carried(log: str, command: str, host: HostRecord, folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        report = explain(io.BytesIO(log.encode()), host, command, Files(here=True))
    return (report.findings[0].fix if report.findings else report.next_steps)[0]
