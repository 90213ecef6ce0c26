"""Installing a wheel: all of it and verified in fresh processes of the environment's interpreter, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from flashdepot.errors import FlashdepotError, IncompatibleError, IntegrityError, MissingToolError, NetworkError
from flashdepot.events import Events
from flashdepot.host.python_environment import get_installer
from flashdepot.install.change import EnvironmentChange
from flashdepot.install.present import (
    environment_of,
    holds,
    inspect,
    installed,
    own_files,
    owner_of,
    present_version,
    require_own_name,
)
from flashdepot.kernels import oldest_gpu
from flashdepot.model.environment import PythonEnvironment
from flashdepot.model.host import HostRecord
from flashdepot.model.limits import joined
from flashdepot.net.fetch import offline
from flashdepot.process.run import ask_python, run, run_python
from flashdepot.prove.environment import run_script
from flashdepot.resolve.wheel_files import WheelFile
from flashdepot.wheel import Name, build_names

_INSTALLER_TIMEOUT = 600
_LINES_SHOWN = 5
_ONLY_NAMED = {"uv": ("--no-index", "--offline", "--no-cache", "--no-config"), "pip": ("--no-index", "--no-cache-dir")}
"""No index, no cache, no settings of the user's: what is named, and nothing else."""


def put_wheel(environment: PythonEnvironment, wheel: Path, staged: Path) -> str:
    """Install one wheel file and nothing else into a folder that stands for the prefix; :returns: the installer."""
    name = installer_of(environment)
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_"))}
    isolated = ("--isolated",) if name == "pip" else ()
    words = (*_ONLY_NAMED[name], str(wheel.absolute()))
    _run(name, environment, isolated, words, staged, variables, IncompatibleError, wheel.name)
    return name


def put_requirements(environment: PythonEnvironment, requirements: Sequence[str], staged: Path) -> None:
    """Install packages from the user's index, as the user's settings have it, without what they require themselves."""
    name = installer_of(environment)
    python = str(environment.executable)
    program = ["uv", "pip", "install", "--python", python] if name == "uv" else [python, "-m", "pip", "install"]
    if offline():
        raise NetworkError(
            f"{environment.prefix} has no {', '.join(requirements)}, which flash-attn needs, and the network is off.",
            hint=f"Install it first, from where you have it: {joined([*program, *requirements])}",
        )
    _run(name, environment, (), requirements, staged, os.environ, NetworkError, ", ".join(requirements))


def installer_of(environment: PythonEnvironment) -> str:
    """The installer that is used for an environment: ``uv`` or ``pip``; :raises MissingToolError: without one."""
    if shutil.which("uv"):
        return "uv"
    if "pip" in environment.packages:
        return "pip"
    raise MissingToolError(
        f"{environment.prefix} has no pip, and uv was not found: nothing here can install a wheel.",
        hint=get_installer(environment),
    )


def _run(
    name: str,
    environment: PythonEnvironment,
    options: Sequence[str],
    words: Sequence[str],
    staged: Path,
    variables: Mapping[str, str],
    refused: type[FlashdepotError],
    what: str,
) -> None:
    """Run an installer; ``refused`` is the error when it does not install ``what``."""
    into = ("--no-deps", "--prefix", str(staged), *words)
    if name == "uv":
        command = [str(shutil.which("uv")), "pip", "install", "--python", str(environment.executable), *options, *into]
        done = run(command, env=variables, timeout=_INSTALLER_TIMEOUT)
        (staged / ".lock").unlink(missing_ok=True)  # uv leaves one in its prefix; most environments have theirs
    else:
        command = ["-m", "pip", *options, "install", "--ignore-installed", "--no-compile", "--no-input", *into]
        done = run_python(environment.executable, command, variables=variables, timeout=_INSTALLER_TIMEOUT)
    if done.status != 0:
        if any(mark in done.output for mark in ("No space left on device", "Disk quota exceeded")):
            places = (str(environment.prefix), tempfile.gettempdir())
            fullest = min(places, key=lambda place: shutil.disk_usage(place).free)
            raise MissingToolError(
                f"The disk that holds {fullest} is full: {name} could not install {what}.",
                hint="Free space there, and run the same command again. The environment is as it was.",
            )
        said = "\n  ".join(done.output.strip().splitlines()[-_LINES_SHOWN:])
        raise refused(
            f"{name} did not install {what} into {environment.prefix}; it said:\n  {said}",
            hint=f"The environment is as it was. The command was: {joined(done.arguments)}",
        )


