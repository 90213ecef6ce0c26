"""``flashdepot host`` and ``flashdepot doctor``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flashdepot import api
from flashdepot.cli.common import command, depot_option, option, options, path_option, python_option
from flashdepot.cli.options import environment_options
from flashdepot.cli.output import View, is_quiet, say
from flashdepot.depot import Depot
from flashdepot.files.disk import write_named
from flashdepot.host import probe
from flashdepot.model.environment import PythonEnvironment
from flashdepot.model.host import CudaToolkit, HostRecord
from flashdepot.model.limits import size
from flashdepot.resolve.facts import Given
from flashdepot.resolve.project import library_request
from flashdepot.toolchain.choose import OLDEST_CUDA

if TYPE_CHECKING:
    from flashdepot.model.diagnosis import Diagnosis


Row = tuple[str, str]
_INTENTIONS = ("install", "build", "link", "run")


@command("flashdepot host", "flashdepot host --python .venv --json", "flashdepot host --save node.json")
@path_option("--save FILE  Write the record to this file, for --host FILE.")
@options(python_option, depot_option)
def host(save: Path | None, python: str | None, depot: Depot) -> View:
    """Show what this machine has: GPUs, driver, CUDA toolkits, compilers, memory, disks, Python and PyTorch.

    Nothing is changed, and no GPU is needed. PyTorch is read from its files and not imported.
    """
    record = probe(python, depot.root)
    if save is not None:
        write_named(save, json.dumps(record.to_json(), indent=2).encode() + b"\n", "--save FILE")
        say(f"Saved to {save}.")
    return View(record.to_json(), [] if save is not None else [describe(record)])


@command(
    "flashdepot doctor",
    "flashdepot doctor install --python .venv",
    "flashdepot doctor build --arch 90,120",
    "flashdepot doctor run --host node.json",
)
@click.argument("intention", type=click.Choice(_INTENTIONS), default="install")
@option("--arch native|universal|80,90,...  GPU architectures to check for.  [default: native]")
@options(environment_options, depot_option)
def doctor(intention: str, arch: str | None, given: Given, depot: Depot) -> View:
    """Find what prevents an INTENTION: install (the default), build, link or run. The worst comes first.

    Each finding says what was found, why it matters and how to fix it. Exit code 0: it can work. 3: something is
    missing on the machine. 4: its hardware, driver or system cannot do it.
    """
    from flashdepot.diagnose.case import Intention, to_json, verdict  # noqa: PLC0415  ('host' needs none of it)

    findings = api.doctor(Intention(intention), library_request(arch=arch), host=given.record(depot.root))
    code = verdict(findings)
    document = {"intention": intention, "exit_code": code, "findings": [to_json(f) for f in findings]}
    return View(document, [] if is_quiet() and not code else [_page(intention, findings, code)], status=code)


def _page(intention: str, findings: Sequence[Diagnosis], code: int) -> str:
    from flashdepot.diagnose.case import severity_word  # noqa: PLC0415

    lines = []
    for finding in findings:
        lines += [f"{severity_word(finding)}: {finding.observed}", f"  {finding.expected}"]
        lines += [f"  -> {finding.fix}"] if finding.fix else []
    blockers = sum(severity_word(f) == "blocker" for f in findings)
    said = "can work here." if code == 0 else f"cannot work here: {blockers} to fix."
    others = "|".join(other for other in _INTENTIONS if other != intention)
    return "\n".join([*lines, f"'{intention}' {said} Other intentions: flashdepot doctor {others}"])


def describe(record: HostRecord) -> str:
    """The record, a fact or two a line."""
    rows = [*_system(record), *_gpus(record), *_tools(record)]
    if record.python is not None:
        rows += _python(record.python)
    elif record.no_python:
        rows.append(("Python", record.no_python))
    return "\n".join(f"{name:<9} {value}" for name, value in rows)


def _system(record: HostRecord) -> Iterator[Row]:
    libc = f", GNU libc {record.libc}" if record.libc else f", {record.libc_name} libc" if record.libc_name else ""
    yield "system", f"{record.os_name}, {record.platform}{libc}"
    inside = [f"a container ({record.container})"] if record.container else []
    inside += ["the Windows Subsystem for Linux"] if record.wsl else []
    if inside:
        yield "inside", " in ".join(inside)
    yield "cores", str(record.cores)
    memory = f"{size(record.memory)} usable"
    if facts := record.memory_facts:
        memory += f" of {size(facts.total)}"
        memory += f", limited to {size(facts.limit)} by the control group" if facts.limit is not None else ""
        memory += f", {size(facts.swap)} of swap" if facts.swap else ", no swap"
    yield "memory", memory
    for disk in record.disks:
        kind = f", {disk.filesystem}" if disk.filesystem else ""
        yield "disk", f"{size(disk.free)} free for {disk.use} in {disk.path}{kind}"


def _gpus(record: HostRecord) -> Iterator[Row]:
    serves = f", serves CUDA up to {record.driver_cuda}" if record.driver_cuda else ""
    yield "driver", f"{record.driver}{serves}" if record.driver else "no NVIDIA driver"
    for gpu in record.gpus:
        yield "GPU", f"{gpu.name}, compute capability {gpu.architecture.dotted}, {size(gpu.memory)}"
    if not record.gpus:
        yield "GPU", f"{record.nvidia_devices} without a driver" if record.nvidia_devices else "none"


def _tools(record: HostRecord) -> Iterator[Row]:
    winner = next((t for t in record.toolkits if not t.missing and t.version >= OLDEST_CUDA), None)
    for toolkit in record.toolkits:
        yield "CUDA", _toolkit(toolkit, wins=toolkit is winner)
    if not record.toolkits:
        yield "CUDA", "no toolkit; flashdepot provides nvcc when it has to compile"
    for compiler in record.compilers:
        yield "compiler", f"{compiler.kind} {compiler.version} ({compiler.path})"
    if not record.compilers:
        yield "compiler", "no C++ compiler; one is needed to build, not to use a library"
    if record.programs:
        yield "programs", ", ".join(record.programs)
    if record.variables:
        yield "variables", ", ".join(f"{name}={value}" for name, value in record.variables.items())


def _toolkit(toolkit: CudaToolkit, *, wins: bool) -> str:
    text = f"nvcc {toolkit.version} in {toolkit.root}, found by {toolkit.found_by}"
    limits = [("GCC", toolkit.newest_gcc), ("Clang", toolkit.newest_clang)]
    if accepted := [f"{name} up to {newest}" for name, newest in limits if newest is not None]:
        text += f", accepts {' and '.join(accepted)}"
    if toolkit.missing:
        return f"{text}; not complete: lacks {', '.join(toolkit.missing)}"
    if toolkit.version < OLDEST_CUDA:
        return f"{text}; older than CUDA {OLDEST_CUDA}, so it is skipped"
    return f"{text}; the first that is complete and new enough, so it is tried first" if wins else text


def _python(python: PythonEnvironment) -> Iterator[Row]:
    marks = {
        "free-threaded": python.free_threaded,
        "conda": python.conda,
        "managed by the system": python.managed,
        "not writable": not python.writable,
    }
    installers = f"; installers: {', '.join(python.installers)}" if python.installers else "; neither uv nor pip"
    about = "".join(f", {mark}" for mark, holds in marks.items() if holds)
    yield "Python", f"{python.version} ({python.tag}) {python.executable}{about}{installers}"
    if python.found_by:
        yield "", f"found by: {python.found_by}"
    if torch := python.torch:
        built = f"CUDA {torch.cuda}" if torch.cuda else f"ROCm {torch.hip}" if torch.hip else "no CUDA"
        abi = {True: ", C++11 ABI", False: ", old C++ ABI", None: ""}[torch.cxx11_abi]
        yield "PyTorch", f"{torch.version}, {built}{abi}, in {torch.folder}"
    else:
        yield "PyTorch", "none"
    for name in ("flash-attn", "flash-attn-3"):
        if version := python.packages.get(name):
            yield "package", f"{name} {version}"
    for extension in python.extensions:
        yield "module", f"{extension.module} in {extension.path}"
