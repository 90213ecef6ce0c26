"""Comparisons of what a wheel says of itself with a Python and a platform (PEP 425, 427, 600)."""

from __future__ import annotations

import re

from packaging.tags import Tag

from flashdepot.binary.wheel import WheelFacts
from flashdepot.doctor.check.evidence import Evidence, Outcome
from flashdepot.doctor.check.place import Place
from flashdepot.doctor.check.subject import Binary
from flashdepot.model.python_environment import Environment
from flashdepot.model.wheel_tag import platform_fits, python_fits

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
    return [*lines, _judge_tags(wheel.tags, place)]


def judge_extension_name(binary: Binary, python: Environment | None) -> list[Evidence]:
    """The Python version in the file name of an extension module, ``_C.cpython-311-x86_64-linux-gnu.so``."""
    match = _EXTENSION.fullmatch(binary.name.rsplit("/", 1)[-1])
    if match is None or python is None:
        return []
    fits = (int(match[1]), int(match[2])) == python.interpreter.version and bool(match[3]) == python.free_threaded
    seen = f"made for Python {match[1]}.{match[2]}{', free-threaded' if match[3] else ''}"
    fix = "" if fits else f"Take the build for {python.label}."
    return [Evidence(Outcome.FITS if fits else Outcome.MISFIT, "python", seen, python.label, binary.name, fix)]


def _judge_tags(tags: frozenset[Tag], place: Place) -> Evidence:
    host, python = place.host, place.python
    musl = host.libc is None and host.libc_name == "musl"
    platforms = frozenset(t for t in tags if platform_fits(t.platform, host.platform, host.libc, musl=musl))
    seen = _spell(tags)
    libc = f" with GNU libc {host.libc}" if host.libc else " with the musl C library" if musl else ""
    where = f"{host.platform}{libc}"
    if not platforms:
        fix = f"Take the wheel for {host.platform}."
        return Evidence(Outcome.MISFIT, "tags", seen, where, fix=fix)
    if python is None:
        return Evidence(Outcome.NOTE, "tags", seen, f"{where}; no Python was named: --python PY")
    fits = any(python_fits(tag.interpreter, tag.abi, python.interpreter) for tag in platforms)
    fix = "" if fits else f"Take the wheel for {python.label}."
    return Evidence(Outcome.FITS if fits else Outcome.MISFIT, "tags", seen, f"{python.label} on {where}", fix=fix)


def _spell(tags: frozenset[Tag]) -> str:
    return ", ".join(sorted(str(tag) for tag in tags))