def add_missing(environment: PythonEnvironment, staged: Path) -> list[str]:
    """Add what staged packages require, and what that requires, from the user's index; :returns: what was added.

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
                    f"{environment.command('-m', 'pip', 'install', str(required))}",
                )
    return list(missing.values())


def _versions(found: Iterable[Distribution]) -> dict[str, str]:
    versions: dict[str, str] = {}
    for distribution in found:
        versions.setdefault(canonicalize_name(distribution.metadata["Name"] or ""), distribution.version)
    return versions


_TIMEOUT = 300
"""Importing torch from a cold network disk takes minutes."""

_OTHER_COPY = "Another copy comes first on sys.path: remove that one."

_IMPORT = """
import json, sys
import torch
import flash_attn, flash_attn_2_cuda
from importlib.metadata import version
print(sys.argv[1] + json.dumps({
    "version": version("flash_attn"),
    "torch": torch.__version__,
    "sees_gpu": torch.cuda.is_available(),
    "package": flash_attn.__file__,
    "module": flash_attn_2_cuda.__file__,
    "operator": str(getattr(torch.ops.flash_attn, "_flash_attn_forward", "")),
}))
"""

_FIND = """
import json, sys
from importlib.util import find_spec
found = [find_spec(name) for name in ("flash_attn", "flash_attn_2_cuda")]
print(sys.argv[1] + json.dumps([spec.origin for spec in found if spec and spec.has_location]))
"""
"""Says where the modules are without importing them."""


class Imported(msgspec.Struct, frozen=True):
    """What an import showed: versions, where the module came from, and whether torch sees a GPU."""

    version: str
    torch: str
    module: Path
    sees_gpu: bool


class Numbers(msgspec.Struct, frozen=True):
    """What the numeric proof showed: the GPU, and how many results were right and how many left out.

    ``not_run`` is the reason why it was not run, empty when it was.
    """

    gpu: str = ""
    right: int = 0
    skipped: int = 0
    not_run: str = ""


def verify_import(environment: PythonEnvironment, version: str) -> Imported:
    """Import flash_attn in a new process, without a GPU being needed; ``version`` is the one that was installed."""
    answer = ask_python(environment.executable, _IMPORT, timeout=_TIMEOUT)
    if answer.document is None:
        places = ask_python(environment.executable, _FIND, timeout=_TIMEOUT).document or []
        if others := [place for place in places if not _is_inside(environment, place)]:
            raise IntegrityError(
                f"flash_attn {version} was installed into {environment.platlib}, and {environment.executable} finds "
                f"{others[0]} first, with which it does not import: {answer.last_words}.",
                hint=_OTHER_COPY,
            )
        raise IntegrityError(
            f"flash_attn {version} was installed into {environment.prefix} and does not import there: "
            f"{answer.last_words}.",
            hint=f"The environment is as it was. See whether torch works: {environment.command('-c', 'import torch')}",
        )
    seen = answer.document
    inside = all(_is_inside(environment, seen[name]) for name in ("module", "package"))
    if seen["version"] != version or not inside:
        raise IntegrityError(
            f"flash_attn {version} was installed into {environment.platlib}, and {environment.executable} imports "
            f"{seen['version']} from {seen['package']}.",
            hint=_OTHER_COPY,
        )
    return Imported(seen["version"], seen["torch"], Path(seen["module"]), seen["sees_gpu"])


def _is_inside(environment: PythonEnvironment, place: str) -> bool:
    return any(site in Path(place).parents for site in (environment.platlib, environment.purelib))


def verify_numbers(environment: PythonEnvironment, imported: Imported, *, has_gpu: bool) -> Numbers:
    """Compare what flash_attn computes on this machine's GPU with float64, as ``flashdepot verify`` does."""
    if not has_gpu:
        return Numbers(not_run="there is no GPU here")
    if not imported.sees_gpu:
        return Numbers(not_run=f"torch {imported.torch} sees no GPU")
    try:
        document = run_script(environment.executable, "numeric.py", timeout=_TIMEOUT)
    except FlashdepotError as error:
        if "out of memory" in error.message:
            return Numbers(not_run="the GPU has no free memory now")
        raise IntegrityError(
            f"flash_attn {imported.version} imports in {environment.prefix} and does not compute: {error.message}",
            hint="The environment is as it was. 'flashdepot check' says whether the wheel has code for this GPU.",
        ) from error
    rows = document["rows"]
    if wrong := [row for row in rows if row["ok"] is False]:
        raise IntegrityError(
            f"flash_attn {imported.version} computes wrong numbers on {document['gpu']}: {len(wrong)} of {len(rows)}; "
            f"the first: {wrong[0]['dtype']} {wrong[0]['what']}.",
            hint="The environment is as it was. Do not use that wheel on this GPU.",
        )
    right = sum(row["ok"] is True for row in rows)
    return Numbers(gpu=document["gpu"], right=right, skipped=len(rows) - right)


