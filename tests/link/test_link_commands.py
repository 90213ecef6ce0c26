"""`flashdepot link`: what it prints builds a program, in every shell."""

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from flashdepot.link.library import Shell
from flashdepot.model.limits import quoted_for_windows
from support.programs import need_of_library, needed, ours
from support.tools import assert_ends, flashdepot_here, tool

PROGRAM = """
#include <flash_attention.h>
#include <cstdio>
int main() {
  fa_info info = {};
  info.size = sizeof info;
  if (fa_build_info(&info) != FA_STATUS_OK) return 1;
  std::printf("%s\\n", info.families->upstream);
}
"""
SELECTION = ("--profile", "quick", "--arch", "80,90")

pytestmark = pytest.mark.nvcc

Sh = Callable[..., subprocess.CompletedProcess[str]]


link = partial(flashdepot_here, "link")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "program.cc"
    path.write_text(PROGRAM)
    return path


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_the_printed_cmake_lines_build_a_program(moved_library, source, sh, kind) -> None:
    tool("cmake")
    printed = link("cmake", f"--{kind}", "--library", moved_library)
    assert printed.returncode == 0, printed.stderr
    lines = printed.stdout.replace("your_program", "program")
    (source.parent / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(p CXX)\nadd_executable(program program.cc)\n{lines}"
    )
    configure = next(line.partition("Configure with: ")[2] for line in lines.splitlines() if "Configure" in line)
    configured = sh("sh", "-c", configure)
    assert configured.returncode == 0, configured.stdout
    built = sh("cmake", "--build", "build")
    assert built.returncode == 0, built.stdout
    program = source.parent / "build" / "program"
    assert sh(program).stdout == "2.8.3.post2\n"
    assert ours(program) == need_of_library(kind)


LINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "flags": ("g++ -Wall -Werror program.cc {flags} -o program", ("shared", "static")),
    "flags apart": ("g++ {compile} -c program.cc -o program.o && g++ program.o {link} -o program", ("shared",)),
    "pkg-config": ("{line}\n{paste}", ("shared", "static")),
    "pkg-config's private": (
        "{line}\neval g++ -static program.cc $(pkg-config --static --cflags --libs {package}) -o program",
        ("none",),
    ),
}


@pytest.mark.parametrize(("way", "kind"), [(way, kind) for way, (_, kinds) in LINES.items() for kind in kinds])
def test_the_printed_lines_compile_and_link_a_program(moved_library, source, sh, way, kind) -> None:
    if way.startswith("pkg-config"):
        tool("pkg-config")
    of = (*(["--static"] if kind == "static" else []), "--library", moved_library)
    words = {part: link("flags", f"--{part}", *of).stdout.strip() for part in ("compile", "link")}
    words |= {"flags": link("flags", *of).stdout.strip(), "line": link("pkg-config", *of).stdout.strip()}
    words["package"] = json.loads(link("pkg-config", *of, "--json").stdout)["package"]
    words["paste"] = words["line"].splitlines()[2].removeprefix("# ")
    built = sh("sh", "-c", LINES[way][0].format(**words))
    assert built.returncode == 0, built.stdout
    program = source.parent / "program"
    assert sh(program).stdout == "2.8.3.post2\n"
    assert (needed(program) == []) if kind == "none" else (ours(program) == need_of_library(kind))


@pytest.mark.parametrize("odd", [" ", ",", ":", ";", "\\", "'", '"', "(", "$x"])
@pytest.mark.parametrize("way", ["flags", "pkg-config", "cmake"])
def test_a_program_is_linked_from_an_odd_folder_or_it_is_said_that_none_can_be(
    moved_library, source, sh, way, odd
) -> None:
    tool(way if way != "flags" else "g++")
    library = shutil.copytree(moved_library, source.parent / f"a{odd}b", symlinks=True)
    printed = link(way, "--library", library)
    first, second, third = [*(line.removeprefix("# ") for line in printed.stdout.splitlines()), "", ""][:3]
    build = {
        "flags": f"g++ program.cc {first} -o program",
        "pkg-config": f"{second}\n{third}",
        "cmake": f"{second.partition(': ')[2]} && cmake --build build && cp build/program .",
    }[way]
    lines = printed.stdout.replace("your_program", "program")
    (source.parent / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.18)\nproject(p CXX)\nadd_executable(program program.cc)\n{lines}"
    )
    built = sh("sh", "-c", f"{build} && ./program")
    works = built.returncode == 0 and "2.8.3.post2" in built.stdout
    assert works == (" does not find the shared library there" not in printed.stderr), (built.stdout, printed.stderr)
    assert works or str(library) in printed.stderr


