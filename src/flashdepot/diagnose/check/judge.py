"""Comparisons of a compiled file with a place. Each is pure and gives a line of evidence for each thing that was checked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import msgspec
from msgspec.structs import replace

from flashdepot.binary.elf import version_floor
from flashdepot.binary.fatbin import CodeKind, GpuCode
from flashdepot.binary.window import FileKind
from flashdepot.diagnose.check.place import InstalledTorch, Place, TorchSymbols, abi_of, built_for
from flashdepot.diagnose.check.subject import CUDA_SYMBOL, Binary, cuda_of_runtime
from flashdepot.facts.gpus import cuda_of_elf, cuda_of_ptx
from flashdepot.fit.needs import AbiNeed, CxxNeed, DriverNeed, LibcNeed, PlatformNeed
from flashdepot.fit.rules import ask, served_cuda, take_or_make
from flashdepot.model.codec import FixedWord
from flashdepot.model.diagnosis import Diagnosis, Verdict
from flashdepot.model.target import Architecture, Platform, Version


class Outcome(FixedWord):
    """How one comparison ended, a worse one after a better; a report ends as its worst line did.

    A ``NOTE`` is a fact that was asked of nothing: no GPU, no Python or no CUDA version was named to compare it with.
    """

    NOTE = "note"
    FITS = "fits"
    UNKNOWN = "cannot tell"
    MISFIT = "does not fit"
    DAMAGED = "damaged"

    @property
    def exit_code(self) -> int:
        """0 fits, 3 a fact is missing, 4 does not fit, 6 damaged."""
        return {Outcome.UNKNOWN: 3, Outcome.MISFIT: 4, Outcome.DAMAGED: 6}.get(self, 0)


class Evidence(msgspec.Struct, frozen=True, rename={"has": "environment"}):
    """One comparison: what the file needs or says (``seen``), what the environment has, and what fixes a misfit.

    ``topic`` is what was compared, in the field's words; ``where`` the compiled file, for a wheel's.
    """

    outcome: Outcome
    topic: str
    seen: str
    has: str = ""
    where: str = ""
    fix: str = ""


OUTCOMES = {Verdict.FITS: Outcome.FITS, Verdict.UNCERTAIN: Outcome.UNKNOWN, Verdict.MISFIT: Outcome.MISFIT}
"""What a verdict of fit is as a line of evidence."""


def evidence_of(reason: Diagnosis | None, topic: str, seen: str, has: str) -> Evidence:
    """The line for what a rule of fit said; ``None`` says that it is kept."""
    if reason is None:
        return Evidence(Outcome.FITS, topic, seen, has)
    return Evidence(OUTCOMES[reason.verdict], topic, seen, has, fix=str(reason.fix))


_SHOWN = 4
_ZSTANDARD_SINCE = Version("12.4")  # rapids-cmake, fatbin compression: from driver 550.54.14 on
_LIBC = re.compile(r"(?:libc|libm|libdl|libpthread|librt|libutil|libresolv)\.so\.\d|ld-linux[\w-]*\.so\.\d")
_MUSL = re.compile(r"libc\.musl-\w+\.so\.1|ld-musl-\w+\.so\.1")
_COMPILER = re.compile(r"lib(?:gcc_s|stdc\+\+|gomp)\.so\.\d")
_DRIVER = re.compile(r"libcuda\.so\.1|libnvidia-ml\.so\.1|nvcuda\.dll", re.IGNORECASE)
_TORCH = re.compile(r"lib(?:c10|torch)(?:_\w+)?\.so|(?:c10|torch)(?:_\w+)?\.dll", re.IGNORECASE)
_WINDOWS = re.compile(r"(?:kernel32|user32|advapi32|msvcp\d+|vcruntime\d+(?:_\d)?|ucrtbase|api-ms-.*|python3\d*)\.dll",
    re.IGNORECASE)  # fmt: skip


def judge_binary(binary: Binary, siblings: Iterable[Binary], place: Place) -> list[Evidence]:
    """Everything about one compiled file but its GPU code, which is judged for all of a wheel's files together."""
    others = tuple(siblings)
    lines = [judge_machine(binary, place)]
    if lines[0].outcome is not Outcome.MISFIT:
        offered = frozenset[str]().union(*(other.offered for other in others))
        bundled = {PurePosixPath(other.name).name for other in others}
        lines += judge_torch_symbols(binary, binary.torch_symbols - offered, place)
        lines += judge_floors(binary, place)
        lines += judge_cuda_runtime(binary, place)
        lines += judge_cuda_symbols(binary, place)
        lines += judge_libraries(binary, bundled, place)
    return [replace(line, where=binary.name) for line in lines]


