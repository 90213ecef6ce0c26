"""Files of one wheel of which a package loads the one that fits: ``lib_cuda118.so`` beside ``lib_cuda126.so``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from msgspec.structs import replace

from flashdepot.doctor.check.evidence import Evidence, Outcome

_BACKEND = re.compile(r"[_-]?(?:cuda|cu|rocm|hip|xpu|cpu|mps|sycl)\d*(?:_nocublaslt\d*)?$")
_AGAINST = {Outcome.MISFIT, Outcome.UNKNOWN}


def with_alternatives(by_file: Mapping[str, Sequence[Evidence]]) -> dict[str, list[Evidence]]:
    """The evidence by file, where what speaks against a backend is a note as long as another one of the kind fits.

    Files are of one kind when their names differ in nothing but a backend at the end.
    """
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in by_file:
        path = PurePosixPath(name)
        stem = path.name.partition(".")[0]
        kinds[f"{path.parent}/{_BACKEND.sub('', stem)}"].append(name)
    found = {}
    for names in kinds.values():
        fitting = [name for name in names if not any(line.outcome in _AGAINST for line in by_file[name])]
        for name in names:
            lines = list(by_file[name])
            if fitting and name not in fitting:
                other = PurePosixPath(fitting[0]).name
                lines = [_beside(line, other) if line.outcome in _AGAINST else line for line in lines]
            found[name] = lines
    return found


def _beside(line: Evidence, other: str) -> Evidence:
    return replace(line, outcome=Outcome.NOTE, has=f"{line.has}; {other} beside it fits".lstrip("; "), fix="")
