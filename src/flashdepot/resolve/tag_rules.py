"""Rules about a wheel's tags: operating system and CPU, C library, interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import Version as Release

from flashdepot.model.candidate import Reason
from flashdepot.model.target import Version
from flashdepot.model.wheel_needs import OLDEST_PYTHON
from flashdepot.model.wheel_request import MADE_HERE, WheelRequest
from flashdepot.model.wheel_tag import glibc_floor, platform_of, python_fits
from flashdepot.system.toml import read_toml


@dataclass(frozen=True)
class Builder:
    """The system that made a wheel: it certainly runs with the GNU C library ``certain``, and never without ``needs``."""

    system: str
    certain: Version
    needs: Version


def judge_platform(request: WheelRequest, tags: str) -> Reason | None:
    """Operating system and CPU."""
    wanted = request.facts.platform
    if tags == "any":
        return None
    if wanted is None:
        text = "The platform is not known."
        return Reason.uncertain("platform", tags, "", text, "--platform linux-x86_64")
    if any(platform_of(tag) == wanted for tag in tags.split(".")):
        return None
    made_for = " or ".join(sorted({str(platform_of(tag) or tag) for tag in tags.split(".")}))
    text = f"It is made for {made_for}, and this is {wanted}."
    return Reason.misfit("platform", made_for, str(wanted), text, f"Take a wheel for {wanted}.")


def judge_libc(request: WheelRequest, source: str, version: str, tags: str) -> Reason | None:
    """The C library: that which a manylinux tag promises to do with, else that of the system that built the wheel."""
    facts, names = request.facts, tags.split(".")
    if not any("linux" in tag for tag in names):
        return None
    if facts.platform is not None and not any(platform_of(tag) == facts.platform for tag in names):
        return None  # judge_platform says so
    is_musl = any(tag.startswith("musllinux") for tag in names)
    if facts.libc_name == "musl" or is_musl:
        if facts.libc_name == "musl" and is_musl:
            return None
        wants, has = ("musl", "glibc") if is_musl else ("glibc", "musl")
        text = f"It needs the C library {wants}, and this system has {has}; PyTorch itself has no wheels for musl."
        return Reason.misfit("libc", wants, has, text, "Use a distribution with the GNU C library (Debian, Ubuntu).")
    floors = [floor for floor in map(glibc_floor, names) if floor is not None]
    if not floors and source in MADE_HERE:
        return None  # the rule build-place judges what is not compiled yet
    builder = None if floors else builder_of(source, version)
    certain = builder.certain if builder else min(floors)
    if facts.libc is None:
        text = f"It needs the GNU C library {certain}, and the one here is not known."
        return Reason.uncertain("libc", str(certain), "", text, "--glibc 2.35")
    if certain <= facts.libc:
        return None
    mend = f"Use a system with the GNU C library {certain} or newer, such as a newer container image."
    if builder is None or facts.libc < builder.needs:
        needs = certain if builder is None else builder.needs
        text = f"It needs the GNU C library {needs}, and this system has {facts.libc}."
        return Reason.misfit("libc", str(needs), str(facts.libc), text, mend)
    text = (
        f"It was built on {builder.system}, and certainly runs with the GNU C library {certain}; whether it does "
        f"with {facts.libc}, its bytes tell."
    )
    return Reason.uncertain("libc", str(certain), str(facts.libc), text, "flashdepot check FILE, after fetching it")


@cache
def _data() -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("wheel_builders.toml"))


@cache
def builder_of(source: str, version: str) -> Builder:
    """Who built a wheel whose platform tag says nothing of its C library, as far as ``wheel_builders.toml`` knows."""
    row = next(
        row
        for row in _data()["builder"]
        if row["source"] in {source, ""} and (not row["before"] or Release(version) < Release(row["before"]))
    )
    return Builder(row["system"], Version(row["certain"]), Version(row["needs"]))


@cache
def is_preview(torch_minor: str, version: str) -> bool:
    """Whether an official wheel was built against a development version of the torch that it names."""
    return any(
        row["torch"] == torch_minor and Release(row["first"]) <= Release(version) <= Release(row["last"])
        for row in _data()["preview"]
    )


def judge_python(request: WheelRequest, source: str, python_tags: str, abi_tags: str) -> Reason | None:
    """Interpreter and its ABI."""
    python = request.facts.python
    wants = python_tags if abi_tags in {"none", python_tags} else f"{python_tags}-{abi_tags}"
    if python is None:
        if python_tags == "py3":
            return None
        return Reason.uncertain("python", wants, "", "The Python is not known.", "--python-tag cp312")
    fits = any(python_fits(tag, abi, python) for tag in python_tags.split(".") for abi in abi_tags.split("."))
    if fits and (source not in MADE_HERE or python.version >= OLDEST_PYTHON.numbers):
        return None
    wants = f"Python {OLDEST_PYTHON} or newer" if fits else wants
    text = f"It is made for {wants}, and this Python is {python}."
    return Reason.misfit("python", wants, str(python), text, f"Use an environment of such a Python: {_venv(wants)}")


def _venv(wants: str) -> str:
    tag = wants.partition("-")[2] or wants
    version = tag[2:].removesuffix("t")
    if not version.isdecimal():
        return "uv venv --python 3.12"
    return f"uv venv --python 3.{version[1:]}{'t' if tag.endswith('t') else ''}"