def test_scripts_get_one_path_or_one_document(moved_library) -> None:
    of = ("--library", moved_library)
    assert link("cmake", "--prefix", *of).stdout == f"{moved_library}\n"
    assert link("pkg-config", "--dir", *of).stdout == f"{moved_library}/lib/pkgconfig\n"
    documents = [json.loads(link(command, *of, "--json").stdout) for command in ("cmake", "pkg-config", "flags")]
    assert {document["path"] for document in documents} == {str(moved_library)}
    assert documents[0]["target"] == "FlashAttention::shared"
    assert documents[2]["link"][-1] == "-lflashattention"


@pytest.mark.parametrize("get", [[], ["--get"]])
def test_without_a_folder_it_is_the_library_that_get_takes(quick_library, real_depot, get) -> None:
    found = link("cmake", "--prefix", *get, *SELECTION, "--depot", real_depot)
    assert found.stdout == f"{quick_library}\n"


def test_who_names_no_selection_links_what_is_there_and_sees_what_it_has(quick_library, real_depot) -> None:
    found = link("cmake", "--prefix", "--arch", "80", "--depot", real_depot)
    assert found.stdout == f"{quick_library}\n"
    assert "has only fwd; head dims 64; bf16" in found.stderr
    assert "flashdepot get" in found.stderr
    refused = link("cmake", "--prefix", "--profile", "full", "--arch", "80", "--depot", real_depot)
    assert refused.returncode == 4, "all kernels were asked for by name"
    assert link("cmake", "--prefix", "--arch", "100", "--depot", real_depot).returncode == 4, "it runs on no such GPU"


def test_an_empty_depot_is_answered_with_the_command_that_fills_it(tmp_path) -> None:
    depot = tmp_path / "depot"
    done = link("cmake", *SELECTION, "--depot", depot, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"flashdepot get --profile quick --arch 80,90 --depot {depot}" in done.stderr
    assert not depot.exists(), "nothing was built"


def test_a_library_that_does_not_serve_is_said_to_lack_what_it_lacks(quick_library, real_depot) -> None:
    done = link("flags", "--profile", "quick", "--dtypes", "fp16", "--arch", "80", "--depot", real_depot)
    assert_ends(done, 4, "lacks fwd_hdim64_fp16")


@pytest.mark.parametrize(
    ("damage", "code", "said"),
    [
        (shutil.rmtree, 2, "is not a library that flashdepot wrote"),
        (lambda library: (library / "manifest.json").write_text("{"), 6, "is damaged: it is not JSON"),
        (
            lambda library: (library / "manifest.json").write_text('{"kind": "wheel"}'),
            2,
            "not the manifest of a library",
        ),
        (lambda library: (library / "manifest.json").write_text('{"kind": "library"}'), 6, "cannot be used"),
    ],
    ids=["missing", "cut off", "another kind", "empty"],
)
def test_a_folder_that_is_not_a_library_is_refused(damageable_library, damage, code, said) -> None:
    damage(damageable_library)
    done = link("flags", "--library", damageable_library)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "is a Git LFS pointer"),
        ("", "is empty"),
        (None, "cannot be read"),
    ],
)
def test_what_no_linker_can_use_is_named_before_the_linker_sees_it(damageable_library, text, said) -> None:
    archive = damageable_library / "lib/static/libflashattention.a"
    archive.unlink()
    if text is not None:
        archive.write_text(text)
    for command in ("cmake", "pkg-config", "flags"):
        done = link(command, "--static", "--library", damageable_library)
        assert (done.returncode, done.stdout) == (6, "")
        assert said in done.stderr
    assert link("flags", "--shared", "--library", damageable_library).returncode == 0


@pytest.mark.parametrize(
    ("word", "cmd"),
    [
        ("a.lib", "a.lib"),
        ("-DX=C:/my libs/fa", '"-DX=C:/my libs/fa"'),
        ("/LIBPATH:C:\\R&D\\lib", '"/LIBPATH:C:\\R&D\\lib"'),
        ("/IC:\\a (b) & c\\include", '"/IC:\\a (b) & c\\include"'),
    ],
)
def test_arguments_are_quoted_where_the_shell_of_windows_would_act_on_them(word, cmd) -> None:
    assert quoted_for_windows(word) == cmd


def test_each_shell_has_its_own_way_to_set_a_variable_and_to_say_nothing() -> None:
    assert (Shell.of("linux"), Shell.of("windows")) == (Shell.POSIX, Shell.CMD)
    assert Shell.POSIX.assignment("A", "b c") == "export A='b c'"
    assert Shell.CMD.assignment("A", "b c") == 'set "A=b c"'
    assert Shell.POSIX.prepending("P", "/a b") == "export P='/a b'${P:+:$P}"
    assert Shell.CMD.prepending("P", "C:\\a b") == 'set "P=C:\\a b;%P%"'
    assert (Shell.POSIX.remark("x"), Shell.CMD.remark("x")) == ("# x", "rem x")
