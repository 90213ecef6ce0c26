"""Comparisons of what a wheel says of itself with a Python and a platform (PEP 425, 427, 600)."""

from __future__ import annotations

import re

from packaging.tags import Tag

from flashdepot.binary.wheel import WheelFacts
from flashdepot.doctor.check.environment import Environment, PythonFacts
from flashdepot.doctor.check.evidence import Evidence, Outcome
from flashdepot.doctor.check.subject import Binary
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Version

_OLD_FLOORS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}  # PEP 600, "Legacy"
_EXTENSION = re.compile(r".+\.(?:cpython-|cp)(\d)(\d+)(t?)d?-[\w-]+\.(?:so|pyd)")


def judge_wheel(wheel: WheelFacts, environment: Environment) -> list[Evidence]:
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
    return [*lines, _judge_tags(wheel.tags, environment)]


def judge_extension_name(binary: Binary, python: PythonFacts | None) -> list[Evidence]:
    """The Python version in the file name of an extension module, ``_C.cpython-311-x86_64-linux-gnu.so``."""
    match = _EXTENSION.fullmatch(binary.name.rsplit("/", 1)[-1])
    if match is None or python is None:
        return []
    fits = (int(match[1]), int(match[2])) == python.version and bool(match[3]) == python.free_threaded
    seen = f"made for Python {match[1]}.{match[2]}{', free-threaded' if match[3] else ''}"
    fix = "" if fits else f"Take the build for {python.label}."
    return [Evidence(Outcome.FITS if fits else Outcome.MISFIT, "python", seen, python.label, binary.name, fix)]


def _judge_tags(tags: frozenset[Tag], environment: Environment) -> Evidence:
    host, python = environment.host, environment.python
    platforms = frozenset(tag for tag in tags if platform_fits(tag.platform, host))
    seen = _spell(tags)
    musl = " with the musl C library" if host.libc_name == "musl" else ""
    where = f"{host.platform}" + (f" with GNU libc {host.libc}" if host.libc else musl)
    if not platforms:
        fix = f"Take the wheel for {host.platform}."
        return Evidence(Outcome.MISFIT, "tags", seen, where, fix=fix)
    if python is None:
        return Evidence(Outcome.NOTE, "tags", seen, f"{where}; no Python was named: --python PY")
    fits = any(python_fits(tag.interpreter, tag.abi, python) for tag in platforms)
    fix = "" if fits else f"Take the wheel for {python.label}."
    return Evidence(Outcome.FITS if fits else Outcome.MISFIT, "tags", seen, f"{python.label} on {where}", fix=fix)


def python_fits(interpreter: str, abi: str, python: PythonFacts) -> bool:
    """Whether a Python takes a wheel of such tags (PEP 425; PEP 703 for ``t``)."""
    match = re.fullmatch(r"(py|cp|pp)(\d)(\d*)", interpreter)
    if match is None:
        return False
    kind, version = match[1], (int(match[2]), int(match[3] or 0))
    if kind == "py":
        return abi == "none" and version[0] == python.version[0] and version <= python.version
    if kind != {"cpython": "cp", "pypy": "pp"}.get(python.implementation):
        return False
    if abi == "abi3":
        return version[0] == python.version[0] and version <= python.version and not python.free_threaded
    threads = "t" if python.free_threaded else ""
    exact = version == python.version
    if kind == "pp":
        return exact
    return exact and abi in {f"cp{version[0]}{version[1]}{threads}", "none"}


def platform_fits(tag: str, host: HostRecord) -> bool:
    """Whether a machine takes a wheel of such a platform tag."""
    if tag == "any":
        return True
    machine = host.platform.machine
    if host.platform.system == "windows":
        return tag == {"x86_64": "win_amd64", "aarch64": "win_arm64"}.get(machine)
    if host.platform.system != "linux" or not tag.endswith(f"_{machine}"):
        return False
    name = tag.removesuffix(f"_{machine}")
    if name == "linux":
        return True
    if re.fullmatch(r"musllinux_\d+_\d+", name):  # PEP 656; its versions are not known of a host
        return host.libc is None and host.libc_name == "musl"
    if (match := re.fullmatch(r"manylinux_(\d+)_(\d+)", name)) is not None:
        floor: str | None = f"{match[1]}.{match[2]}"
    else:
        floor = _OLD_FLOORS.get(name)
    return floor is not None and host.libc is not None and Version(floor) <= host.libc


def _spell(tags: frozenset[Tag]) -> str:
    return ", ".join(sorted(str(tag) for tag in tags))
