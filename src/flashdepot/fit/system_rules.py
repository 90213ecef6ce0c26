"""Rules about the system: operating system and CPU, C and C++ libraries, interpreter."""

from __future__ import annotations

from flashdepot.fit.needs import CxxNeed, LibcNeed, PlatformNeed, PythonNeed
from flashdepot.model.environment import Environment
from flashdepot.model.verdict import Reason
from flashdepot.model.wheel_tag import python_fits


def judge_platform(facts: Environment, need: PlatformNeed) -> Reason | None:
    """Operating system and CPU."""
    wanted = facts.platform
    if wanted is None:
        text = "The platform is not known."
        return Reason.uncertain("platform", need.spelled, "", text, "--platform linux-x86_64")
    if wanted in need.platforms:
        return None
    text = f"It is made for {need.spelled}, and this is {wanted}."
    return Reason.misfit("platform", need.spelled, str(wanted), text, f"Take one for {wanted}.")


def judge_libc(facts: Environment, need: LibcNeed) -> Reason | None:
    """The C library: that which a tag or the bytes ask for, else that of the system on which it was built."""
    if facts.platform is not None and facts.platform.system != "linux":
        return None  # judge_platform says so
    if need.name == "musl" or facts.libc_name == "musl":
        return _judge_musl(facts, need)
    certain = need.certain
    if certain is None:
        return None
    if facts.libc is None:
        text = f"It needs the GNU C library {certain}, and the one here is not known."
        return Reason.uncertain("libc", str(certain), "", text, "--glibc 2.35")
    if certain <= facts.libc:
        return None
    oldest = need.oldest or certain
    if facts.libc < oldest or oldest == certain:
        text = f"It needs the GNU C library {oldest}, and this system has {facts.libc}."
        mend = f"Use a system with the GNU C library {oldest} or newer, such as a newer container image."
        return Reason.misfit("libc", str(oldest), str(facts.libc), text, mend)
    text = (
        f"It was built on {need.builder}, and certainly runs with the GNU C library {certain}; whether it does "
        f"with {facts.libc}, its bytes tell."
    )
    return Reason.uncertain("libc", str(certain), str(facts.libc), text, "flashdepot check FILE, after fetching it")


def _judge_musl(facts: Environment, need: LibcNeed) -> Reason | None:
    if facts.libc_name == need.name:
        return None
    if facts.libc_name is None and facts.libc is None:
        text = "It needs the C library musl, and the one here is not known."
        return Reason.uncertain("libc", "musl", "", text, "--platform musllinux_1_2_x86_64, or --glibc 2.35")
    has = facts.libc_name or "glibc"
    text = f"It needs the C library {need.name}, and this system has {has}; PyTorch itself has no wheels for musl."
    mend = "Use a distribution with the GNU C library (Debian, Ubuntu)."
    return Reason.misfit("libc", need.name, has, text, mend)


def judge_libstdcxx(facts: Environment, need: CxxNeed) -> Reason | None:
    """Symbol versions of libstdc++."""
    for prefix, floor, offered in (
        ("GLIBCXX", need.glibcxx, facts.glibcxx),
        ("CXXABI", need.cxxabi, facts.cxxabi),
    ):
        if floor is None or (offered is not None and floor <= offered):
            continue
        wants = f"{prefix}_{floor}"
        if offered is None:
            text = f"It needs a libstdc++ with {wants}, and the one here is not known."
            return Reason.uncertain("libstdcxx", wants, "", text, "flashdepot check FILE, on that machine")
        text = f"It needs a libstdc++ with {wants}, and the one here has up to {prefix}_{offered}."
        mend = "Use a newer system, or an environment with conda's libstdcxx-ng."
        return Reason.misfit("libstdcxx", wants, f"{prefix}_{offered}", text, mend)
    return None


def judge_python(facts: Environment, need: PythonNeed) -> Reason | None:
    """Interpreter and its ABI."""
    python = facts.python
    if python is None:
        if all(tag == "py3" for tag, _ in need.tags):
            return None
        return Reason.uncertain("python", need.spelled, "", "The Python is not known.", "--python-tag cp312")
    fits = any(python_fits(tag, abi, python) for tag, abi in need.tags)
    if fits and (need.oldest is None or python.version >= need.oldest.numbers):
        return None
    wants = f"Python {need.oldest} or newer" if fits else need.spelled
    text = f"It is made for {wants}, and this Python is {python}."
    return Reason.misfit("python", wants, str(python), text, f"Use an environment of such a Python: {_venv(wants)}")


def _venv(wants: str) -> str:
    tag = wants.partition("-")[2] or wants
    version = tag[2:].removesuffix("t")
    if not version.isdecimal():
        return "uv venv --python 3.12"
    return f"uv venv --python 3.{version[1:]}{'t' if tag.endswith('t') else ''}"
