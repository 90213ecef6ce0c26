"""One way to turn data into bytes that are the same everywhere, and into a digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(data: Any) -> bytes:
    """JSON with sorted keys and no blanks: equal data, equal bytes."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest_of(data: Any) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of ``data``."""
    return hashlib.sha256(canonical_json(data)).hexdigest()
