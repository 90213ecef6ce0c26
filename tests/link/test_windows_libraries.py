"""The link commands on a library for Windows: what they print is what Microsoft's command lines need."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from flashdepot.binary.coff import PeFile
from flashdepot.binary.window import open_window
from flashdepot.cli.app import app
from flashdepot.link.library import Shell
from flashdepot.model import limits
from support.tools import flashdepot_here, tool
from support.windows_library import ForgedLibrary, forge_library, needs_llvm

pytestmark = needs_llvm

Sh = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = """
#include <flash_attention.h>
#if defined(FA_STATIC) && !defined(_DLL)
#error "the static library needs the C runtime of /MD"
#endif
int start(void) { return fa_fwd(0); }
"""
CLANG_CL = ["clang", "--driver-mode=cl", "--target=x86_64-pc-windows-msvc", "-fuse-ld=lld", "-Xclang", "-ffreestanding"]
OWN_ENTRY = ["/ENTRY:start", "/SUBSYSTEM:CONSOLE", "/OUT:program.exe"]
"""The C runtime's own is not here to call main."""


link = partial(flashdepot_here, "link")


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> ForgedLibrary:
    """A library for Windows in a path with blanks."""
    work = tmp_path_factory.mktemp("work")
    return forge_library(tmp_path_factory.mktemp("my libraries") / "flash attention", work)


@pytest.fixture
def damageable(forged: ForgedLibrary, tmp_path: Path) -> Path:
    return Path(shutil.copytree(forged.root, tmp_path / "library"))


def imports(program: Path) -> dict[str, tuple[str, ...]]:
    with open_window(program) as window:
        return {entry.dll: tuple(entry.names) for entry in PeFile(window).imports}


@pytest.fixture
def build(forged: ForgedLibrary, sh: Sh, tmp_path: Path) -> Callable[[list[str]], subprocess.CompletedProcess[str]]:
    """Compile and link a program with these arguments behind its source, by clang in the manner of cl."""

    def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
        (tmp_path / "program.c").write_text(PROGRAM)
        return sh(*CLANG_CL, "/Zl", "program.c", *arguments, *OWN_ENTRY, env={**os.environ, "LIB": forged.lib})

    return run


Build = Callable[[list[str]], subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("kind", "needed"),
    [("shared", {"flashattention.dll": ("fa_fwd",)}), ("static", {"kernel32.dll": ("GetLastError",)})],
)
def test_the_printed_flags_build_a_program(forged, build, tmp_path, kind, needed) -> None:
    printed = link("flags", f"--{kind}", "--library", forged.root)
    built = build(shlex.split(printed.stdout))
    assert built.returncode == 0, built.stdout
    assert imports(tmp_path / "program.exe") == needed


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("/MD", "needs the C runtime of /MD"),
        ("/DFA_STATIC", "undefined symbol: __declspec(dllimport) fa_fwd"),
        ("flashattention.lib", "undefined symbol: fa_fwd"),
        ("kernel32.lib", "undefined symbol: __declspec(dllimport) GetLastError"),
    ],
)
def test_without_one_of_the_flags_of_the_static_library_no_program_is_built(forged, build, missing, said) -> None:
    arguments = shlex.split(link("flags", "--static", "--library", forged.root).stdout)
    arguments.remove(missing)
    built = build(arguments)
    assert built.returncode != 0
    assert said in built.stdout


