"""The file that is checked, as facts: what it is, what is in it, what it needs, and what an import loads of it."""

from __future__ import annotations

import ast
import re
import zipfile
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from flashdepot.binary.coff import CoffFile, PeFile
from flashdepot.binary.elf import ElfFile
from flashdepot.binary.fatbin import CodeKind, GpuCode, read_fatbins
from flashdepot.binary.objects import import_machine, is_import, read_members
from flashdepot.binary.wheel import WheelFacts, read_wheel
from flashdepot.binary.window import (
    COFF_MACHINES,
    FETCH_AGAIN,
    FileKind,
    Window,
    identify,
    open_window,
    read_lfs_pointer,
)
from flashdepot.errors import IntegrityError
from flashdepot.model.target import Architecture

TORCH_SYMBOL = re.compile(r"_Z(?:T[VIST]|GV)?N?[VKRO]*(?:3c10|2at|5torch|6caffe2)|aoti_torch_|torch_|THP")
"""Names that only torch's libraries define: mangled (Itanium C++ ABI) in its namespaces, or in its C interface."""

CUDA_SYMBOL = re.compile(r"(nccl|cublasLt|cublas|cusparse|cusolver|cudnn|curand|cufft|nvrtc|cupti|cuda)[A-Z]\w*")
"""Functions of CUDA's libraries, and of which: each library's names begin with its own (the libraries' API references)."""

_TORCH_DLL = re.compile(r"(?:c10|torch)(?:_\w+)?\.dll", re.IGNORECASE)
_FATBIN_SECTION = re.compile(r"\.nv_fatb")
_RELOCATABLE_SECTION = re.compile(r"__nv_relfatbin")
"""Device code that runs once it has been linked, by nvlink or ``nvcc -dlink`` (nvcc manual, separate compilation)."""
_ELF_KINDS = {FileKind.ELF_SHARED, FileKind.ELF_EXECUTABLE, FileKind.ELF_OBJECT}


_CUDART = re.compile(r"libcudart\.so\.(\d+)|cudart64_(\d+)\.dll", re.IGNORECASE)


def cuda_of_runtime(library: str) -> int | None:
    """The major version of CUDA whose runtime a library's name is: ``cudart64_110.dll`` is of 11, ``cudart64_12.dll`` of 12."""
    match = _CUDART.fullmatch(library)
    if match is None:
        return None
    number = int(match[1] or match[2])
    return number // 10 if number > 99 else number  # noqa: PLR2004


class Binary(msgspec.Struct, frozen=True):
    """One compiled file.

    ``torch_symbols`` are those that it takes from torch, ``offered`` those of that sort that it defines itself;
    ``cuda_symbols`` are those that it takes from CUDA's libraries.
    ``containers`` counts its fatbins by the code that is in them. ``relocatable`` says that it has device code that
    must be linked before it runs. ``is_windows`` says that it is for Windows: a library's kind does not tell.
    """

    name: str
    kind: FileKind
    machines: frozenset[str]
    needed: tuple[str, ...] = ()
    run_paths: tuple[str, ...] = ()
    version_needs: tuple[str, ...] = ()
    torch_symbols: frozenset[str] = frozenset()
    offered: frozenset[str] = frozenset()
    containers: tuple[tuple[frozenset[GpuCode], int], ...] = ()
    relocatable: bool = False
    cuda_symbols: frozenset[str] = frozenset()
    is_windows: bool = False

    def architectures(self, kind: CodeKind) -> tuple[Architecture, ...]:
        """Every architecture that it has such code for."""
        return tuple(sorted({c.architecture for codes, _ in self.containers for c in codes if c.kind is kind}))

    def to_json(self) -> dict[str, Any]:
        """The facts as ``--json`` prints them."""
        return {
            "name": self.name,
            "kind": self.kind.value,
            "machines": sorted(self.machines),
            "sass": [a.sm for a in self.architectures(CodeKind.SASS)],
            "ptx": [f"compute_{a}" for a in self.architectures(CodeKind.PTX)],
            "compression": sorted({c.compression for codes, _ in self.containers for c in codes}),
            "fatbins": sum(count for _, count in self.containers),
            "relocatable": self.relocatable,
            "needed": list(self.needed),
            "run_paths": list(self.run_paths),
            "symbol_versions": sorted(self.version_needs),
            "torch_symbols": sorted(self.torch_symbols),
        }


class Subject(msgspec.Struct, frozen=True):
    """A file with its kind, the compiled files in it, and what it says as a wheel, if it is one."""

    path: Path
    kind: str
    binaries: tuple[Binary, ...]
    wheel: WheelFacts | None


