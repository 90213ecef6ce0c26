"""The torch that a wheel says it needs. Its symbols may all be in another one, whose types are laid out otherwise."""

from __future__ import annotations

import email
import zipfile
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from flashdepot.doctor.check.evidence import Evidence, Outcome

_LARGEST_METADATA = 4 << 20


def judge_requirement(wheel: Path, torch: str) -> list[Evidence]:
    """Compare ``Requires-Dist: torch`` of a wheel, whose archive is known to be good, with a version of torch.

    There is no line of evidence where the wheel asks for no version in particular.
    """
    lines = []
    for requirement in _torch_requirements(_metadata(wheel)):
        fits = _admits(requirement, torch)
        fix = "" if fits else f"Use an environment with {requirement}, or the wheel for torch {torch}."
        outcome = Outcome.FITS if fits else Outcome.MISFIT
        lines.append(Evidence(outcome, "torch version", f"it requires {requirement}", f"torch {torch}", fix=fix))
    return lines


def _admits(requirement: Requirement, torch: str) -> bool:
    try:
        public = Version(torch).public
    except InvalidVersion:
        return False
    return requirement.specifier.contains(public, prereleases=True)


def _torch_requirements(metadata: str) -> list[Requirement]:
    found = []
    for line in email.message_from_string(metadata).get_all("Requires-Dist", []):
        try:
            requirement = Requirement(str(line))
        except InvalidRequirement:
            continue
        if requirement.name == "torch" and requirement.specifier:
            found.append(requirement)
    return found


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            if info.filename.endswith(".dist-info/METADATA") and info.file_size <= _LARGEST_METADATA:
                return archive.read(info).decode("utf-8", "replace")
    return ""