def test_where_the_dll_is_found_is_said_with_the_flags_of_the_shared_library(forged) -> None:
    said = f"finds flashattention.dll in its own folder or on PATH: {forged.root}/lib/shared"
    assert said in link("flags", "--shared", "--library", forged.root).stderr
    for arguments in (["--static"], ["--shared", "--compile"], ["--shared", "--quiet"]):
        assert link("flags", *arguments, "--library", forged.root).stderr == ""
    assert said in link("cmake", "--library", forged.root).stdout
    assert said in link("pkg-config", "--library", forged.root).stdout


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_the_printed_line_and_remark_let_pkg_config_find_it(forged, build, sh, tmp_path, kind) -> None:
    if sh(tool("pkg-config"), "--msvc-syntax", "--version").returncode != 0:
        pytest.skip("this pkg-config does not know --msvc-syntax; pkgconf does")
    lines = link("pkg-config", f"--{kind}", "--library", forged.root).stdout
    module = json.loads(link("pkg-config", f"--{kind}", "--library", forged.root, "--json").stdout)["package"]
    assert f"--cflags {module}' prints" in lines
    cflags, libs = (
        shlex.split(sh("sh", "-c", f"{lines}\npkg-config --msvc-syntax --{part} {module}").stdout)
        for part in ("cflags", "libs")
    )
    more = ["/MD"] if kind == "static" else []
    assert all(argument in lines for argument in more)
    built = build([*more, *cflags, "/link", *libs])
    assert built.returncode == 0, built.stdout
    assert ("flashattention.dll" in imports(tmp_path / "program.exe")) is (kind == "shared")


def test_on_windows_the_lines_are_those_of_cmd(forged, monkeypatch) -> None:
    monkeypatch.setattr(limits, "os", SimpleNamespace(name="nt"))
    monkeypatch.setattr(Shell, "here", lambda: Shell.CMD)

    def printed(command: str) -> list[str]:
        words = ["link", command, "--static", "--quiet", "--library", str(forged.root)]
        done = CliRunner().invoke(app, words, standalone_mode=False)
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    assert f'# Configure with: cmake -S . -B build "-DCMAKE_PREFIX_PATH={forged.root}"' in printed("cmake")
    first, line, *rest = printed("pkg-config")
    assert line == f'set "PKG_CONFIG_PATH={forged.root}/lib/pkgconfig;%PKG_CONFIG_PATH%"'
    assert all(remark.startswith("rem ") for remark in (first, *rest))
    (flags,) = printed("flags")
    assert flags.startswith(f'/MD "/I{forged.root}/include" /DFA_STATIC /link "/LIBPATH:{forged.root}/lib/static" ')


def test_scripts_get_the_prefix_and_one_document(forged) -> None:
    assert link("cmake", "--prefix", "--library", forged.root).stdout == f"{forged.root}\n"
    document = json.loads(link("flags", "--library", forged.root, "--json").stdout)
    assert document["platform"] == "windows-x86_64"
    assert document["compile"] == [f"/I{forged.root}/include"]
    assert document["link"] == ["/link", f"/LIBPATH:{forged.root}/lib/shared", "flashattention.lib"]


def test_a_crate_has_the_library_for_windows_inside_and_bindings_of_its_header(forged, tmp_path) -> None:
    done = link("cargo", tmp_path / "sys", "--library", forged.root)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'sys'}\n")
    for name in ("shared/flashattention.dll", "shared/flashattention.lib", "static/flashattention.lib"):
        assert (tmp_path / "sys/library/windows-x86_64/lib" / name).read_bytes() == (
            forged.root / "lib" / name
        ).read_bytes()
    assert "pub fn fa_fwd(" in (tmp_path / "sys/src/bindings.rs").read_text()


@pytest.mark.parametrize("name", ["lib/shared/flashattention.lib", "lib/shared/flashattention.dll"])
def test_a_pointer_in_place_of_the_dll_or_its_import_library_is_named(damageable, name) -> None:
    (damageable / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    for command in ("cmake", "pkg-config", "flags"):
        done = link(command, "--shared", "--library", damageable)
        assert (done.returncode, done.stdout) == (6, "")
        assert f"{name} is a Git LFS pointer" in done.stderr
    assert link("flags", "--static", "--library", damageable).returncode == 0


def test_a_library_of_a_system_that_none_is_made_for_is_refused(damageable) -> None:
    manifest = damageable / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"windows-x86_64"', '"darwin-arm64"'))
    for command in ("cmake", "pkg-config", "flags"):
        done = link(command, "--library", damageable)
        assert (done.returncode, done.stdout) == (4, "")
        assert "a library for 'darwin'" in done.stderr
