"""Objects of foreign sources try to make a linker read what is the user's: by what is in them, and past that check."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flashdepot.binary.objects import require_plain
from flashdepot.errors import FlashdepotError
from flashdepot.process.confinement import UNCONFINED, Confinement, confinement_here
from flashdepot.toolchain.zig import Linker, Zig

SECRET = "a-secret-of-the-user"  # noqa: S105  (that is what it is called)
CLANG, LLD = shutil.which("clang"), shutil.which("ld.lld")

pytestmark = pytest.mark.skipif(CLANG is None or sys.platform != "linux", reason="needs Linux and clang")

ELF, COFF = "x86_64-linux-gnu", "x86_64-windows-gnu"
SECTIONS = {
    "dependent library": (ELF, '.section .deplibs,"MS",@llvm_dependent_libraries,1\n.asciz "stolen.lds"'),
    "dependent library of another name": (ELF, '.section .rodata.x,"MS",@llvm_dependent_libraries,1\n.asciz "x.lds"'),
    "linker option": (ELF, '.section ".linker-options","e",@llvm_linker_options\n.asciz "lib"\n.asciz "x.lds"'),
    "bitcode next to code": (ELF, '.section .llvm.lto,"e",@0x6fff4c0c\n.ascii "BC"'),
    "bitcode as data": (ELF, '.section .llvmbc,"a",@progbits\n.ascii "BC"'),
    "GCC's intermediate code": (ELF, '.section .gnu.lto_.opts,"e",@progbits\n.ascii "-O2"'),
    "partition": (ELF, '.section .part,"e",@llvm_sympart\n.asciz "part1"'),
    "type that nobody knows": (ELF, '.section .data.x,"a",@0x6fff4cff\n.long 1'),
    "warning": (ELF, '.section .gnu.warning.exit,"",@progbits\n.ascii "x"'),
    "library in a directive": (COFF, '.section .drectve,"yn"\n.ascii " -defaultlib:x.lds"'),
    "library in another spelling": (COFF, '.section .drectve,"yn"\n.ascii " /DefaultLib:\\"x y.lib\\""'),
    "library behind what is allowed": (COFF, '.section .drectve,"yn"\n.ascii " -export:a /DEFAULTLIB:x.lib"'),
    "manifest": (COFF, '.section .drectve,"yn"\n.ascii " /MANIFESTINPUT:x"'),
    "forwarded export": (COFF, '.section .drectve,"yn"\n.ascii " /EXPORT:a=other.b"'),
    "names of debugging files": (COFF, '.section .debug$T,"dr"\n.long 4'),
    "import": (COFF, '.section .idata$7,"dw"\n.asciz "evil.dll"'),
}


def assembled(folder: Path, target: str, text: str, *words: str) -> Path:
    assert CLANG
    (folder / "unit.s").write_text(f"{text}\n")
    made = folder / "unit.o"
    subprocess.run([CLANG, "-target", target, *words, "-c", folder / "unit.s", "-o", made], check=True)
    return made


def compiled(folder: Path, text: str, *words: str) -> Path:
    assert CLANG
    (folder / "unit.cpp").write_text(text)
    made = folder / "unit.o"
    subprocess.run([CLANG, "-fPIC", *words, "-c", folder / "unit.cpp", "-o", made], check=True)
    return made


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_that_linkers_may_obey_is_refused(tmp_path, name) -> None:
    made = assembled(tmp_path, *SECTIONS[name])
    with pytest.raises(FlashdepotError, match=r"unit\.o has (a section|the directive)"):
        require_plain(made)


def test_what_a_source_asks_for_by_a_pragma_is_refused(tmp_path) -> None:
    made = compiled(tmp_path, '#pragma comment(lib, "stolen.lds")\nint a;\n')
    with pytest.raises(FlashdepotError, match="deplibs"):
        require_plain(made)


@pytest.mark.parametrize("words", [("-flto",), ("-flto=thin",), ("-shared", "-nostdlib"), ("-m32",)])
def test_what_is_not_an_object_for_this_cpu_is_refused(tmp_path, words) -> None:
    made = compiled(tmp_path, "int a;\n", *(word for word in words if word.startswith(("-f", "-m"))))
    if "-shared" in words:
        assert CLANG
        made = Path(shutil.move(made, tmp_path / "part.o"))
        subprocess.run([CLANG, *words, made, "-o", tmp_path / "unit.o"], check=True)
    with pytest.raises(FlashdepotError, match=r"unit\.o has the form"):
        require_plain(tmp_path / "unit.o")


@pytest.mark.parametrize(
    "data",
    [b"INPUT(/etc/passwd)", b"!<thin>\n//", b"!<arch>\n", b"", b"\x7fELF", b"\0\0\xff\xff" + bytes(40), b"BC\xc0\xde"],
)
def test_scripts_archives_and_similar_are_not_objects(tmp_path, data) -> None:
    (tmp_path / "unit.o").write_bytes(data)
    with pytest.raises(FlashdepotError):
        require_plain(tmp_path / "unit.o")


@pytest.mark.parametrize("target", [ELF, COFF, "aarch64-linux-gnu"])
def test_what_compilers_write_for_honest_sources_is_let_through(tmp_path, target) -> None:
    text = """
    extern "C" int other(const char*);
    struct Held { int n = other("h"); ~Held() { other("x"); } };
    static Held held; thread_local Held mine; static int big[4000]; const double table[] = {1, 2};
    template <typename T> T twice(T value) { return value * 2; }
    __attribute__((section("__nv_module_id"), used)) static char name[] = "n";
    __attribute__((section(".nv_fatbin"), used)) static char code[] = "c";
    int use(int at) { return twice(at) + mine.n + big[at] + static_cast<int>(table[at % 2]); }
    """
    require_plain(
        compiled(tmp_path, text, "-target", target, "-O2", "-ffunction-sections", "-fdata-sections", "-faddrsig")
    )


@pytest.mark.skipif(LLD is None, reason="needs lld")
@pytest.mark.parametrize("way", ["library", "script"])
def test_a_linker_that_obeys_an_object_sees_no_file_of_the_users(tmp_path, monkeypatch, way) -> None:
    """The second wall: the object is given to the linker as it is."""
    if confinement_here() is Confinement.NONE:
        pytest.skip("nothing here confines a program")
    secret, tree, work = (tmp_path / name for name in ("secret", "tree", "work"))
    for folder in (tree, work, tmp_path / "zig"):
        folder.mkdir()
    secret.write_text(SECRET)
    (tmp_path / "zig" / "zig").write_text(f'#!/bin/sh\nshift\nexec {LLD} "$@"\n')
    (tmp_path / "zig" / "zig").chmod(0o755)
    script = f"TARGET(binary) INPUT({secret})"
    (tree / "x.lds").write_text(script)
    if way == "library":
        compiled(work, f'#pragma comment(lib, "{tree / "x.lds"}")\nint a;\n')
    else:
        (work / "unit.o").write_text(script)
    compiled(tree, "int other;")
    shutil.copy(tree / "unit.o", work / "other.o")
    linker = Linker(Zig(tmp_path / "zig", "0.14.1"), work)
    words = ("cc", "-shared", "-o", str(work / "made"), str(work / "other.o"), str(work / "unit.o"))
    assert linker.run(*words).status != 0
    assert not (work / "made").exists()
    monkeypatch.setenv(UNCONFINED, "1")
    assert linker.run(*words).status == 0, "without confinement the attack succeeds"
    assert SECRET.encode() in (work / "made").read_bytes()


def test_a_linker_has_no_variable_of_the_users(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    (tmp_path / "zig").mkdir()
    (tmp_path / "zig" / "zig").write_text("#!/bin/sh\n/usr/bin/env\n")
    (tmp_path / "zig" / "zig").chmod(0o755)
    (tmp_path / "work").mkdir()
    done = Linker(Zig(tmp_path / "zig", "0.14.1"), tmp_path / "work").run("cc")
    assert done.status == 0
    assert "ZIG_GLOBAL_CACHE_DIR" in done.stdout
    assert SECRET not in done.output
