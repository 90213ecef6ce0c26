"""What a file is by its bytes: kinds, fatbins, wheels, and libraries whose names are longer than those of files."""

import base64
import hashlib
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest

from flashdepot.binary.coff import Import, PeFile
from flashdepot.binary.elf import ElfFile, read_shared_library, version_floor
from flashdepot.binary.fatbin import CodeKind, GpuCode, read_fatbins
from flashdepot.binary.objects import read_members
from flashdepot.binary.wheel import WheelFacts, read_wheel
from flashdepot.binary.window import FileKind, Window, identify, open_window, read_lfs_pointer
from flashdepot.diagnose.check.subject import read_subject
from flashdepot.errors import IntegrityError
from flashdepot.model.target import Architecture
from support import forge
from support.tools import run_program


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
def test_a_file_is_known_by_its_first_bytes(head, kind) -> None:
    assert identify(Window.of(head, "file")) is kind


def test_elf_files_are_distinguished_by_their_type(tmp_path) -> None:
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


def test_what_a_library_exports_and_needs_agrees_with_lief_and_nm(tmp_path) -> None:
    import lief  # noqa: PLC0415

    source = '#include <math.h>\nextern double other(void); __attribute__((visibility("hidden"))) int h;'
    source += "double f(double x) { return cos(x) + other() + h; }"
    path = forge.shared_library(tmp_path, source, "-Wl,-soname,libx.so.3", "-Wl,-rpath,$ORIGIN/../a:/b", "-lm")
    theirs = lief.ELF.parse(str(path))
    undefined = run_program(["nm", "-D", "--undefined-only", str(path)]).splitlines()
    with open_window(path) as window:
        ours = ElfFile(window)
        symbols = list(ours.symbols())
        assert {s.name for s in symbols if s.exported} == {str(s.name) for s in theirs.exported_symbols} == {"f"}
        assert {s.name for s in symbols if not s.defined} == {line.split()[-1].split("@")[0] for line in undefined}
        assert list(ours.needed) == [str(name) for name in theirs.libraries]
        assert (ours.run_paths, ours.machine) == (("$ORIGIN/../a", "/b"), "x86_64")
        assert {s.name for s in ours.sections} <= {str(s.name) for s in theirs.sections}
        libc_floor = version_floor(ours.version_needs, "GLIBC")
    assert libc_floor is not None
    assert read_shared_library(path).libc_floor == libc_floor


def test_the_name_of_a_version_is_not_taken_for_an_export(tmp_path) -> None:
    script = tmp_path / "versions"
    script.write_text("FA_1 { global: f; local: *; };")
    path = forge.shared_library(tmp_path, "int f(void) { return 1; }", f"-Wl,--version-script={script}")
    assert read_shared_library(path).exported == {"f"}
    with open_window(path) as window:
        assert "FA_1" in ElfFile(window).version_definitions


def test_a_library_without_section_headers_still_tells_its_symbols(tmp_path) -> None:
    whole = bytearray(forge.shared_library(tmp_path, "int f(void) { return 1; }").read_bytes())
    whole[40:48] = b"\0" * 8  # e_shoff
    whole[60:64] = b"\0" * 4  # e_shnum, e_shstrndx
    elf = ElfFile(Window.of(bytes(whole), "lib.so"))
    assert "f" in {symbol.name for symbol in elf.symbols() if symbol.exported}
    assert elf.sections == ()


def test_a_library_cut_at_any_section_or_segment_is_called_cut_off(tmp_path) -> None:
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


def test_the_members_of_a_static_library_have_their_whole_names(tmp_path) -> None:
    names = ["short.o", "a_name_longer_than_sixteen.o"]
    path = forge.archive(tmp_path, *(forge.object_file(tmp_path, f"int v{i};", n) for i, n in enumerate(names)))
    whole = path.read_bytes()
    members = list(read_members(Window.of(whole, "lib.a")))
    assert [member.name for member in members] == names
    assert {identify(member.window) for member in members} == {FileKind.ELF_OBJECT}
    with pytest.raises(IntegrityError, match="cut off"):
        list(read_members(Window.of(whole[:-9], "lib.a")))


def read(data: bytes) -> list[set[tuple[str, str, str]]]:
    return [
        {(code.kind.value, str(code.architecture), code.compression) for code in container}
        for container in read_fatbins(Window.of(data, "section"))
    ]