def read_subject(path: Path) -> Subject:
    """Read a wheel, a library or an object.

    :raises OSError: when it cannot be read.
    """
    with open_window(path) as window:
        kind = identify(window)
        if kind is not FileKind.ZIP:
            return Subject(path, kind.value, (_read_binary(window, kind),), None)
    binaries: list[Binary] = []

    def add(name: str, copy: Path) -> None:
        with open_window(copy, name) as member:
            kind = identify(member)
            if kind is not FileKind.UNKNOWN:  # a linker script may be called .so, a table of texts .lib
                binaries.append(_read_binary(member, kind))

    facts = read_wheel(path, add)
    return Subject(path, "wheel", tuple(binaries), facts)


def _read_binary(window: Window, kind: FileKind) -> Binary:
    if kind in _ELF_KINDS:
        return _elf(window, kind)
    if kind in {FileKind.PE_LIBRARY, FileKind.PE_PROGRAM}:
        return _pe(window, kind)
    if kind is FileKind.ARCHIVE:
        return _archive(window)
    if kind is FileKind.COFF_OBJECT:
        machine = COFF_MACHINES[int.from_bytes(window.head(2), "little")]
        containers = _gpu_code(window, CoffFile(window).contents())
        return Binary(window.name, kind, frozenset({machine}), containers=containers, is_windows=True)
    raise _stand_in(window, kind)


def _elf(window: Window, kind: FileKind) -> Binary:
    elf = ElfFile(window)
    if not elf.readable:
        return Binary(window.name, kind, frozenset({elf.machine}))
    taken, offered, of_cuda = set(), set(), set()
    for symbol in elf.symbols():
        if not symbol.defined and not symbol.weak and CUDA_SYMBOL.fullmatch(symbol.name):
            of_cuda.add(symbol.name)
        if TORCH_SYMBOL.match(symbol.name):
            if symbol.defined:
                offered.add(symbol.name)
            elif not symbol.weak:
                taken.add(symbol.name)
    return Binary(
        name=window.name,
        kind=kind,
        machines=frozenset({elf.machine}),
        needed=elf.needed,
        run_paths=elf.run_paths,
        version_needs=elf.version_needs,
        torch_symbols=frozenset(taken),
        offered=frozenset(offered),
        containers=_gpu_code(window, ((section.name, section.window) for section in elf.sections)),
        relocatable=any(_RELOCATABLE_SECTION.match(section.name) for section in elf.sections),
        cuda_symbols=frozenset(of_cuda) if kind is FileKind.ELF_SHARED else frozenset(),
    )


def _pe(window: Window, kind: FileKind) -> Binary:
    pe = PeFile(window)
    return Binary(
        name=window.name,
        kind=kind,
        machines=frozenset({pe.machine}),
        needed=tuple(entry.dll for entry in pe.imports),
        torch_symbols=frozenset(
            name for entry in pe.imports if _TORCH_DLL.fullmatch(entry.dll) for name in entry.names if name
        ),
        containers=_gpu_code(window, pe.sections),
        is_windows=True,
    )


def _archive(window: Window) -> Binary:
    parts: list[Binary] = []
    for member in read_members(window):
        body = Window(member.window.data, f"{window.name}({member.name})", member.window.start, member.window.size)
        kind = identify(body)
        if is_import(body):
            machine = COFF_MACHINES.get(import_machine(body), "another CPU")
            parts.append(Binary(body.name, FileKind.COFF_OBJECT, frozenset({machine}), is_windows=True))
        elif kind in _ELF_KINDS or kind is FileKind.COFF_OBJECT:
            parts.append(_read_binary(body, kind))
        elif kind is not FileKind.UNKNOWN:
            raise _stand_in(body, kind)
    offered = frozenset[str]().union(*(part.offered for part in parts))
    containers: Counter[frozenset[GpuCode]] = Counter()
    for part in parts:
        containers.update(dict(part.containers))
    return Binary(
        name=window.name,
        kind=FileKind.ARCHIVE,
        machines=frozenset[str]().union(*(part.machines for part in parts)),
        torch_symbols=frozenset[str]().union(*(part.torch_symbols for part in parts)) - offered,
        offered=offered,
        containers=tuple(containers.items()),
        relocatable=any(part.relocatable for part in parts),
        is_windows=any(part.is_windows for part in parts),
    )


def _gpu_code(whole: Window, sections: Iterable[tuple[str, Window]]) -> tuple[tuple[frozenset[GpuCode], int], ...]:
    counts: Counter[frozenset[GpuCode]] = Counter()
    room = whole.size
    for name, window in sections:
        if _FATBIN_SECTION.match(name):
            if (room := room - window.size) < 0:
                raise whole.damaged("its sections overlap")
            counts.update(read_fatbins(window))
    return tuple(counts.items())


_STANDS_IN = {
    FileKind.EMPTY: ("is empty; linkers silently accept an empty library", FETCH_AGAIN),
    FileKind.WEB_PAGE: ("is a web page, not a library: the download failed", FETCH_AGAIN),
    FileKind.THIN_ARCHIVE: ("is a thin archive: it names object files and holds none", "Make a whole one: ar rcs"),
    FileKind.ZIP: ("is a zip archive inside a library", FETCH_AGAIN),
}


