"""A published wheel as a C++ library: its extension module, a header for what that exports, and a CMake package."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import msgspec

from flashdepot.binary.elf import ElfFile, demangled
from flashdepot.binary.window import open_window
from flashdepot.errors import IncompatibleError
from flashdepot.files.archive import unpack
from flashdepot.files.disk import sha256_file
from flashdepot.files.output_folder import OutputFolder
from flashdepot.files.user_files import OutputFile, read_regular
from flashdepot.model.environment import PythonEnvironment, Torch

ENTRY_POINTS = ("mha_fwd", "mha_varlen_fwd", "mha_bwd", "mha_varlen_bwd", "mha_fwd_kvcache")
"""The functions that upstream's Python module is made of, in its flash_api.cpp."""

_LONGEST = 600
"""Characters of a name; the longest of upstream has 150."""

_FUNCTION = re.compile(r"(?:((?:\w+::)*\w+)::)?(\w+)\((.*)\)", re.ASCII)
_TYPE = re.compile(
    r"(?:\b(?:const|bool|char|int|long|unsigned|float|double|at::Tensor|at::Generator"
    r"|(?:std|c10)::(?:optional|vector|ArrayRef))\b|[&*<> ])+",
    re.ASCII,
)
"""What upstream's entry points take. A list in another type's brackets is not among it."""


class UnreadableNameError(ValueError):
    """A name with something in it that entry points do not have."""


class WheelFunction(msgspec.Struct, frozen=True):
    """A function that takes ``parameters``, spelled as in C++, in a namespace (``""`` is the global one)."""

    mangled: str
    namespace: str
    name: str
    parameters: tuple[str, ...]

    @property
    def declaration(self) -> str:
        """Its declaration."""
        declared = f"{TENSORS} {self.name}({', '.join(self.parameters)});"
        return f"namespace {self.namespace} {{ {declared} }}" if self.namespace else declared


def parse_function(mangled: str) -> WheelFunction:
    """The function of a mangled name, from whose declaration a compiler makes that name again; what is unknown is refused."""
    function = _FUNCTION.fullmatch(demangled(mangled) if len(mangled) <= _LONGEST else "")
    parameters = tuple(filter(None, function[3].split(", "))) if function else ()
    if function is None or not all(map(_TYPE.fullmatch, parameters)):
        raise UnreadableNameError(f"{mangled[:_LONGEST]} is not a function of the types that entry points take")
    return WheelFunction(mangled, function[1] or "", function[2], parameters)


TENSORS = "std::vector<at::Tensor>"

_SPELLED = tuple(f"{len(name)}{name}" for name in ENTRY_POINTS)
_BINDING = re.compile(rb"\((\{[^{}\0]{1,80}\}(?:, \{[^{}\0]{1,80}\})*)\) -> ([^\0]{1,80})\0")
_LIST_OF_TENSORS = re.compile(r"[Ll]ist\[(?:torch|at)\.Tensor\]")
_TAKES_AND_GIVES = re.compile(r"@([^@]*)@([^@]*)@")
"""pybind11 3 and newer: a type that is spelled one way as an argument and another way as a result."""
_KINDS = ("Tensor", "Generator", "float", "bool", "int")


class WheelExtension(msgspec.Struct, frozen=True):
    """An extension module: its entry points, which return tensors, those left out with the reason, and what it needs."""

    name: str
    entry_points: tuple[WheelFunction, ...]
    left_out: tuple[str, ...]
    needed: tuple[str, ...]


def read_extension(path: Path) -> WheelExtension | None:
    """Read a shared library; ``None`` when it exports none of upstream's entry points."""
    with open_window(path) as window:
        elf = ElfFile(window)
        if not elf.readable:
            return None
        exported = (symbol.name for symbol in elf.symbols() if symbol.exported)
        # _ZZ is something inside a function.
        mangled = (name for name in exported if name.startswith("_Z") and not name.startswith("_ZZ"))
        names = [name for name in mangled if any(spelled in name for spelled in _SPELLED)]
        needed = elf.needed
    if not names:
        return None
    bindings, functions = list(_bindings(path)), list[WheelFunction]()
    unread, untyped = list[str](), list[str]()
    for name in sorted(names):
        try:
            function = parse_function(name)
        except UnreadableNameError as error:
            unread.append(f"{name}: {error}")
            continue
        # The mangled name does not say what it returns; the binding with its arguments does.
        kinds = tuple(map(_kind_of_parameter, function.parameters))
        answers = {returns for arguments, returns in bindings if arguments == kinds}
        if function.name in ENTRY_POINTS and answers and all(map(_LIST_OF_TENSORS.fullmatch, answers)):
            functions.append(function)
        elif function.name in ENTRY_POINTS:
            untyped.append(f"{function.name}: nothing in the file says what it returns")
    return WheelExtension(path.name, tuple(functions), (*unread, *untyped), needed)