def test_every_container_and_entry_is_found_behind_padding() -> None:
    first = forge.fatbin(forge.entry(forge.SASS, 80), forge.entry(forge.PTX, 80, 0x11 | forge.LZ4, header=80))
    second = forge.fatbin(forge.entry(forge.SASS, 120, 0x1000011 | forge.ZSTD, header=112))
    found = read(b"\0" * 24 + first + b"\0" * 40 + second)
    assert found == [{("SASS", "80", ""), ("PTX", "80", "LZ4")}, {("SASS", "120", "Zstandard")}]


def test_a_payload_that_holds_the_magic_number_is_not_taken_for_a_container() -> None:
    inner = forge.fatbin(forge.entry(forge.SASS, 90))
    assert read(forge.fatbin(forge.entry(forge.SASS, 80, payload=inner))) == [{("SASS", "80", "")}]


@pytest.mark.parametrize(("flags", "suffix"), [(0x11, ""), (forge.EXACT, "a"), (forge.FAMILY, "f")])
def test_the_suffix_of_an_architecture_is_in_its_flags(flags, suffix) -> None:
    assert read(forge.fatbin(forge.entry(forge.SASS, 100, flags))) == [{("SASS", f"100{suffix}", "")}]


def test_a_container_cut_anywhere_is_called_damaged() -> None:
    whole = forge.fatbin(forge.entry(forge.SASS, 80), forge.entry(forge.PTX, 90))
    for cut in range(4, len(whole)):
        with pytest.raises(IntegrityError):
            read(whole[:cut])


def test_an_entry_for_no_architecture_is_called_damaged() -> None:
    with pytest.raises(IntegrityError, match="architecture 7"):
        read(forge.fatbin(forge.entry(forge.SASS, 7)))


@pytest.mark.parametrize(
    ("kind", "code", "gpu", "runs"),
    [
        (CodeKind.SASS, "80", "86", True),
        (CodeKind.SASS, "80", "90", False),
        (CodeKind.SASS, "90a", "90", True),
        (CodeKind.PTX, "80", "90", True),
        (CodeKind.PTX, "90", "80", False),
        (CodeKind.PTX, "90a", "100", False),
        (CodeKind.PTX, "100f", "103", True),
        (CodeKind.PTX, "100f", "120", False),
        (CodeKind.OTHER, "80", "80", False),
    ],
)
def test_which_code_runs_on_which_gpu(kind, code, gpu, runs) -> None:
    assert GpuCode(kind, Architecture.parse(code), "").runs_on(Architecture.parse(gpu)) is runs


@pytest.mark.nvcc
@pytest.mark.parametrize("mode", ["none", "size", "speed"])
def test_code_from_a_real_nvcc_is_read_whatever_its_compression(tmp_path, mode) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc in PATH")
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k(float *p) { p[threadIdx.x] *= 2; }')
    targets = ["arch=compute_80,code=sm_80", "arch=compute_90a,code=sm_90a", "arch=compute_90,code=compute_90"]
    gencode = [part for target in targets for part in ("-gencode", target)]
    library = tmp_path / "k.so"
    command = [nvcc, "-shared", "-Xcompiler", "-fPIC", f"--compress-mode={mode}", *gencode, "-o", str(library), "k.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "compress-mode" in done.stderr:
        pytest.skip("this nvcc has no --compress-mode")
    assert done.returncode == 0, done.stderr
    (binary,) = read_subject(library).binaries
    assert [a.sm for a in binary.architectures(CodeKind.SASS)][-2:] == ["sm_80", "sm_90a"]
    assert "90" in [str(a) for a in binary.architectures(CodeKind.PTX)]


FILES = {"flash_attn/__init__.py": b"", "flash_attn/_C.so": b"\x7fELF and more"}


def read_wheel_file(path: Path) -> WheelFacts:
    return read_wheel(path, lambda _name, _copy: None)


def test_a_whole_wheel_has_no_problems_and_hands_over_its_compiled_files(tmp_path) -> None:
    seen = {}
    facts = read_wheel(forge.wheel(tmp_path, FILES), lambda name, copy: seen.update({name: copy.read_bytes()}))
    assert facts.problems == ()
    assert (facts.name, facts.version) == ("flash_attn", "2.8.3")
    assert seen == {"flash_attn/_C.so": b"\x7fELF and more"}


def sha(name: str, data: bytes) -> str:
    return f"{name}=" + base64.urlsafe_b64encode(hashlib.new(name, data).digest()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("{},,", "RECORD has no digest for 'flash_attn/_C.so'"),
        ("{}", "RECORD has no digest for 'flash_attn/_C.so'"),
        ("{},md5=AAAA,13", "RECORD has only its md5 for 'flash_attn/_C.so'"),
        ("{}," + sha("md5", FILES["flash_attn/_C.so"]) + ",13", "must have its SHA-256 or better"),
        ("{}," + sha("sha512", b"other") + ",13", "their SHA-512 differ"),
        ("{}," + sha("sha256", FILES["flash_attn/_C.so"]) + ",14", "has 13 bytes, and RECORD says 14"),
        (
            "{0}," + sha("sha256", FILES["flash_attn/_C.so"]) + ",13\n{0}," + sha("sha256", b"other") + ",",
            "with different contents",
        ),
    ],
)
def test_a_file_without_a_digest_that_can_be_relied_on_is_named(tmp_path, row, problem) -> None:
    path = forge.wheel(tmp_path, FILES, row={"flash_attn/_C.so": row.format("flash_attn/_C.so")})
    (found,) = read_wheel_file(path).problems
    assert problem in found


