"""A host record as a short page for people."""

from __future__ import annotations

from collections.abc import Iterator

from flashdepot.model.host import CudaToolkit, HostRecord
from flashdepot.model.python_environment import PythonEnvironment
from flashdepot.model.quantities import size
from flashdepot.toolchain.choose import OLDEST_CUDA

Row = tuple[str, str]


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
        return f"{text}; older than CUDA {OLDEST_CUDA}, so it is passed over"
    return f"{text}; the first that is complete and new enough, so it is tried first" if wins else text


def _python(python: PythonEnvironment) -> Iterator[Row]:
    marks = [
        mark
        for mark, holds in (
            ("free-threaded", python.free_threaded),
            ("conda", python.conda),
            ("managed by the system", python.managed),
            ("not writable", not python.writable),
        )
        if holds
    ]
    installers = f"; installers: {', '.join(python.installers)}" if python.installers else "; neither uv nor pip"
    about = "".join(f", {mark}" for mark in marks)
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
