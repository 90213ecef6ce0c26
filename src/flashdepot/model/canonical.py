"""One way to turn data into bytes that are the same everywhere, and into a digest."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: object) -> bool:
    """Whether something is a SHA-256 as :func:`digest_of` spells it, and therefore safe as a file name."""
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None


def canonical_json(data: Any) -> bytes:
    """JSON with sorted keys and no blanks: equal data, equal bytes."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def digest_of(data: Any) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of ``data``."""
    return hashlib.sha256(canonical_json(data)).hexdigest()
