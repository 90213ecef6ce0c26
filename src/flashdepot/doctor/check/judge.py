"""Comparisons of a compiled file with a place. Each is pure and gives its lines of evidence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from flashdepot.binary.elf import version_floor
from flashdepot.binary.fatbin import CodeKind, GpuCode
from flashdepot.doctor.check.evidence import Evidence, Outcome
from flashdepot.doctor.check.place import Place
from flashdepot.doctor.check.subject import Binary
from flashdepot.doctor.check.torch_side import TorchSymbols, abi_of, built_for
from flashdepot.facts.drivers import cuda_of_ptx
from flashdepot.model.architecture import Architecture
from flashdepot.model.target import Version

_SHOWN = 4
_ZSTANDARD_SINCE = Version("12.4")  # rapids-cmake, fatbin compression: from driver 550.54.14 on
_LIBC = re.compile(r"(?:libc|libm|libdl|libpthread|librt|libutil|libresolv)\.so\.\d|ld-linux[\w-]*\.so\.\d")
_MUSL = re.compile(r"libc\.musl-\w+\.so\.1|ld-musl-\w+\.so\.1")
_COMPILER = re.compile(r"lib(?:gcc_s|stdc\+\+|gomp)\.so\.\d")
_DRIVER = re.compile(r"libcuda\.so\.1|libnvidia-ml\.so\.1|nvcuda\.dll", re.IGNORECASE)
_TORCH = re.compile(r"lib(?:c10|torch)(?:_\w+)?\.so|(?:c10|torch)(?:_\w+)?\.dll", re.IGNORECASE)
_CUDART = re.compile(r"libcudart\.so\.(\d+)|cudart64_(\d+)\.dll", re.IGNORECASE)
_WINDOWS = re.compile(r"(?:kernel32|user32|advapi32|msvcp\d+|vcruntime\d+(?:_\d)?|ucrtbase|api-ms-.*|python3\d*)\.dll",
    re.IGNORECASE)  # fmt: skip


def judge_binary(binary: Binary, siblings: Iterable[Binary], place: Place) -> list[Evidence]:
    """Everything about one compiled file but its GPU code, which is judged for all of a wheel's files together."""
    others = tuple(siblings)
    lines = judge_platform(binary, place)
    if any(line.outcome is Outcome.MISFIT for line in lines):
        return lines
    offered = frozenset[str]().union(*(other.offered for other in others))
    lines += judge_torch(binary, binary.torch_symbols - offered, place.torch)
    lines += judge_floors(binary, place)
    bundled = {PurePosixPath(other.name).name for other in others}
    return lines + judge_libraries(binary, bundled, place)


def judge_platform(binary: Binary, place: Place) -> list[Evidence]:
    """CPU and operating system."""
    host = place.host.platform
    system = "windows" if binary.is_windows else host.system if binary.kind.value == "static library" else "linux"
    seen = f"{binary.kind.value} for {' and '.join(sorted(binary.machines)) or 'no CPU'}"
    fits = system == host.system and binary.machines == {host.machine}
    if not binary.machines:
        return [Evidence(Outcome.UNKNOWN, "platform", "it holds no object file", str(host), binary.name)]
    fix = "" if fits else f"Take the file made for {host}."
    return [Evidence(Outcome.FITS if fits else Outcome.MISFIT, "platform", seen, str(host), binary.name, fix)]


def judge_architectures(binaries: Iterable[Binary], place: Place) -> list[Evidence]:
    """Whether each GPU finds code. A wheel fits when one of its files has code for it: packages choose by GPU."""
    gpus, driver = place.gpus, place.driver_cuda
    carriers = [binary for binary in binaries if binary.containers]
    if not gpus:
        has = "no GPU is here or was named: --gpu 9.0"
        return [Evidence(Outcome.NOTE, "architectures", _codes(binary), has, binary.name) for binary in carriers]
    lines = []
    for gpu in gpus:
        counts = [(b, sum(n for codes, n in b.containers if any(c.runs_on(gpu) for c in codes))) for b in carriers]
        served = any(count for _, count in counts)
        for binary, count in counts:
            total = sum(n for _, n in binary.containers)
            native = any(c.runs_on(gpu) and c.kind is CodeKind.SASS for codes, _ in binary.containers for c in codes)
            has = f"GPU {gpu.dotted}: {count} of {total} fatbins have code for it"
            has += ", as PTX alone, which the driver compiles at the first run" if count and not native else ""
            outcome = Outcome.FITS if count else Outcome.NOTE if served else Outcome.MISFIT
            fix = "" if served else f"Take a build for {gpu.sm}, or make one: flashdepot get --arch {gpu}"
            lines.append(Evidence(outcome, "architectures", _codes(binary), has, binary.name, fix))
            if count and driver is not None:
                lines += _judge_driver(binary, gpu, driver)
    return lines


