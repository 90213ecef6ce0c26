"""The programs that put packages into an environment, and what a wheel requires that an environment lacks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from flashdepot.errors import FlashdepotError, IncompatibleError, MissingToolError, NetworkError
from flashdepot.host.python_environment import get_installer
from flashdepot.model.environment import PythonEnvironment
from flashdepot.net.fetch import offline
from flashdepot.process.run import Finished, run, run_python

_TIMEOUT = 600
_LINES_SHOWN = 5
_ALONE = {
    "uv": ("--no-index", "--offline", "--no-cache", "--no-config"),
    "pip": ("--no-index", "--no-cache-dir"),
}
"""No index, no cache, no settings of the user's: what is named, and nothing else."""


def put_wheel(environment: PythonEnvironment, wheel: Path, staged: Path) -> str:
    """Install one wheel file and nothing else into a folder that stands for the environment's prefix.

    :returns: the installer: ``uv`` or ``pip``.
    """
    name = installer_of(environment)
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    isolated = ("--isolated",) if name == "pip" else ()
    done = _run(name, environment, isolated, (*_ALONE[name], str(wheel.absolute())), staged, variables)
    if done.status != 0:
        raise _refused(IncompatibleError, name, wheel.name, environment, done)
    return name


def put_requirements(environment: PythonEnvironment, requirements: Sequence[str], staged: Path) -> None:
    """Install packages from the user's index, as the user's settings have it, without what they require themselves."""
    name = installer_of(environment)
    command = " ".join(["uv pip install", *requirements] if name == "uv" else ["pip install", *requirements])
    if offline():
        raise NetworkError(
            f"{environment.prefix} has no {', '.join(requirements)}, which flash-attn needs, and the network is off.",
            hint=f"Install it first, from where you have it: {command}",
        )
    done = _run(name, environment, (), tuple(requirements), staged, os.environ)
    if done.status != 0:
        raise _refused(NetworkError, name, ", ".join(requirements), environment, done)


def installer_of(environment: PythonEnvironment) -> str:
    """The installer that is used for an environment: ``uv`` or ``pip``; :raises MissingToolError: without one."""
    if shutil.which("uv"):
        return "uv"
    if "pip" in environment.packages:
        return "pip"
    raise MissingToolError(
        f"{environment.prefix} has no pip, and there is no uv: nothing here installs wheels.",
        hint=get_installer(environment),
    )


def _run(
    name: str,
    environment: PythonEnvironment,
    options: Sequence[str],
    words: Sequence[str],
    staged: Path,
    variables: Mapping[str, str],
) -> Finished:
    into = ("--no-deps", "--prefix", str(staged), *words)
    if name == "uv":
        command = [str(shutil.which("uv")), "pip", "install", "--python", str(environment.executable), *options, *into]
        done = run(command, env=variables, timeout=_TIMEOUT)
        (staged / ".lock").unlink(missing_ok=True)  # uv leaves one in its prefix; most environments have theirs
        return done
    command = ["-m", "pip", *options, "install", "--ignore-installed", "--no-compile", "--no-input", *into]
    return run_python(environment.executable, command, variables=variables, timeout=_TIMEOUT)


def _refused(
    kind: type[FlashdepotError], name: str, what: str, environment: PythonEnvironment, done: Finished
) -> FlashdepotError:
    said = "\n  ".join(done.output.strip().splitlines()[-_LINES_SHOWN:])
    return kind(
        f"{name} did not install {what} into {environment.prefix}; it said:\n  {said}",
        hint=f"The environment is as it was. The command was: {' '.join(done.arguments)}",
    )


def add_missing(environment: PythonEnvironment, staged: Path) -> list[str]:
    """Add what staged packages require, and what that requires, from the user's index.

    :returns: the requirements that were added, as the packages spell them.
    :raises IncompatibleError: when something is there in another version: replacing it is the user's decision.
    """
    added: list[str] = []
    sites = {staged / os.path.relpath(site, environment.prefix) for site in (environment.purelib, environment.platlib)}
    there = _versions(distributions(path=list(map(str, environment.search))))
    while True:
        new = list(distributions(path=list(map(str, sites))))
        if not new:
            raise IncompatibleError(f"The installer put nothing where {environment.executable} imports from.")
        missing = _missing(new, {**there, **_versions(new)}, environment)
        if not missing:
            return added
        put_requirements(environment, missing, staged)
        added += missing


def _missing(new: Iterable[Distribution], there: dict[str, str], environment: PythonEnvironment) -> list[str]:
    version = environment.version
    numbers = "{}.{}".format(*environment.interpreter.version)
    facts = {"extra": "", "python_full_version": str(version), "python_version": numbers}
    missing: dict[str, str] = {}
    for distribution in new:
        name = distribution.metadata["Name"]
        for text in distribution.requires or ():
            try:
                required = Requirement(text)
            except InvalidRequirement as error:
                raise IncompatibleError(f"{name} requires {text!r}, which is not a requirement: {error}") from error
            if required.marker is not None and not required.marker.evaluate(facts):
                continue
            found = there.get(canonicalize_name(required.name))
            if found is None:
                required.marker = None
                missing[canonicalize_name(required.name)] = str(required)
            elif not required.specifier.contains(found, prereleases=True):
                raise IncompatibleError(
                    f"{name} requires {required}, and {environment.prefix} has {required.name} {found}.",
                    hint=f"Nothing was changed. If nothing else needs {required.name} {found}, replace it: "
                    f"{environment.executable} -m pip install '{required}'",
                )
    return list(missing.values())


def _versions(found: Iterable[Distribution]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for distribution in found:
        versions.setdefault(canonicalize_name(distribution.metadata["Name"] or ""), distribution.version)
    return versions
