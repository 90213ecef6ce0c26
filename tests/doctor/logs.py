"""What `explain` says of a text."""

import io

from flashdepot.diagnose.explain import Cause, LogReport, explain
from flashdepot.model.host import HostRecord


def look(log: str | bytes, host: HostRecord | None = None) -> LogReport:
    return explain(io.BytesIO(log if isinstance(log, bytes) else log.encode()), host)


def first(log: str) -> Cause:
    return look(log).findings[0]


def classes(log: str | bytes) -> list[str]:
    return [finding.id for finding in look(log).findings]