def _judge_driver(binary: Binary, gpu: Architecture, driver: Version) -> list[Evidence]:
    """Whether the driver understands the code that the GPU would run, where that is PTX or in a newer compression."""
    floors = []
    for codes, _ in binary.containers:
        usable = [_cuda_floor(code) for code in codes if code.runs_on(gpu)]
        if usable and None not in usable:
            floors.append(min(floor for floor in usable if floor is not None))
    if not floors:
        return []
    needs, has = f"code for drivers of CUDA {max(floors)} or newer", f"a driver for CUDA {driver}"
    if max(floors) <= driver:
        return [Evidence(Outcome.FITS, "driver", needs, has, binary.name)]
    fix = (
        f"Update the driver (data-centre GPUs: or install cuda-compat for {max(floors)}), or take a build for {gpu.sm}."
    )
    return [Evidence(Outcome.MISFIT, "driver", needs, has, binary.name, fix)]


def _cuda_floor(code: GpuCode) -> Version | None:
    """The oldest CUDA whose driver loads it, ``None`` for any: machine code, or PTX of an unknown version."""
    floor = cuda_of_ptx(code.ptx) if code.ptx is not None else None
    if code.compression == "Zstandard" and (code.ptx is None or floor is not None):
        return max(floor or _ZSTANDARD_SINCE, _ZSTANDARD_SINCE)
    return floor


def judge_torch(binary: Binary, symbols: frozenset[str], torch: TorchSymbols | None) -> list[Evidence]:
    """Whether torch has the symbols, and the C++ ABI, that the file takes from it."""
    wanted = [name for name in binary.needed if _TORCH.fullmatch(name)]
    if not symbols and not wanted:
        return []
    span = built_for(symbols)
    seen = f"{len(symbols)} symbols of torch" + (f", built for torch {span}" if span else "")
    if torch is None:
        fix = "Name a Python that has torch, --python PY, or a version, --torch 2.8."
        return [Evidence(Outcome.UNKNOWN, "torch", seen, "no torch is known here", binary.name, fix)]
    lines = []
    fix = f"Take the build for {torch.label}" + (f", or use torch {span}." if span else ".")
    missing = sorted(symbol for symbol in symbols if torch.exports(symbol) is False)
    if missing:
        has = f"{torch.label} lacks {len(missing)}: {_some(missing)}"
        lines.append(Evidence(Outcome.MISFIT, "torch symbols", seen, has, binary.name, fix))
    elif torch.proof:
        lines.append(Evidence(Outcome.FITS, "torch symbols", seen, f"{torch.label} has them all", binary.name))
    else:
        known = sum(torch.exports(symbol) is True for symbol in symbols)
        has = f"{torch.label} has those {known} that are in the table; --python PY proves the rest"
        if not known:
            has = f"none of them is in the table of torch's versions; a Python with {torch.label} can tell: --python PY"
        outcome = Outcome.FITS if span or known == len(symbols) else Outcome.UNKNOWN
        lines.append(Evidence(outcome, "torch symbols", seen, has, binary.name))
    abi = None if binary.is_windows else abi_of(symbols)
    if abi is not None:
        lines.append(_judge_abi(abi, torch, binary.name))
    return lines


def judge_floors(binary: Binary, place: Place) -> list[Evidence]:
    """The C library and libstdc++."""
    lines = []
    libc = version_floor(binary.version_needs, "GLIBC")
    host = place.host
    if libc is not None and host.libc_name == "musl":
        fix = "Take a build for musl, or use a system with the GNU C library."
        has = "the musl C library"
        lines.append(Evidence(Outcome.MISFIT, "libc", f"needs GLIBC_{libc}", has, binary.name, fix))
    elif libc is not None:
        lines.append(_floor("libc", f"GLIBC_{libc}", "GNU libc", libc, host.libc, binary.name))
    musl = next((name for name in binary.needed if _MUSL.fullmatch(name)), None)
    if musl is not None:
        fits = host.libc is None and host.libc_name == "musl"
        known = fits or host.libc is not None
        outcome = Outcome.FITS if fits else Outcome.MISFIT if known else Outcome.UNKNOWN
        has = "the musl C library" if fits else f"GNU libc {host.libc}" if known else "the C library is not known"
        fix = "" if fits else "Take the build for the GNU C library: manylinux, not musllinux."
        lines.append(Evidence(outcome, "libc", f"made for musl: needs {musl}", has, binary.name, fix))
    for prefix, offered in (("GLIBCXX", place.libstdcxx), ("CXXABI", place.cxxabi)):
        floor = version_floor(binary.version_needs, prefix)
        if floor is not None:
            what = f"libstdc++ with {prefix}"
            lines.append(_floor("libstdc++", f"{prefix}_{floor}", what, floor, offered, binary.name))
    return lines


