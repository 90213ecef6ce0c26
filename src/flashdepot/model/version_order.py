"""The order of versions (PEP 440), as file names of wheels spell them."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

_VERSION = re.compile(
    r"(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)(?:(?P<pre>a|b|rc)(?P<pre_number>\d+))?(?:\.post(?P<post>\d+))?"
    r"(?:\.dev(?P<dev>\d+))?(?:\+[a-z0-9.]+)?",
    re.ASCII,
)
"""A version in its normal form (PEP 440), as file names of wheels have it."""


@cache
def version_key(version: str) -> tuple[Any, ...]:
    """For comparing; what is no version (PEP 440) comes before all that are. Local versions do not count.

    packaging's ``Version`` orders them the same way, and takes as long to import as a decision takes.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1,)
    release = numbers_of(match["release"])
    while release[1:] and not release[-1]:
        release = release[:-1]
    post, dev = (int(match[part]) if match[part] else None for part in ("post", "dev"))
    if match["pre"]:
        stage = (match["pre"], int(match["pre_number"]))
    else:
        stage = ("", 0) if dev is not None and post is None else ("z", 0)
    return (int(match["epoch"] or 0), release, stage, -1 if post is None else post, math.inf if dev is None else dev)


def numbers_of(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: 2, 8 and 3 of ``2.8.3.post1``; none of what is no version."""
    match = re.match(r"\d+(?:\.\d+)*", version, re.ASCII)
    return tuple(map(int, match[0].split("."))) if match else ()
