"""Our link functions with LLVM's lib and link in the place of Microsoft's; the results read back by our readers."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot.binary.archive import is_import, read_members
from flashdepot.binary.kind import FileKind, identify
from flashdepot.binary.pe import PeFile
from flashdepot.binary.window import open_window
from flashdepot.build.link_msvc import exported_names, link, prove_dll, prove_import_library
from flashdepot.errors import CompileError, FlashdepotError, MissingToolError
from flashdepot.families.c_layer import NATIVE
from flashdepot.toolchain.choose import Toolchain
from windows.coff import MISSING, REASON, compile_coff, make_visual_studio, with_environment

pytestmark = pytest.mark.skipif(bool(MISSING), reason=REASON)

NAMES = exported_names((NATIVE / "templates" / "libflashattention.map").read_text())
KERNEL = "int flashdepot_kernel(int x) { return x * 2; }\n"
DIRECTIVE = '__attribute__((section(".drectve"), used)) static const char d[] = " {} ";\n'


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    return make_visual_studio(tmp_path / "Visual Studio")


def layer(extra: str = "", names: tuple[str, ...] = NAMES) -> str:
    """A C layer: every entry point, and calls into a kernel and the CUDA runtime."""
    calls = "int flashdepot_kernel(int);\nint cudaPeekAtLastError(void);\n"
    bodies = [f"int {name}(void) {{ return flashdepot_kernel(cudaPeekAtLastError()); }}\n" for name in names]
    return DIRECTIVE.format("/DEFAULTLIB:msvcrt") + calls + "".join(bodies) + extra


def objects(folder: Path, *sources: str) -> list[Path]:
    (folder / "objects of a build").mkdir()
    return [compile_coff(text, folder / "objects of a build" / f"unit{i}.obj") for i, text in enumerate(sources)]


def linked(toolchain: Toolchain, folder: Path, *sources: str) -> dict[str, Path]:
    made = objects(folder, *sources)
    (folder / "out").mkdir()
    return dict(link(made, toolchain, NATIVE, folder / "out").files)


def test_the_dll_exports_our_functions_and_needs_windows_alone(toolchain: Toolchain, tmp_path: Path) -> None:
    files = linked(toolchain, tmp_path, layer(), KERNEL)
    with open_window(files["lib/shared/flashattention.dll"]) as window:
        assert identify(window) is FileKind.PE_LIBRARY
        dll = PeFile(window)
        assert dll.machine == "x86_64"
        assert {name for name in dll.exported if name.startswith("fa_")} == set(NAMES)
        assert dll.exported - set(NAMES) == {"NvOptimusEnablementCuda"}
        assert [entry.dll for entry in dll.imports] == ["kernel32.dll"]


def test_the_import_library_names_the_dll_and_every_function(toolchain: Toolchain, tmp_path: Path) -> None:
    files = linked(toolchain, tmp_path, layer(), KERNEL)
    with open_window(files["lib/shared/flashattention.lib"]) as window:
        entries = [m.window.take(20, m.window.size - 20, "names") for m in read_members(window) if is_import(m.window)]
    named = {tuple(part.decode() for part in entry.split(b"\0")[:2]) for entry in entries}
    assert {(name, "flashattention.dll") for name in NAMES} <= named


def test_the_static_library_has_two_names_and_every_object(toolchain: Toolchain, tmp_path: Path) -> None:
    files = linked(toolchain, tmp_path, layer(), KERNEL)
    archive = files["lib/static/flashattention.lib"]
    assert files["lib/static/libflashattention.a"].read_bytes() == archive.read_bytes()
    with open_window(archive) as window:
        assert identify(window) is FileKind.ARCHIVE
        members = [(Path(member.name).name, identify(member.window)) for member in read_members(window)]
    assert members == [("unit0.obj", FileKind.COFF_OBJECT), ("unit1.obj", FileKind.COFF_OBJECT)]
    assert all(name.encode() in archive.read_bytes() for name in (*NAMES, "flashdepot_kernel"))


def test_equal_objects_make_equal_dlls(toolchain: Toolchain, tmp_path: Path) -> None:
    made = objects(tmp_path, layer(), KERNEL)
    results = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        results.append(link(made, toolchain, NATIVE, tmp_path / name).files["lib/shared/flashattention.dll"])
    assert results[0].read_bytes() == results[1].read_bytes()


def test_more_objects_than_a_command_line_holds_are_linked(toolchain: Toolchain, tmp_path: Path) -> None:
    folder = tmp_path / ("a folder with a long name " * 4)
    folder.mkdir()
    kernels = [f"int flashdepot_kernel_{i}(void) {{ return {i}; }}" for i in range(4)]
    made = objects(folder, layer(), KERNEL, *kernels)
    copies = [made[-1].with_name(f"copy{i:03}.obj") for i in range(250)]
    for copy in copies:
        copy.write_bytes(compiled_alone(folder, copy.stem))
    assert sum(len(str(path)) for path in copies) > 32_767
    (folder / "out").mkdir()
    files = link([*made, *copies], toolchain, NATIVE, folder / "out").files
    with open_window(files["lib/static/flashattention.lib"]) as window:
        assert len(list(read_members(window))) == len(made) + len(copies)


def compiled_alone(folder: Path, name: str, _cache: dict[Path, bytes] = {}) -> bytes:  # noqa: B006
    """An object with one function of this name, of as many letters as any other."""
    template = _cache.get(folder)
    if template is None:
        template = _cache[folder] = compile_coff("int copy___(void) { return 0; }", folder / "copy.obj").read_bytes()
    return template.replace(b"copy___", name.encode().ljust(7, b"_"))


def test_an_export_that_is_not_ours_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    kernel = DIRECTIVE.format("/EXPORT:flashdepot_kernel") + KERNEL
    with pytest.raises(FlashdepotError, match="exports symbols that are not its own: flashdepot_kernel"):
        linked(toolchain, tmp_path, layer(), kernel)


def test_a_missing_entry_point_is_a_linker_error_that_names_it(toolchain: Toolchain, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=rf"flashattention\.dll cannot be linked: .*{NAMES[0]}"):
        linked(toolchain, tmp_path, layer(names=NAMES[1:]), KERNEL)


def test_a_dll_that_needs_another_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    files = linked(toolchain, tmp_path, layer(), KERNEL)
    path = tmp_path / "other.dll"
    data = files["lib/shared/flashattention.dll"].read_bytes()
    path.write_bytes(data.replace(b"kernel32.dll", b"cudart64.dll"))
    with pytest.raises(FlashdepotError, match=r"needs libraries that it must not: cudart64\.dll"):
        prove_dll(path, NAMES)
    with pytest.raises(FlashdepotError, match="does not export fa_more"):
        prove_dll(path, (*NAMES, "fa_more"))


def test_a_static_library_is_not_taken_for_an_import_library(toolchain: Toolchain, tmp_path: Path) -> None:
    files = linked(toolchain, tmp_path, layer(), KERNEL)
    prove_import_library(files["lib/shared/flashattention.lib"])
    with pytest.raises(FlashdepotError, match="is no import library"):
        prove_import_library(files["lib/static/flashattention.lib"])


def test_the_libraries_of_windows_are_found_by_the_loaded_environment(toolchain: Toolchain, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"kernel32\.lib"):
        linked(with_environment(toolchain, {"LIB": ""}), tmp_path, layer(), KERNEL)


def test_an_installation_without_its_linker_is_reported(toolchain: Toolchain, tmp_path: Path) -> None:
    Path(toolchain.cxx.path).with_name("link.exe").unlink()
    with pytest.raises(MissingToolError, match=r"link\.exe is not there") as caught:
        linked(toolchain, tmp_path, layer(), KERNEL)
    assert "Visual Studio Installer" in caught.value.hint