def judge_cuda_runtime(binary: Binary, place: Place) -> Iterator[Evidence]:
    """Whether the driver serves the CUDA whose runtime library the file takes."""
    major = next((cuda for name in binary.needed if (cuda := cuda_of_runtime(name))), None)
    if major is not None and place.host.driver is not None:
        reason = ask("driver", place.facts, DriverNeed(str(major)))
        yield evidence_of(reason, "driver", f"needs CUDA {major}", f"driver {place.host.driver}")


def judge_cuda_symbols(binary: Binary, place: Place) -> Iterator[Evidence]:
    """Whether NCCL, cuBLAS and similar libraries, as they are here, have the functions that the file takes from them."""
    if not place.is_here or place.python is None:
        return
    wanted: dict[str, set[str]] = {}
    for symbol in binary.cuda_symbols:
        if match := CUDA_SYMBOL.fullmatch(symbol):
            wanted.setdefault({"cuda": "cudart"}.get(match[1], match[1]), set()).add(symbol)
    for library, symbols in sorted(wanted.items()):
        exported, file = place.exports_of(library, binary.needed)
        seen = f"{len(symbols)} functions of {library}"
        if missing := sorted(symbols - exported) if file else []:
            has = f"{file} lacks {len(missing)}: {_some(missing)}"
            fix = f"Install the {library} that it was built with: pip install -U 'nvidia-*' packages as its torch pins them."
            yield Evidence(Outcome.MISFIT, "CUDA symbols", seen, has, fix=fix)
        elif file:
            yield Evidence(Outcome.FITS, "CUDA symbols", seen, f"{file} has them all")


def judge_machine(binary: Binary, place: Place) -> Evidence:
    """CPU and operating system."""
    host = place.host.platform
    system = "windows" if binary.is_windows else "linux"
    kind = "Windows static library" if binary.is_windows and binary.kind is FileKind.ARCHIVE else binary.kind.value
    seen = f"{kind} for {' and '.join(sorted(binary.machines)) or 'no CPU'}"
    if not binary.machines:
        return Evidence(Outcome.UNKNOWN, "platform", "it holds no object file", str(host))
    made_for = [Platform(system, machine) for machine in sorted(binary.machines)]
    # An archive with objects for two CPUs is for neither.
    need = PlatformNeed(tuple(made_for) if len(made_for) == 1 else (), " and ".join(map(str, made_for)))
    return evidence_of(ask("platform", place.facts, need), "platform", seen, str(host))


def judge_architectures(binaries: Iterable[Binary], place: Place) -> Iterator[Evidence]:
    """Whether each GPU finds code in every fatbin of one file at least: packages choose among their files by GPU."""
    files = tuple(binaries)
    for binary in files:
        if binary.relocatable and not binary.containers:
            seen = "only relocatable device code, which runs once it is linked"
            fix = "Link it: nvcc -dlink, then check that."
            yield Evidence(Outcome.UNKNOWN, "architectures", seen, "", binary.name, fix)
    carriers = [binary for binary in files if binary.containers]
    if not place.environment.gpus:
        has, fix = "no GPU is here or was named", "Name the GPU that it is for: --gpu 9.0"
        yield from (Evidence(Outcome.UNKNOWN, "architectures", _codes(b), has, b.name, fix) for b in carriers)
    cuda = served_cuda(place.facts)
    for gpu in place.environment.gpus:
        served = {binary.name: _served(binary, gpu) for binary in carriers}
        best = max((count / total for count, total in served.values()), default=0.0)
        for binary in carriers:
            count, total = served[binary.name]
            native = any(c.runs_on(gpu) and c.kind is CodeKind.SASS for codes, _ in binary.containers for c in codes)
            has = f"GPU {gpu.dotted}: {count} of {total} fatbins have code for it"
            has += ", only as PTX, which the driver compiles at the first run" if count and not native else ""
            outcome = _outcome(count / total, best)
            fix = take_or_make(gpu) if outcome in _WRONG else ""
            yield Evidence(outcome, "architectures", _codes(binary), has, binary.name, fix)
            if count and cuda is not None:
                yield from _judge_driver(binary, gpu, cuda)