class Installed(msgspec.Struct, frozen=True):
    """A wheel that works: by which installer, what import and computation showed, the version that it replaced.

    ``installer`` is ``None`` where the environment had that wheel and nothing was changed. ``added`` are the requirements
    that were installed with it.
    """

    installer: str | None
    imported: Imported
    numbers: Numbers
    replaced: str | None
    added: tuple[str, ...] = ()


def install_wheel(wheel: WheelFile, record: HostRecord, events: Events) -> Installed:
    """Check a wheel, put it into an environment, import it there and, with a GPU, compute with it, in fresh processes.

    Whatever goes wrong, the environment is put back as it was, with the flash-attn that it had.

    :param record: of this machine, with the environment.
    :raises UsageError: when no environment is known, or it has a flash-attn that could not be put back.
    :raises IncompatibleError: when wheel and environment do not fit, or the installer refuses.
    :raises MissingToolError: when torch, einops or an installer is missing, or the disk cannot be written.
    :raises NetworkError: when something that it requires cannot be fetched.
    :raises IntegrityError: when it is not what it says, does not import, or computes wrong numbers.
    """
    environment = environment_of(record)
    version = inspect(wheel, environment, record, events.warn)
    has_gpu = any(gpu.architecture >= oldest_gpu() for gpu in record.gpus)
    if holds(environment, wheel.path, version):
        with contextlib.suppress(FlashdepotError):  # what does not work is installed again
            imported = verify_import(environment, version)
            return Installed(None, imported, verify_numbers(environment, imported, has_gpu=has_gpu), None)
    with EnvironmentChange(environment.prefix, events.warn) as change:
        replaced, old = present_version(environment), own_files(environment)
        installer = put_wheel(environment, wheel.path, change.staged)
        if added := add_missing(environment, change.staged):
            events.note(f"flash-attn requires {', '.join(added)}: it comes from your index.")
        _require_own(change, old, environment, wheel.path.name)
        change.swap(old)
        imported = verify_import(environment, version)
        return Installed(
            installer, imported, verify_numbers(environment, imported, has_gpu=has_gpu), replaced, tuple(added)
        )


def _require_own(change: EnvironmentChange, old: list[Path], environment: PythonEnvironment, wheel: str) -> None:
    """Refuse programs of reserved names, and files that are there and no earlier flash-attn's.

    It judges what the installer wrote, not what the wheel seems to say.
    """
    for path in change.added():
        if path.parent == environment.scripts:
            require_own_name(path.name, wheel)
    for path in change.in_the_way(old):
        owner = owner_of(path, environment)
        whose = f"is a file of {owner}" if owner else "is there already and no file of flash-attn"
        raise IntegrityError(
            f"{wheel} is refused: it brings {path}, which {whose}.",
            hint="Nothing was changed. Take another wheel, or remove that file first if it is yours.",
        )


def install_names(
    names: Sequence[Name], environment: PythonEnvironment, folder: Path, on_note: Callable[[str], None]
) -> tuple[str, ...]:
    """Make the wheels of some names, install them and import each in a fresh process: all of them or none.

    What has such a name already is replaced.

    :param folder: where the wheels are written.
    :returns: the distributions.
    """
    with EnvironmentChange(environment.prefix, on_note) as change:
        for wheel in build_names(names, folder):
            put_wheel(environment, wheel.path, change.staged)
        wanted = {canonicalize_name(name.distribution) for name in names}
        there = (found for found in installed(environment) if canonicalize_name(found.metadata["Name"]) in wanted)
        old = [Path(os.path.normpath(str(d.locate_file(file)))) for d in there for file in d.files or ()]
        for path in change.in_the_way(old):
            owner = owner_of(path, environment) or "no distribution"
            raise IntegrityError(
                f"{path} exists already and belongs to {owner}: two distributions cannot share a file.",
                hint="flash-attn was installed, and nothing else was changed. Remove that file's distribution first.",
            )
        change.swap(old)
        for name in names:
            answer = ask_python(
                environment.executable, f"import sys, {name.imported}; print(sys.argv[1] + 'true')", timeout=_TIMEOUT
            )
            if answer.document is None:
                raise IntegrityError(
                    f"{name.distribution} was installed into {environment.prefix}, and 'import {name.imported}' fails "
                    f"there: {answer.last_words}.",
                    hint="flash-attn stays installed, and the rest of the environment is as it was.",
                )
    return tuple(name.distribution for name in names)
