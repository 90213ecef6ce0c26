"""A DLL that a linker made in Microsoft's manner is checked as those of zig are."""

from pathlib import Path

import pytest

from flashdepot.errors import FlashdepotError
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.toolchain.linked import exported_names, verify_dll, verify_import_library
from support.windows_library import compile_coff, link_dll, make_system, needs_llvm

pytestmark = needs_llvm

NAMES = exported_names((NATIVE / "templates" / "libflashattention.map").read_text())
KERNEL = "int flashdepot_kernel(int x) { return x * 2; }\n"
DIRECTIVE = '__attribute__((section(".drectve"), used)) static const char d[] = " {} ";\n'
CALLS = "int flashdepot_kernel(int);\n__declspec(dllimport) unsigned long GetLastError(void);\n"
BODIES = "".join(f"int {name}(void) {{ return flashdepot_kernel((int)GetLastError()); }}\n" for name in NAMES)
LAYER = DIRECTIVE.format("/DEFAULTLIB:msvcrt") + CALLS + BODIES


def linked(folder: Path, *sources: str) -> dict[str, Path]:
    objects = [compile_coff(text, folder / f"unit{number}.obj") for number, text in enumerate(sources)]
    return link_dll(make_system(folder / "sdk lib"), objects, folder / "out", NAMES)


def test_an_export_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    kernel = DIRECTIVE.format("/EXPORT:flashdepot_kernel") + KERNEL
    files = linked(tmp_path, LAYER, kernel)
    with pytest.raises(FlashdepotError, match="exports symbols that are not its own: flashdepot_kernel"):
        verify_dll(files["lib/shared/flashattention.dll"], NAMES)


def test_a_dll_that_needs_another_is_refused(tmp_path: Path) -> None:
    files = linked(tmp_path, LAYER, KERNEL)
    verify_dll(files["lib/shared/flashattention.dll"], NAMES)
    path = tmp_path / "other.dll"
    data = files["lib/shared/flashattention.dll"].read_bytes()
    path.write_bytes(data.replace(b"kernel32.dll", b"cudart64.dll"))
    with pytest.raises(FlashdepotError, match=r"needs libraries that it must not: cudart64\.dll"):
        verify_dll(path, NAMES)
    with pytest.raises(FlashdepotError, match="does not export fa_more"):
        verify_dll(path, (*NAMES, "fa_more"))


def test_a_static_library_is_not_taken_for_an_import_library(tmp_path: Path) -> None:
    files = linked(tmp_path, LAYER, KERNEL)
    verify_import_library(files["lib/shared/flashattention.lib"])
    with pytest.raises(FlashdepotError, match="is not an import library"):
        verify_import_library(files["lib/static/flashattention.lib"])