def _stand_in(window: Window, kind: FileKind) -> IntegrityError:
    """The error for a file that is not a library at all."""
    begins = f"begins with {window.head(4).hex(' ') or 'nothing'}: that is not a library, object, wheel or archive"
    said, hint = _STANDS_IN.get(kind, (begins, FETCH_AGAIN))
    if kind is FileKind.LFS_POINTER:
        pointer = read_lfs_pointer(window.head(1024))
        stands_for = f" for {pointer.size} bytes with SHA-256 {pointer.oid}" if pointer else ""
        said = f"is a Git LFS pointer{stands_for}: the file itself was never fetched"
        hint = "git lfs install && git lfs pull"
    return IntegrityError(f"{window.name} {said}.", hint=hint)


_LONGEST = 1 << 20
_SUFFIX = re.compile(r"(?:\.(?:cpython|cp|abi)[\w-]*)?\.(?:so|pyd)$")
_DATA = {FileKind.ARCHIVE, FileKind.ELF_OBJECT, FileKind.COFF_OBJECT}
"""What a program is linked with, or passed on: no import loads it."""
_FORGIVEN = {"ImportError", "ModuleNotFoundError", "OSError", "Exception", "BaseException", "RuntimeError"}


def imports_torch(subject: Subject) -> bool:
    """Whether importing a wheel's packages imports torch; no more of them is read than it takes to know that."""
    modules = (_SUFFIX.sub("", binary.name) for binary in subject.binaries if _SUFFIX.search(binary.name))
    with zipfile.ZipFile(subject.path) as archive:
        return "torch" in _imported(archive, modules)


def optional_files(wheel: Path, binaries: Iterable[Binary]) -> frozenset[str]:
    """The compiled files that an import does without: data, and modules that no import of a package reaches.

    A package is followed from its ``__init__.py`` through what its modules import when they are imported themselves,
    unless an ``except`` forgives it. Where that reaches no compiled file nothing is optional but data: the package
    loads its files in a way that cannot be read.
    """
    found = {binary.name: binary for binary in binaries}
    data = frozenset(name for name, binary in found.items() if binary.kind in _DATA)
    modules = {_SUFFIX.sub("", name): name for name in found if _SUFFIX.search(name)}
    with zipfile.ZipFile(wheel) as archive:
        reached = {modules[place] for place in _imported(archive, modules) if place in modules}
    if not reached:
        return data
    by_file = {PurePosixPath(name).name: name for name in found}
    queue = list(reached)
    while queue:
        for needed in found[queue.pop()].needed:
            name = by_file.get(needed)
            if name is not None and name not in reached:
                reached.add(name)
                queue.append(name)
    together = {PurePosixPath(name).parts[0] for name in reached}
    return data | {name for name in found.keys() - reached if PurePosixPath(name).parts[0] in together}


def _imported(archive: zipfile.ZipFile, modules: Iterable[str]) -> Iterator[str]:
    """Module files, without their suffix, that importing each top-level module or package reaches, the nearest first."""
    sources = {info.filename: info for info in archive.infolist() if info.filename.endswith(".py")}
    queue = deque(name.removesuffix(".py") for name in sources if "/" not in name)
    queue += [name.removesuffix(".py") for name in sources if re.fullmatch(r"[^/]+/__init__\.py", name)]
    queue += [name for name in modules if "/" not in name]
    reached = set(queue)
    yield from queue
    while queue:
        place = queue.popleft()
        info = sources.get(f"{place}.py")
        if info is None or info.file_size > _LONGEST:
            continue
        for name in _names(archive.read(info), place):
            new = {place for place in _places(name, sources) if place not in reached}
            reached |= new
            yield from new  # before the others are read: who asks for one of them may stop here
            queue += new


def _places(name: str, sources: Iterable[str]) -> Iterator[str]:
    """The files of a dotted name and of the packages above it; what is not a module is not a file either."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        place = "/".join(parts[:end])
        yield f"{place}/__init__" if f"{place}/__init__.py" in sources else place


def _names(source: bytes, place: str) -> Iterator[str]:
    """The dotted names that a module imports while it is imported itself."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    package = place.split("/")[:-1]
    for node in _run(body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _run(body: Iterable[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.Try):
            caught = {name.id for handler in node.handlers for name in ast.walk(handler.type or handler)
                      if isinstance(name, ast.Name)}  # fmt: skip
            bare = any(handler.type is None for handler in node.handlers)
            if not bare and caught.isdisjoint(_FORGIVEN):
                yield from _run(node.body)
            yield from _run([*node.orelse, *node.finalbody])
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for field in ("body", "orelse"):
                yield from _run(getattr(node, field, []))