def judge_libraries(binary: Binary, bundled: set[str], place: Place) -> list[Evidence]:
    """Whether each needed library is there: bundled, torch's, CUDA's, the system's."""
    lines = []
    for name in binary.needed:
        if name in bundled or _LIBC.fullmatch(name) or _MUSL.fullmatch(name) or _WINDOWS.fullmatch(name):
            continue
        outcome, has, fix = _judge_library(name, binary, place)
        lines.append(Evidence(outcome, "libraries", name, has, binary.name, fix))
    return lines


def _judge_library(name: str, binary: Binary, place: Place) -> tuple[Outcome, str, str]:
    torch = place.torch
    if _TORCH.fullmatch(name):
        if torch is None:
            return Outcome.NOTE, "comes with torch", ""
        if torch.has_library(name):
            return Outcome.FITS, f"{torch.label} has it", ""
        return Outcome.MISFIT, f"{torch.label} does not have it", f"Take the build for {torch.label}."
    cudart = _CUDART.fullmatch(name)
    if cudart and torch is not None and torch.torch.accelerator is not None and _takes_torch(binary):
        needs, cuda = int(cudart[1] or cudart[2]), torch.torch.cuda
        brings = f"CUDA {cuda.major}" if cuda else "no CUDA"
        if cuda and needs in {cuda.major, 10 * cuda.major}:
            return Outcome.FITS, f"{torch.label} brings {brings}", ""
        if place.find_library(name) is None:
            return Outcome.MISFIT, f"{torch.label} brings {brings}", f"Take the build for {brings}."
    if _DRIVER.fullmatch(name):
        driver = place.host.driver
        return (Outcome.FITS, f"driver {driver}", "") if driver else (Outcome.NOTE, "comes with the NVIDIA driver", "")
    if (found := place.find_library(name)) is not None:
        return Outcome.FITS, os.fspath(found), ""
    if _COMPILER.fullmatch(name) and not place.is_here:
        return Outcome.NOTE, "comes with the system's compiler libraries", ""
    if not place.is_here or place.python is None:
        where = "comes with CUDA" if cudart else "not looked for: no Python was named"
        return Outcome.NOTE, where, ""
    relative = [path for path in binary.run_paths if path.startswith("$ORIGIN")]
    where = "not beside torch, not in the system's folders"
    where += f"; it also looks in {_some(relative)}, of the place where it gets installed" if relative else ""
    return Outcome.UNKNOWN if relative else Outcome.MISFIT, where, f"Install the package that has {name}."


def _takes_torch(binary: Binary) -> bool:
    """Whether it is loaded after torch, which brings CUDA's libraries into the process."""
    return bool(binary.torch_symbols) or any(_TORCH.fullmatch(name) for name in binary.needed)


def _judge_abi(needed: bool, torch: TorchSymbols, where: str) -> Evidence:
    names = {True: "C++11 ABI (cxx11abiTRUE)", False: "old C++ ABI (cxx11abiFALSE)"}
    if torch.new_abi is None:
        has = f"{torch.label}: its builds differ"
        fix = "Name its CUDA build, --torch 2.6+cu126, or the Python that has it, --python PY."
        return Evidence(Outcome.UNKNOWN, "C++ ABI", names[needed], has, where, fix)
    fits = needed == torch.new_abi
    fix = "" if fits else f"Take the build with the {names[torch.new_abi]}."
    has = f"{torch.label}: {names[torch.new_abi]}"
    return Evidence(Outcome.FITS if fits else Outcome.MISFIT, "C++ ABI", names[needed], has, where, fix)


def _floor(topic: str, seen: str, what: str, floor: Version, has: Version | None, where: str) -> Evidence:
    if has is None:
        return Evidence(Outcome.UNKNOWN, topic, f"needs {seen}", f"{what}: not known", where)
    fits = floor <= has
    fix = "" if fits else f"Take a build made on an older system, or use a system with {what} {floor}."
    return Evidence(Outcome.FITS if fits else Outcome.MISFIT, topic, f"needs {seen}", f"{what} {has}", where, fix)


def _codes(binary: Binary) -> str:
    sass = ", ".join(a.sm for a in binary.architectures(CodeKind.SASS)) or "none"
    ptx = ", ".join(f"compute_{a}" for a in binary.architectures(CodeKind.PTX)) or "none"
    return f"SASS {sass}; PTX {ptx}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