_WRONG = {Outcome.MISFIT, Outcome.UNKNOWN}
_MOST = 0.5
"""The share of fatbins with code below which what has code are helpers, and the kernels themselves have none."""


def _served(binary: Binary, gpu: Architecture) -> tuple[int, int]:
    """How many of a file's fatbins have code for a GPU, of how many."""
    count = sum(n for codes, n in binary.containers if any(c.runs_on(gpu) for c in codes))
    return count, sum(n for _, n in binary.containers)


def _outcome(share: float, best: float) -> Outcome:
    """What the share of fatbins with code says of a file, given the best share among the files next to it."""
    if share == 1.0:
        return Outcome.FITS
    if best == 1.0:
        return Outcome.NOTE
    if best < _MOST:
        return Outcome.MISFIT
    return Outcome.UNKNOWN if share == best else Outcome.NOTE


def _judge_driver(binary: Binary, gpu: Architecture, driver: Version) -> Iterator[Evidence]:
    """Whether the driver understands the code that the GPU would run, where that is PTX or in a newer compression."""
    floors = []
    for codes, _ in binary.containers:
        usable = [_cuda_floor(code) for code in codes if code.runs_on(gpu)]
        if usable and None not in usable:
            floors.append(min(floor for floor in usable if floor is not None))
    if floors:
        floor = max(floors)
        build = f"one that CUDA {driver.major} built" if driver.major < floor.major else f"a build for {gpu.sm}"
        fix = f"Update the driver (data-centre GPUs: or install cuda-compat for {floor}), or take {build}."
        fits = floor <= driver
        seen, has = f"code for drivers of CUDA {floor} or newer", f"a driver for CUDA {driver}"
        outcome = Outcome.FITS if fits else Outcome.MISFIT
        yield Evidence(outcome, "driver", seen, has, binary.name, "" if fits else fix)


def _cuda_floor(code: GpuCode) -> Version | None:
    """The oldest CUDA whose driver loads it, ``None`` for any: by what wrote it, and by its compression."""
    if code.ptx is not None and cuda_of_ptx(code.ptx) is None:
        return None
    written = cuda_of_ptx(code.ptx) if code.ptx is not None else cuda_of_elf(code.elf_abi)
    floors = [written, _ZSTANDARD_SINCE if code.compression == "Zstandard" else None]
    return max((floor for floor in floors if floor is not None), default=None)


def judge_torch_symbols(binary: Binary, symbols: frozenset[str], place: Place) -> Iterator[Evidence]:
    """Whether torch has the symbols, and the C++ ABI, that the file takes from it."""
    torch = place.torch
    if not symbols and not any(_TORCH.fullmatch(name) for name in binary.needed):
        return
    span = built_for(symbols)
    seen = f"{len(symbols)} symbols of torch" + (f", built for torch {span}" if span else "")
    if torch is None:
        fix = "Name a Python that has torch, --python PY, or a version, --torch 2.8."
        yield Evidence(Outcome.UNKNOWN, "torch", seen, "no torch is known here", fix=fix)
        return
    if binary.containers or any("cuda" in name for name in binary.needed):
        has = f"{torch.label}, driver {place.host.driver}" if place.host.driver else torch.label
        yield evidence_of(ask("torch-with-cuda", place.facts, need=True), "torch", "called with CUDA", has)
    missing = sorted(symbol for symbol in symbols if torch.exports(symbol) is False)
    known = sum(torch.exports(symbol) is True for symbol in symbols)
    if missing:
        has = f"{torch.label} lacks {len(missing)}: {_some(missing)}"
        fix = f"Take the build for {torch.label}" + (f", or use torch {span}." if span else ".")
        yield Evidence(Outcome.MISFIT, "torch symbols", seen, has, fix=fix)
    elif isinstance(torch, InstalledTorch):
        yield Evidence(Outcome.FITS, "torch symbols", seen, f"{torch.label} has them all")
    else:
        has = f"{torch.label} has those {known} that are in the table; --python PY checks the rest"
        if not known:
            has = f"none of them is in the table of torch's versions; a Python with {torch.label} can tell: --python PY"
        fits = known and (span or known == len(symbols))
        yield Evidence(Outcome.FITS if fits else Outcome.UNKNOWN, "torch symbols", seen, has)
    abi = None if binary.is_windows else abi_of(symbols)
    if abi is not None:
        yield _judge_abi(abi, torch, place)


