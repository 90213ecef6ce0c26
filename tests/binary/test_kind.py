from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flashdepot.binary.coff import Import, PeFile
from flashdepot.binary.elf import ElfFile, read_shared_library, version_floor
from flashdepot.binary.objects import read_members
from flashdepot.binary.window import FileKind, Window, identify, open_window, read_lfs_pointer
from flashdepot.errors import IntegrityError
from support import forge


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", FileKind.EMPTY),
        (forge.LFS_POINTER, FileKind.LFS_POINTER),
        (forge.LFS_POINTER.replace(b"\n", b"\r\n"), FileKind.LFS_POINTER),
        (b"!<arch>\n", FileKind.ARCHIVE),
        (b"!<thin>\n", FileKind.THIN_ARCHIVE),
        (b"PK\x03\x04rest", FileKind.ZIP),
        (b"<!DOCTYPE html><html>Not Found", FileKind.WEB_PAGE),
        (b"\x64\x86" + b"\0" * 18, FileKind.COFF_OBJECT),
        (b"int main(void) { return 0; }", FileKind.UNKNOWN),
        (b"\x7fELF", FileKind.ELF_SHARED),
        (b"MZ", FileKind.PE_LIBRARY),
    ],
)
def test_a_file_is_known_by_its_first_bytes(head: bytes, kind: FileKind) -> None:
    assert identify(Window.of(head, "file")) is kind


def test_elf_files_are_told_apart_by_their_type(tmp_path: Path) -> None:
    made = {
        forge.shared_library(tmp_path): FileKind.ELF_SHARED,
        forge.object_file(tmp_path, "int f;"): FileKind.ELF_OBJECT,
    }
    for path, kind in made.items():
        with open_window(path) as window:
            assert identify(window) is kind


def test_a_pointer_tells_what_it_stands_for() -> None:
    for text in (forge.LFS_POINTER, forge.LFS_POINTER.replace(b"\n", b"\r\n")):
        pointer = read_lfs_pointer(text)
        assert pointer is not None
        assert (pointer.oid, pointer.size) == ("ab" * 32, 4828304)
    assert read_lfs_pointer(forge.LFS_POINTER[:60]) is None


def test_what_a_library_exports_and_needs_agrees_with_lief_and_nm(tmp_path: Path) -> None:
    import lief  # noqa: PLC0415

    source = '#include <math.h>\nextern double other(void); __attribute__((visibility("hidden"))) int h;'
    source += "double f(double x) { return cos(x) + other() + h; }"
    path = forge.shared_library(tmp_path, source, "-Wl,-soname,libx.so.3", "-Wl,-rpath,$ORIGIN/../a:/b", "-lm")
    theirs = lief.ELF.parse(str(path))
    listing = subprocess.run(["nm", "-D", "--undefined-only", str(path)], capture_output=True, text=True, check=True)
    undefined = listing.stdout.splitlines()
    with open_window(path) as window:
        ours = ElfFile(window)
        symbols = list(ours.symbols())
        assert {s.name for s in symbols if s.exported} == {str(s.name) for s in theirs.exported_symbols} == {"f"}
        assert {s.name for s in symbols if not s.defined} == {line.split()[-1].split("@")[0] for line in undefined}
        assert list(ours.needed) == [str(name) for name in theirs.libraries]
        assert (ours.soname, ours.run_paths, ours.machine) == ("libx.so.3", ("$ORIGIN/../a", "/b"), "x86_64")
        assert {s.name for s in ours.sections} <= {str(s.name) for s in theirs.sections}
        libc_floor = version_floor(ours.version_needs, "GLIBC")
    assert libc_floor is not None
    assert read_shared_library(path).libc_floor == libc_floor


def test_the_name_of_a_version_is_not_taken_for_an_export(tmp_path: Path) -> None:
    script = tmp_path / "versions"
    script.write_text("FA_1 { global: f; local: *; };")
    path = forge.shared_library(tmp_path, "int f(void) { return 1; }", f"-Wl,--version-script={script}")
    assert read_shared_library(path).exported == {"f"}
    with open_window(path) as window:
        assert "FA_1" in ElfFile(window).version_definitions


def test_a_library_without_section_headers_still_tells_its_symbols(tmp_path: Path) -> None:
    whole = bytearray(forge.shared_library(tmp_path, "int f(void) { return 1; }").read_bytes())
    whole[40:48] = b"\0" * 8  # e_shoff
    whole[60:64] = b"\0" * 4  # e_shnum, e_shstrndx
    elf = ElfFile(Window.of(bytes(whole), "lib.so"))
    assert "f" in {symbol.name for symbol in elf.symbols() if symbol.exported}
    assert elf.sections == ()


def test_a_library_cut_at_any_section_or_segment_is_called_cut_off(tmp_path: Path) -> None:
    whole = forge.library_with_gpu_code(tmp_path, forge.fatbin(forge.entry(forge.SASS, 80))).read_bytes()
    elf = ElfFile(Window.of(whole, "lib.so"))
    ends = {section.window.start + section.window.size for section in elf.sections}
    cuts = {cut for end in ends for cut in (end - 1, end, end + 1) if cut < len(whole)} | {0, 1, 19, 63, 64}
    for cut in sorted(cuts):
        with pytest.raises(IntegrityError, match=r"cut off or damaged|not an ELF"):
            ElfFile(Window.of(whole[:cut], "lib.so"))


def test_a_windows_library_tells_what_it_imports() -> None:
    data = forge.windows_library(imports={"c10.dll": ["a", "b"], "KERNEL32.dll": ["c"]}, gpu=b"code")
    pe = PeFile(Window.of(data, "lib.dll"))
    assert pe.imports == (Import("c10.dll", ("a", "b")), Import("KERNEL32.dll", ("c",)))
    assert [name for name, _ in pe.sections] == [".idata", ".nv_fatb"]
    assert pe.machine == "x86_64"
    for cut in (len(data) - 1, 0x400, 0x180, 64):
        with pytest.raises(IntegrityError):
            PeFile(Window.of(data[:cut], "lib.dll"))


def test_the_members_of_a_static_library_have_their_whole_names(tmp_path: Path) -> None:
    names = ["short.o", "a_name_longer_than_sixteen.o"]
    path = forge.archive(tmp_path, *(forge.object_file(tmp_path, f"int v{i};", n) for i, n in enumerate(names)))
    whole = path.read_bytes()
    members = list(read_members(Window.of(whole, "lib.a")))
    assert [member.name for member in members] == names
    assert {identify(member.window) for member in members} == {FileKind.ELF_OBJECT}
    with pytest.raises(IntegrityError, match="cut off"):
        list(read_members(Window.of(whole[:-9], "lib.a")))
