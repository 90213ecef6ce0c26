"""What a wheel requires beside itself, and an environment lacks."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from flashdepot.errors import IncompatibleError
from flashdepot.install.installers import put_requirements
from flashdepot.model.python_environment import PythonEnvironment


def add_missing(environment: PythonEnvironment, staged: Path) -> list[str]:
    """Add what staged packages require, and what that requires, from the user's index.

    :returns: the requirements that were added, as the packages spell them.
    :raises IncompatibleError: when something is there in another version: replacing it is the user's decision.
    :raises NetworkError: when something cannot be had.
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