def judge_floors(binary: Binary, place: Place) -> Iterator[Evidence]:
    """The C library and libstdc++."""
    host = place.host
    has = "the musl C library" if host.libc_name == "musl" else f"GNU libc {host.libc}" if host.libc else ""
    has = has or "the C library is not known"
    if (libc := version_floor(binary.version_needs, "GLIBC")) is not None:
        yield evidence_of(ask("libc", place.facts, LibcNeed("glibc", libc, libc)), "libc", f"needs GLIBC_{libc}", has)
    if musl := next((name for name in binary.needed if _MUSL.fullmatch(name)), None):
        yield evidence_of(ask("libc", place.facts, LibcNeed("musl")), "libc", f"made for musl: needs {musl}", has)
    for prefix in ("GLIBCXX", "CXXABI"):
        if (floor := version_floor(binary.version_needs, prefix)) is not None:
            facts, name = place.facts_with_libstdcxx, prefix.lower()
            offered = getattr(facts, name)
            shown = f"libstdc++ with {prefix} {offered}" if offered else "libstdc++: not known"
            reason = ask("libstdcxx", facts, CxxNeed(**{name: floor}))
            yield evidence_of(reason, "libstdc++", f"needs {prefix}_{floor}", shown)


def judge_libraries(binary: Binary, bundled: set[str], place: Place) -> Iterator[Evidence]:
    """Whether each needed library is there: bundled, torch's, CUDA's, the system's."""
    for name in binary.needed:
        if name not in bundled and not any(known.fullmatch(name) for known in (_LIBC, _MUSL, _WINDOWS)):
            outcome, has, fix = _judge_library(name, binary, place)
            yield Evidence(outcome, "libraries", name, has, fix=fix)


def _judge_library(name: str, binary: Binary, place: Place) -> tuple[Outcome, str, str]:
    torch = place.torch
    if _TORCH.fullmatch(name):
        if torch is None:
            return Outcome.NOTE, "comes with torch", ""
        if torch.has_library(name):
            return Outcome.FITS, f"{torch.label} has it", ""
        return Outcome.MISFIT, f"{torch.label} does not have it", f"Take the build for {torch.label}."
    cudart = cuda_of_runtime(name)
    if cudart and torch is not None and torch.torch.accelerator is not None and _takes_torch(binary):
        cuda = torch.torch.cuda
        brings = f"CUDA {cuda.major}" if cuda else "no CUDA"
        if cuda and cudart == cuda.major:
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
    where = "not next to torch, not in the system's folders"
    where += f"; it also looks in {_some(relative)}, of the place where it gets installed" if relative else ""
    return Outcome.UNKNOWN if relative else Outcome.MISFIT, where, f"Install the package that has {name}."


def _takes_torch(binary: Binary) -> bool:
    """Whether it is loaded after torch, which brings CUDA's libraries into the process."""
    return bool(binary.torch_symbols) or any(_TORCH.fullmatch(name) for name in binary.needed)


def _judge_abi(needed: bool, torch: TorchSymbols, place: Place) -> Evidence:
    names = {True: "C++11 ABI (cxx11abiTRUE)", False: "old C++ ABI (cxx11abiFALSE)"}
    has = f"{torch.label}: {names[torch.new_abi] if torch.new_abi is not None else 'its builds differ'}"
    line = evidence_of(ask("cxx11-abi", place.facts, AbiNeed(needed)), "C++ ABI", names[needed], has)
    if torch.new_abi is None:
        return replace(line, fix="Name its CUDA build, --torch 2.6+cu126, or the Python that has it, --python PY.")
    return line


def _codes(binary: Binary) -> str:
    sass = ", ".join(a.sm for a in binary.architectures(CodeKind.SASS)) or "none"
    ptx = ", ".join(f"compute_{a}" for a in binary.architectures(CodeKind.PTX)) or "none"
    return f"SASS {sass}; PTX {ptx}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
