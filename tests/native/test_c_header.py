"""flash_attention.h: it compiles wherever C or C++ does, and its layout is the one promised."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.fa_abi import ABI, STRUCTS
from support.stub_library import NATIVE
from support.tools import needs, run_program

HEADER = NATIVE / "include" / "flash_attention.h"


USE = """
#include <flash_attention.h>
#ifdef __cplusplus
#include <cstddef>
extern "C" {
#endif
int use(float *data);
int use(float *data) {
  fa_fwd_args fwd = FA_FWD_ARGS_INIT;
  fa_bwd_args bwd = FA_BWD_ARGS_INIT;
  fa_combine_args combine = FA_COMBINE_ARGS_INIT;
  fa_info info = FA_INFO_INIT;
  fa_choice choice = FA_CHOICE_INIT;
  const fa_tensor tensor = fa_make_tensor(data, 0, 0, 0);
  fwd.q = fa_as_const(tensor);
  fwd.o = tensor;
  bwd.d_o = fa_make_const_tensor(data, 0, 0, 0);
  fwd.flags |= FA_FLAG_CAUSAL | FA_FLAG_WINDOW_LEFT;
  return fa_fwd(&fwd) == FA_STATUS_OK && fa_bwd(&bwd) == FA_STATUS_OK && fa_combine(&combine) == FA_STATUS_OK &&
         fa_build_info(&info) == FA_STATUS_OK && fa_supports(-1, &fwd, &choice) == FA_STATUS_OK &&
         fa_bwd_supports(-1, &bwd, &choice) == FA_STATUS_OK && fa_preload(&fwd, &bwd) == FA_STATUS_OK &&
         fa_version() >= FA_VERSION;
}
#ifdef __cplusplus
}
#endif
"""
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wundef", "-Wshadow", "-Werror")
EVERYTHING = ("-Weverything", "-Werror", "-Wno-padded", "-Wno-declaration-after-statement")
OLD_CXX = tuple(f"-Wno-{name}" for name in ("c++98-compat", "c++98-compat-pedantic", "c++98-c++11-compat"))
MSVC = ("--target=x86_64-pc-windows-msvc", "-fms-extensions", "-fms-compatibility-version=19.40", "-ffreestanding")


@pytest.mark.parametrize(
    ("compiler", "standard", "options"),
    [
        *(("gcc", standard, STRICT) for standard in ("c99", "c11", "c17")),
        *(
            ("g++", standard, (*STRICT, "-Wold-style-cast", "-Wuseless-cast"))
            for standard in ("c++98", "c++11", "c++20")
        ),
        *(("clang", standard, EVERYTHING) for standard in ("c99", "c17")),
        *(("clang++", standard, (*EVERYTHING, *OLD_CXX)) for standard in ("c++98", "c++11", "c++20")),
        ("clang", "c99", (*EVERYTHING, *MSVC)),
        ("clang++", "c++14", (*EVERYTHING, *OLD_CXX, *MSVC)),
    ],
    ids=lambda value: value if isinstance(value, str) else "windows" if MSVC[0] in value else "",
)
def test_header_compiles_without_a_warning(compiler, standard, options, tmp_path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = tmp_path / ("user.cpp" if compiler.endswith("++") else "user.c")
    text = USE
    if MSVC[0] in options:  # without a Windows kit there is no cstddef
        text = USE.replace("#include <cstddef>\n", "")
    source.write_text(text)
    run_program([compiler, f"-std={standard}", *options, f"-I{HEADER.parent}", "-fsyntax-only", str(source)])


@needs("g++")
def test_the_classes_say_which_c_plus_plus_they_need(tmp_path) -> None:
    (tmp_path / "user.cpp").write_text("#include <flash_attention.hpp>\n")
    command = ["g++", f"-I{HEADER.parent}", "-fsyntax-only", str(tmp_path / "user.cpp")]
    run_program([*command, "-std=c++17"])
    done = subprocess.run([*command, "-std=c++14"], capture_output=True, text=True, check=False)
    assert "flash_attention.hpp needs C++17" in next(line for line in done.stderr.splitlines() if "error" in line)


PROGRAM = """
#include <flash_attention.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **words) {
  fa_fwd_args args = FA_FWD_ARGS_INIT;
  (void)words;
  args.dtype = FA_DTYPE_BF16;
  args.batch = args.heads_q = args.heads_k = 1;
  args.head_dim = 64;
#ifdef NEWER
  args.newer = count > 1;
#else
  (void)count;
