"""A published wheel as a C++ library: its extension module, a header for what that exports, and a CMake package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import msgspec

from flashdepot.errors import IncompatibleError
from flashdepot.link.published_wheel_extension import EntryPoint, WheelExtension, read_extension
from flashdepot.model.python_environment import PythonEnvironment
from flashdepot.model.torch import Torch
from flashdepot.system.archive import unpack
from flashdepot.system.files import sha256_file
from flashdepot.system.output_file import OutputFile, record, record_text
from flashdepot.system.output_folder import OutputFolder
from flashdepot.system.user_files import read_regular

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
    """Write the package into ``folder``, which is new, empty or such a package.

    :raises IncompatibleError: when the wheel has no extension that C++ can call.
    :raises UsageError: when the folder holds something else.
    :raises IntegrityError: when the wheel is damaged.
    """
    written = OutputFolder(folder, "package", record(_RECORD), "--out DIR")
    with TemporaryDirectory(prefix="flashdepot-wheel-") as temporary:
        unpacked = Path(temporary) / "wheel"
        unpack(wheel, unpacked, keep=_is_wanted)
        path, extension = _only_extension(unpacked, wheel)
        libraries, missing = _libraries(extension, using)
        text = header(f"{name} {version}", extension.entry_points, new_abi=using.new_abi)
        config = _config(name, version, extension, using, libraries)
        licences = {found.name: found for found in sorted(unpacked.rglob("*")) if _is_licence(found)}
        files = (
            OutputFile(f"lib/{extension.name}", sha256_file(path), lambda: path),
            *(OutputFile.of(f"licenses/{title}", read_regular(found)) for title, found in licences.items()),
            OutputFile.of(f"include/{HEADER}", text.encode()),
            OutputFile.of(f"lib/cmake/{PACKAGE}/{PACKAGE}Config.cmake", config.encode()),
        )
        return WheelPackage(written.write(files, record_text(files)), extension, missing)


def _is_licence(path: Path) -> bool:
    return path.is_file() and path.suffix != ".so"


def header(title: str, entry_points: tuple[EntryPoint, ...], *, new_abi: bool) -> str:
    """Declarations of the entry points, which are refused by a compiler with the other C++ ABI."""
    lines = [
        f"// The functions that the extension module of {title} exports. Written by 'flashdepot link wheel':",
        "// parameters are read from their mangled names, return types from the text that Python shows as help.",
        "#pragma once",
        "",
        "#include <ATen/core/Generator.h>",
        "#include <ATen/core/Tensor.h>",
        "",
        "#include <optional>",
        "#include <vector>",
        "",
        f"#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI != {int(new_abi)}",
        f'#error "this extension and its torch are built with -D_GLIBCXX_USE_CXX11_ABI={int(new_abi)}"',
        "#endif",
    ]
    for entry in entry_points:
        function = entry.function
        declaration = function.declaration(entry.returns)
        inside = f"namespace {function.namespace} {{ {declaration} }}" if function.namespace else declaration
        lines += ["", f"// {function.mangled}", inside]
    return "\n".join(lines) + "\n"


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


def _libraries(extension: WheelExtension, using: BuildsWith) -> tuple[list[Path], tuple[str, ...]]:
    found, missing = [], []
    for name in extension.needed:
        if name.startswith(_SYSTEM):
            continue
        path = using.find(name)
        if path is None:
            missing.append(name)
        else:
            found.append(path)
    return found, tuple(missing)


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