@pytest.mark.parametrize("name", ["sha256", "sha384", "sha512"])
def test_a_digest_of_any_strong_kind_will_do(tmp_path, name) -> None:
    row = f"flash_attn/_C.so,{sha(name, FILES['flash_attn/_C.so'])},"
    assert read_wheel_file(forge.wheel(tmp_path, FILES, row={"flash_attn/_C.so": row})).problems == ()


def test_a_member_that_record_does_not_list_is_named(tmp_path) -> None:
    path = forge.wheel(tmp_path, FILES)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("flash_attn/extra.py", "")
    assert read_wheel_file(path).problems == ("'flash_attn/extra.py' is in it and not in RECORD",)


def test_a_wheel_cut_anywhere_is_called_damaged(tmp_path) -> None:
    whole = forge.wheel(tmp_path, FILES).read_bytes()
    path = tmp_path / "flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"
    for cut in range(1, len(whole), 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(IntegrityError, match="cut off or damaged"):
            read_wheel_file(path)


def test_a_member_with_a_flipped_bit_is_called_damaged(tmp_path) -> None:
    path = forge.wheel(tmp_path, {"flash_attn/_C.so": bytes(range(256)) * 64})
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(IntegrityError):
        read_wheel_file(path)


def test_a_zip_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path) -> None:
    path = forge.wheel(tmp_path, FILES)
    data = bytearray(path.read_bytes())
    for at in range(len(data)):
        if data[at : at + 4] == b"PK\1\2":
            data[at + 24 : at + 28] = b"\xfe\xff\xff\xff"  # each says that it holds 4 GB
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="likely a decompression bomb"):
        read_wheel_file(path)


def test_a_zip_without_record_is_not_a_wheel(tmp_path) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.py", "")
    with pytest.raises(IntegrityError, match="not a wheel"):
        read_wheel_file(path)


def with_needed(folder: Path, letters: int) -> Window:
    """A library that needs one of so long a name."""
    path = forge.shared_library(folder, "int f(void) { return 1; }", "-Wl,--no-as-needed", "-lm")
    data = bytearray(path.read_bytes())
    elf = ElfFile(Window.of(bytes(data), "lib.so"))
    names = next(section for section in elf.sections if section.name == ".dynstr").window
    assert elf.needed
    long = len(data)
    data += b"\0" + b"A" * letters + b"\0"
    program = next(p for p in elf._programs if p[0] == 2)
    at, size = program[2], program[5]
    entries = [struct.unpack_from("<QQ", data, at + i) for i in range(0, size, 16)]
    for i, (tag, _) in enumerate(entries):
        if tag == 1:
            struct.pack_into("<QQ", data, at + 16 * i, 1, long - names.start + 1)
        if tag == 10:
            struct.pack_into("<QQ", data, at + 16 * i, 10, letters + 2 + long - names.start)
    # The segment with the names reaches to the end of the file.
    header = struct.unpack_from("<Q", data, 32)[0]
    for i in range(struct.unpack_from("<H", data, 56)[0]):
        kind, _, offset, *_ = struct.unpack_from("<IIQQQQQQ", data, header + 56 * i)
        if kind == 1 and offset <= names.start:
            struct.pack_into("<QQ", data, header + 56 * i + 32, len(data) - offset, len(data) - offset)
    return Window.of(bytes(data), "lib.so")


def test_a_name_that_no_file_can_have_is_damage(tmp_path) -> None:
    assert ElfFile(with_needed(tmp_path, 200)).needed[0] == "A" * 200
    with pytest.raises(IntegrityError, match="longer than a name can be"):
        _ = ElfFile(with_needed(tmp_path, 5000)).needed