#endif
  printf("%s; %s\\n", fa_status_string(fa_fwd(&args)), fa_last_error());
  return 0;
}
"""


def headers(tmp_path: Path) -> dict[str, Path]:
    """The header of today, one before a field was appended, and one after another was."""
    today = HEADER.read_text()
    last = "  int64_t descale_head_stride;\n"
    assert today.count(last) == 1
    texts = {
        "today": today,
        "older": re.sub(r"  int32_t head_dim_v; .*?\} fa_fwd_args;", "} fa_fwd_args;", today, count=1, flags=re.DOTALL),
        "newer": "#define NEWER\n" + today.replace(last, last + "  int64_t newer;\n"),
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "flash_attention.h").write_text(text)
    return {name: tmp_path / name for name in texts}


def test_old_programs_run_with_a_new_library_and_new_programs_with_an_old_one(full, tmp_path) -> None:
    (tmp_path / "program.c").write_text(PROGRAM)
    said = {}
    for name, include in headers(tmp_path).items():
        program = tmp_path / name / "program"
        run_program(
            ["gcc", "-std=c99", f"-I{include}", str(tmp_path / "program.c"), str(full.path), "-o", str(program)]
        )
        said[name] = run_program([str(program)])
        said[f"{name}, set"] = run_program([str(program), "set"])
    assert said["today"] == said["older"] == said["newer"] == "FA_STATUS_OK; \n"
    assert said["newer, set"].startswith(
        "FA_STATUS_INVALID; size is 696 and a field beyond the 688 bytes of fa_fwd_args"
    )


def test_header_includes_nothing_but_stdint() -> None:
    includes = [line for line in HEADER.read_text().splitlines() if line.startswith("#include")]
    assert includes == ["#include <stdint.h>"]


def test_layout_in_c_is_the_one_of_the_ctypes_binding(tmp_path) -> None:
    lines = []
    expected = []
    for name, struct in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        for field, *_ in struct._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
            expected.append(f"{name}.{field} {getattr(struct, field).offset}")
    body = "\n".join(lines)
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <flash_attention.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        f"int main(void) {{\n{body}\nreturn 0;\n}}\n"
    )
    program = tmp_path / "layout"
    run_program(["gcc", "-std=c99", f"-I{HEADER.parent}", str(source), "-o", str(program)])
    assert run_program([str(program)]).split("\n")[:-1] == expected


@pytest.mark.parametrize("name", STRUCTS)
def test_structs_have_no_padding(name) -> None:
    struct = STRUCTS[name]
    assert sum(getattr(struct, field).size for field, *_ in struct._fields_) == ctypes.sizeof(struct)


def test_a_struct_that_moved_a_field_does_not_compile(tmp_path) -> None:
    header = HEADER.read_text()
    moved = header.replace("  float scale; ", "  float inserted, scale; ")
    assert moved != header
    (tmp_path / "flash_attention.h").write_text(moved)
    command = ["g++", "-std=c++17", f"-I{tmp_path}", "-fsyntax-only", str(NATIVE / "src" / "abi.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "fa_fwd_args.scale moved" in done.stderr


FROZEN = Path(__file__).with_name("abi-1.0.xml")
BROKEN = re.compile(
    r"\d+ data member (?:changes?|deletions?)\b|[1-9]\d* Removed|parameter \d+ of type .* changed|return type changed"
)


def probe(header: str, folder: Path) -> Path:
    """A library with the header's functions, and a variable for each number that a name of it stands for."""
    (folder / "flash_attention.h").write_text(header)
    declared = re.findall(r"FA_API ([^;]+?) FA_NOEXCEPT;", re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL))
    numbers = {name: value for name, (value, _) in ABI["read_constants"](header).items() if "VERSION" not in name}
    lines = ["#include <flash_attention.h>", *(f"{function} {{ return 0; }}" for function in declared)]
    lines += [f"char {name}_is_{value};" for name, value in numbers.items()]
    (folder / "probe.c").write_text("\n".join(lines) + "\n")
    made = folder / "probe.so"
    run_program(["gcc", "-g", "-shared", "-fPIC", f"-I{folder}", str(folder / "probe.c"), "-o", str(made)])
    return made


def what_broke(header: str, folder: Path) -> list[str]:
    """What a program of 1.0 would stumble over. A field at the end of a struct, or a function more, is not."""
    words = ["abidiff", str(FROZEN), str(probe(header, folder))]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.returncode & 3 == 0, said.stderr  # 1 and 2: abidiff itself failed
    return BROKEN.findall(said.stdout)


@needs("abidiff", "gcc")
def test_nothing_of_1_0_has_changed(tmp_path) -> None:
    assert what_broke(HEADER.read_text(), tmp_path) == []


@needs("abidiff", "gcc")
@pytest.mark.parametrize(
    ("before", "after", "breaks"),
    [
        ("} fa_fwd_args;", "  int64_t newer;\n} fa_fwd_args;", False),
        (
            "FA_API int32_t fa_version(void)",
            "FA_API int32_t fa_newer(void) FA_NOEXCEPT;\nFA_API int32_t fa_version(void)",
            False,
        ),
        ("  float scale; ", "  float inserted;\n  float scale; ", True),
        ("  float softcap; ", "  ", True),
        ("  int32_t num_splits;", "  float num_splits;", True),
        ("FA_FAMILY_FA4 = 4", "FA_FAMILY_FA4 = 5", True),
        ("FA_API int32_t fa_version(void) FA_NOEXCEPT;", "", True),
    ],
    ids=[
        "field-appended",
        "function-added",
        "field-inserted",
        "field-removed",
        "type-changed",
        "number-changed",
        "function-removed",
    ],
)
def test_what_breaks_programs_is_not_taken_for_growth(before, after, breaks, tmp_path) -> None:
    assert before in HEADER.read_text()
    assert bool(what_broke(HEADER.read_text().replace(before, after, 1), tmp_path)) is breaks
