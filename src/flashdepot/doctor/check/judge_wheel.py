"""Comparisons of what a wheel says of itself with a Python and a platform (PEP 425, 427, 600)."""

from __future__ import annotations

import re

from msgspec.structs import replace
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag

from flashdepot.binary.wheel import WheelFacts
from flashdepot.doctor.check.evidence import Evidence, Outcome, evidence_of
from flashdepot.doctor.check.place import Place
from flashdepot.doctor.check.subject import Binary
from flashdepot.errors import UsageError
from flashdepot.fit import ask
from flashdepot.fit.names import READERS, libc_of_tag
from flashdepot.fit.needs import DriverNeed, PythonNeed
from flashdepot.model.python_environment import PythonEnvironment
from flashdepot.model.verdict import Reasons, verdict_of
from flashdepot.model.wheel_name import WheelName

_EXTENSION = re.compile(r".+\.(?:cpython-|cp)(\d)(\d+)(t?)d?-[\w-]+\.(?:so|pyd)")


def judge_wheel(wheel: WheelFacts, place: Place) -> list[Evidence]:
    """Archive, metadata and tags."""
    lines = [Evidence(Outcome.DAMAGED, "archive", problem, fix="Fetch it again.") for problem in wheel.problems]
    if not wheel.problems:
        seen = f"{len(wheel.files)} files agree with RECORD"
        lines.append(Evidence(Outcome.FITS, "archive", seen, f"{wheel.name} {wheel.version}"))
    if wheel.tags is None:
        seen = "its file name is not a wheel's: name-version-python-abi-platform.whl"
        lines.append(Evidence(Outcome.MISFIT, "tags", seen, "installers refuse it", fix="Give it its name back."))
        return lines
    if wheel.metadata_tags and wheel.metadata_tags != wheel.tags:
        said = _spell(wheel.metadata_tags)
        lines.append(Evidence(Outcome.NOTE, "tags", f"its WHEEL file says {said}", "installers go by the file name"))
    return [*lines, _judge_tags(wheel.tags, place), *_judge_python(wheel.requires_python, place.python)]


def judge_cuda_name(file_name: str, place: Place) -> list[Evidence]:
    """Whether the driver serves the CUDA that the file name says the code was built with: ``+cu12torch2.8``."""
    try:
        cuda = WheelName.parse(file_name).built_for.cuda
    except UsageError:
        return []
    if not cuda or place.host.driver is None:
        return []
    reason = ask("driver", place.facts, DriverNeed(cuda))
    return [evidence_of(reason, "driver", f"built with CUDA {cuda} by its name", f"driver {place.host.driver}")]


def _judge_python(required: str, python: PythonEnvironment | None) -> list[Evidence]:
    """METADATA's Requires-Python, which installers obey whatever the tags say."""
    if not required or python is None:
        return []
    seen, has = f"requires Python {required}", f"Python {python.version}"
    try:
        fits = SpecifierSet(required).contains(str(python.version), prereleases=True)
    except InvalidSpecifier:
        return [Evidence(Outcome.UNKNOWN, "python", f"{seen}, which is not a version range", has)]
    fix = "" if fits else f"Take a wheel for {python.label}, or a Python {required}."
    return [Evidence(Outcome.FITS if fits else Outcome.MISFIT, "python", seen, has, fix=fix)]


def judge_extension_name(binary: Binary, python: PythonEnvironment | None) -> list[Evidence]:
    """The Python version in the file name of an extension module, ``_C.cpython-311-x86_64-linux-gnu.so``."""
    match = _EXTENSION.fullmatch(binary.name.rsplit("/", 1)[-1])
    if match is None or python is None:
        return []
    fits = (int(match[1]), int(match[2])) == python.interpreter.version and bool(match[3]) == python.free_threaded
    seen = f"made for Python {match[1]}.{match[2]}{', free-threaded' if match[3] else ''}"
    fix = "" if fits else f"Take the build for {python.label}."
    return [Evidence(Outcome.FITS if fits else Outcome.MISFIT, "python", seen, python.label, binary.name, fix)]


def _judge_tags(tags: frozenset[Tag], place: Place) -> Evidence:
    facts, python = place.facts, place.python
    seen = _spell(tags)
    libc = (
        f" with GNU libc {facts.libc}"
        if facts.libc
        else " with the musl C library"
        if facts.libc_name == "musl"
        else ""
    )
    where = f"{facts.platform}{libc}"
    # Python and ABI tags of those alone whose platform tag is taken: in a set, each goes with each.
    judged = [(tag, _judge_system(tag.platform, place)) for tag in sorted(tags, key=str)]
    best = min((verdict_of(reasons).rank for _, reasons in judged), default=0)
    taken = [(tag, reasons) for tag, reasons in judged if verdict_of(reasons).rank == best]
    for _, reasons in taken[:1]:
        if reasons:
            return evidence_of(reasons[0], "tags", seen, where)
    need = PythonNeed(tuple((tag.interpreter, tag.abi) for tag, _ in taken), seen)
    reason = ask("python", facts, need)
    has = f"{python.label} on {where}" if python else where if reason is None else f"{where}; no Python was named"
    line = evidence_of(reason, "tags", seen, has)
    if reason is None:
        return line
    return replace(line, fix=f"Take the wheel for {python.label}." if python else "Name the Python: --python PY")


def _judge_system(tag: str, place: Place) -> Reasons:
    """What is against one platform tag."""
    parts = ("platform", "libc")
    needs = {"platform": READERS["platform"].read(tag), "libc": libc_of_tag(tag)}
    return tuple(reason for part in parts if (reason := ask(part, place.facts, needs[part])) is not None)


def _spell(tags: frozenset[Tag]) -> str:
    return ", ".join(sorted(str(tag) for tag in tags))
