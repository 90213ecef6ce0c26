"""What a wheel says of itself, compared with a Python, a platform (PEP 425, 427, 600) and its own compiled files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.version import InvalidVersion

from flashdepot.binary.wheel import WheelFacts
from flashdepot.diagnose.check.judge import Evidence, Outcome, evidence_of
from flashdepot.diagnose.check.place import InstalledTorch, Place, abi_of, span_of
from flashdepot.diagnose.check.subject import Binary, cuda_of_runtime
from flashdepot.errors import UsageError
from flashdepot.fit.needs import READERS, DriverNeed, PythonNeed, libc_of_tag
from flashdepot.fit.rules import ask
from flashdepot.model.diagnosis import Reasons, verdict_of
from flashdepot.model.target import Version
from flashdepot.model.wheel import BuiltFor, WheelName

_FIX = "It is not what its name says: take it from where it was first published, or another build."


def judge_claims(file_name: str, binaries: Iterable[Binary]) -> list[Evidence]:
    """Contradictions between a wheel's file name (``+cu12torch2.8cxx11abiTRUE``) and its bytes; none is good news."""
    claimed = BuiltFor.parse(file_name.partition("+")[2].partition("-")[0])
    return [
        Evidence(Outcome.DAMAGED, "name", f"the name says {said}", has, binary.name, _FIX)
        for binary in binaries
        for said, has in _contradictions(claimed, binary)
    ]


def _contradictions(claimed: BuiltFor, binary: Binary) -> Iterator[tuple[str, str]]:
    if "." in claimed.torch:
        torch = Version(".".join(claimed.torch.split(".")[:2]))
        for symbol in sorted(binary.torch_symbols):
            span = span_of(symbol)
            if span is not None and not span[0] <= torch <= span[1]:
                yield f"torch {torch}", f"it takes {symbol}, which torch {span[0]} to {span[1]} has"
                break
    cuda = claimed.cuda.partition(".")[0]
    for name in binary.needed:
        if cuda and cuda_of_runtime(name) not in {None, int(cuda)}:
            yield f"CUDA {cuda}", f"it needs {name}"
    taken = None if binary.is_windows else abi_of(binary.torch_symbols)
    if claimed.cxx11_abi is not None and taken not in {None, claimed.cxx11_abi}:
        has = f"its symbols are of the {'C++11' if taken else 'old C++'} ABI"
        yield f"cxx11abi{str(claimed.cxx11_abi).upper()}", has


_EXTENSION = re.compile(r".+\.(?:cpython-|cp)(\d)(\d+)(t?)d?-[\w-]+\.(?:so|pyd)")


def judge_wheel(wheel: WheelFacts, place: Place) -> list[Evidence]:
    """Archive, metadata and tags."""
    lines = [Evidence(Outcome.DAMAGED, "archive", problem, fix="Fetch it again.") for problem in wheel.problems]
    if not wheel.problems:
        seen = f"{len(wheel.files)} files agree with RECORD"
        lines.append(Evidence(Outcome.FITS, "archive", seen, f"{wheel.name} {wheel.version}"))
    if wheel.tags is None:
        seen = "its file name is not a wheel's: name-version-python-abi-platform.whl"
        lines.append(
            Evidence(Outcome.MISFIT, "tags", seen, "installers refuse it", fix="Rename it to its original name.")
        )
        return lines
    if wheel.metadata_tags and wheel.metadata_tags != wheel.tags:
        said = _spell(wheel.metadata_tags)
        lines.append(Evidence(Outcome.NOTE, "tags", f"its WHEEL file says {said}", "installers go by the file name"))
    lines += [_judge_tags(wheel.tags, place), *_judge_python(wheel.requires_python, place)]
    return [*lines, *_judge_torch(wheel.requires, place)]


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


def _judge_python(required: str, place: Place) -> list[Evidence]:
    """METADATA's Requires-Python, which installers obey whatever the tags say."""
    asked, found = place.facts.python, place.python
    if not required or asked is None:
        return []
    minor = "{}.{}".format(*asked.version)
    is_found = found is not None and found.interpreter == asked
    # Of a Python that is only named, the first and a late release of its minor version are asked.
    versions = {str(found.version)} if found is not None and is_found else {f"{minor}.0", f"{minor}.99"}
    seen, has = f"requires Python {required}", f"Python {min(versions) if is_found else minor}"
    try:
        fits = {SpecifierSet(required).contains(version, prereleases=True) for version in versions}
    except InvalidSpecifier:
        return [Evidence(Outcome.UNKNOWN, "python", f"{seen}, which is not a version range", has)]
    outcome = Outcome.FITS if fits == {True} else Outcome.MISFIT if fits == {False} else Outcome.UNKNOWN
    fix = "" if outcome is Outcome.FITS else f"Take a wheel for {asked.label}, or a Python {required}."
    return [Evidence(outcome, "python", seen, has, fix=fix)]


TORCH_VERSION = "torch version"
"""The topic of a note: METADATA's Requires-Dist does not admit the torch that is installed, which may load the file all the same."""


def _judge_torch(required: Iterable[str], place: Place) -> Iterator[Evidence]:
    """What METADATA requires of an installed torch and does not get; one that is only named has no patch level."""
    if not isinstance(place.torch, InstalledTorch):
        return
    torch = place.torch.torch.version
    for line in required:
        with contextlib.suppress(InvalidRequirement, InvalidVersion):
            asked = Requirement(line)
            if asked.name == "torch" and asked.marker is None and not asked.specifier.contains(torch, prereleases=True):
                fix = f"Use an environment with {asked}, or the wheel for torch {torch}."
                yield Evidence(Outcome.NOTE, TORCH_VERSION, f"it requires {asked}", f"torch {torch}", fix=fix)


def judge_extension_name(binary: Binary, place: Place) -> list[Evidence]:
    """The Python version in the file name of an extension module, ``_C.cpython-311-x86_64-linux-gnu.so``."""
    match = _EXTENSION.fullmatch(binary.name.rsplit("/", 1)[-1])
    python = place.facts.python
    if match is None or python is None:
        return []
    fits = (int(match[1]), int(match[2])) == python.version and bool(match[3]) == python.free_threaded
    seen = f"made for Python {match[1]}.{match[2]}{', free-threaded' if match[3] else ''}"
    fix = "" if fits else f"Take the build for {python.label}."
    return [Evidence(Outcome.FITS if fits else Outcome.MISFIT, "python", seen, python.label, binary.name, fix)]


def _judge_tags(tags: frozenset[Tag], place: Place) -> Evidence:
    facts, python = place.facts, place.facts.python
    seen = _spell(tags)
    musl = " with the musl C library" if facts.libc_name == "musl" else ""
    where = f"{facts.platform}{f' with GNU libc {facts.libc}' if facts.libc else musl}"
    # Python and ABI tags only of those whose platform tag is taken: in a set, each goes with each.
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