def _bindings(path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """The signatures that pybind11 keeps in the file for Python's help: kinds of the arguments, and what is returned."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _BINDING.finditer(data):
            arguments = _TAKES_AND_GIVES.sub(r"\1", match[1].decode("ascii", "replace")).strip("{}").split("}, {")
            returns = _TAKES_AND_GIVES.sub(r"\2", match[2].decode("ascii", "replace"))
            yield tuple(map(_kind_of_text, arguments)), returns


def _kind_of_parameter(parameter: str) -> str:
    if "at::Tensor" in parameter or "at::Generator" in parameter:
        kind = "Tensor" if "at::Tensor" in parameter else "Generator"
        return f"optional {kind}" if "optional<" in parameter else kind
    if parameter in {"float", "double"}:
        return "float"
    return "bool" if parameter == "bool" else "int"


def _kind_of_text(text: str) -> str:
    kind = next((kind for kind in _KINDS if kind.lower() in text.lower()), text)
    optional = text.startswith("Optional[") or text.endswith("| None")
    return f"optional {kind}" if optional else kind


HEADER = "flash_attention_wheel.h"
PACKAGE = "FlashAttentionWheel"
_RECORD = ".flashdepot-wheel.json"
_TEMPLATES = Path(__file__).parent / "published_wheel_templates"
_SYSTEM = ("libc.", "libm.", "libdl.", "librt.", "libpthread.", "libgcc_s.", "libstdc++.", "ld-linux")


class BuildsWith(msgspec.Struct, frozen=True):
    """What programs are built with: a Python and its torch, the C++ ABI, and where libraries are found by name."""

    python: PythonEnvironment
    torch: Torch
    new_abi: bool
    find: Callable[[str], Path | None]


class WheelPackage(msgspec.Struct, frozen=True):
    """What was written: the folder, absolute, and the extension; ``missing`` are libraries that were not found."""

    root: Path
    extension: WheelExtension
    missing: tuple[str, ...]


def write_package(wheel: Path, name: str, version: str, using: BuildsWith, folder: Path) -> WheelPackage:
    """Write the package into ``folder``, which is new, empty or such a package."""
    written = OutputFolder(folder, "package", _RECORD, "--out DIR")
    with TemporaryDirectory(prefix="flashdepot-wheel-") as temporary:
        unpacked = Path(temporary) / "wheel"
        unpack(wheel, unpacked, keep=_is_wanted)
        path, extension = _only_extension(unpacked, wheel)
        libraries = {name: using.find(name) for name in extension.needed if not name.startswith(_SYSTEM)}
        there = [path for path in libraries.values() if path is not None]
        text = header(f"{name} {version}", extension.entry_points, new_abi=using.new_abi)
        config = _config(name, version, extension, using, there)
        texts = [path for path in sorted(unpacked.rglob("*")) if path.is_file() and path.suffix != ".so"]
        licences = {found.name: found for found in texts}
        files = (
            OutputFile(f"lib/{extension.name}", sha256_file(path), lambda: path),
            *(OutputFile.of(f"licenses/{title}", read_regular(found)) for title, found in licences.items()),
            OutputFile.of(f"include/{HEADER}", text.encode()),
            OutputFile.of(f"lib/cmake/{PACKAGE}/{PACKAGE}Config.cmake", config.encode()),
        )
        missing = tuple(name for name, path in libraries.items() if path is None)
        return WheelPackage(written.write(files), extension, missing)


def header(title: str, entry_points: Iterable[WheelFunction], *, new_abi: bool) -> str:
    """Declarations of the entry points, which are refused by a compiler with the other C++ ABI."""
    declarations = "".join(f"\n// {function.mangled}\n{function.declaration}\n" for function in entry_points)
    return _filled(f"{HEADER}.in", {"TITLE": title, "NEW_ABI": int(new_abi), "DECLARATIONS": declarations})


def _is_wanted(name: str) -> bool:
    path = PurePosixPath(name)
    licence = any(part.endswith(".dist-info") for part in path.parts) and path.name.startswith(("LICEN", "NOTICE"))
    return path.suffix == ".so" or licence


def _only_extension(unpacked: Path, wheel: Path) -> tuple[Path, WheelExtension]:
    found = {path: extension for path in sorted(unpacked.rglob("*.so")) if (extension := read_extension(path))}
    usable = {path: extension for path, extension in found.items() if extension.entry_points}
    if len(usable) == 1:
        return next(iter(usable.items()))
    why = "; ".join(reason for extension in found.values() for reason in extension.left_out)
    if usable:
        why = f"several of its files do: {', '.join(path.name for path in usable)}"
    raise IncompatibleError(
        f"{wheel.name} has no extension module that offers flash-attention's functions to C++"
        + (f" ({why})." if why else ": none is exported."),
        hint="Link flashdepot's own library instead, which needs no torch: flashdepot link cmake",
    )


def _config(name: str, version: str, extension: WheelExtension, using: BuildsWith, libraries: list[Path]) -> str:
    include = Path(using.torch.folder, "include")
    includes = (include, include / "torch" / "csrc" / "api" / "include")
    folders = dict.fromkeys(path.parent for path in libraries)
    program = ""
    if (library := using.python.library) is not None:
        program = _filled("program.cmake.in", {"PYTHON_LIBRARY": library, "PYTHON_FOLDER": library.parent})
    values = {
        "NAME": name,
        "VERSION": version,
        "TORCH": using.torch.label,
        "PYTHON": using.python.label,
        "CXX11_ABI": int(using.new_abi),
        "TORCH_INCLUDE": ";".join(str(folder) for folder in includes if folder.is_dir()),
        "RPATHS": ";".join(f"-Wl,-rpath,{folder}" for folder in folders),
        "EXTENSION": extension.name,
        "LIBRARIES": ";".join(map(str, libraries)),
        "PROGRAM": program,
    }
    return _filled(f"{PACKAGE}Config.cmake.in", values)


def _filled(template: str, values: Mapping[str, object]) -> str:
    text = (_TEMPLATES / template).read_text("utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
