"""Which compiled files of a wheel an import of its packages loads, read from its Python files; nothing is run."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from flashdepot.binary.kind import FileKind
from flashdepot.doctor.check.subject import Binary

_LONGEST = 1 << 20
_SUFFIX = re.compile(r"(?:\.(?:cpython|cp|abi)[\w-]*)?\.(?:so|pyd)$")
_DATA = {FileKind.ARCHIVE, FileKind.ELF_OBJECT, FileKind.COFF_OBJECT}
"""What a program is linked with, or passed on: no import loads it."""
_FORGIVEN = {"ImportError", "ModuleNotFoundError", "OSError", "Exception", "BaseException", "RuntimeError"}


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
    beside = {PurePosixPath(name).parts[0] for name in reached}
    return data | {name for name in found.keys() - reached if PurePosixPath(name).parts[0] in beside}


def _imported(archive: zipfile.ZipFile, modules: Iterable[str]) -> set[str]:
    """Module files, without their suffix, that importing each top-level module or package reaches."""
    sources = {info.filename: info for info in archive.infolist() if info.filename.endswith(".py")}
    queue = [name.removesuffix(".py") for name in sources if "/" not in name]
    queue += [name.removesuffix(".py") for name in sources if re.fullmatch(r"[^/]+/__init__\.py", name)]
    queue += [name for name in modules if "/" not in name]
    reached = set(queue)
    while queue:
        place = queue.pop()
        info = sources.get(f"{place}.py")
        if info is None or info.file_size > _LONGEST:
            continue
        for name in _names(archive.read(info), place):
            new = {place for place in _places(name, sources) if place not in reached}
            reached |= new
            queue += new
    return reached


def _places(name: str, sources: Iterable[str]) -> Iterator[str]:
    """The files of a dotted name and of the packages above it; what is no module is no file either."""
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
