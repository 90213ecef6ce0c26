"""Libraries for every target from one machine, with real compilers and kernels that compile in seconds."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flashdepot.binary.elf import read_shared_library
from flashdepot.binary.objects import defined_names, read_members
from flashdepot.binary.window import open_window
from flashdepot.errors import UsageError
from flashdepot.host.probe import this_platform
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.model.manifest import Manifest
from flashdepot.model.recipe import filled
from flashdepot.toolchain.linked import exported_names, link
from flashdepot.toolchain.targets import TARGETS, cxx_words, parse_target
from flashdepot.toolchain.zig import compiling_version, provide_zig
from support.depots import COMPILED, copy_depot
from support.programs import write_stand_in
from support.tools import Wine, needs, run_program
from support.upstreams import make_toy_upstream

MINGW = "x86_64-w64-mingw32-gcc"
OFFERED = {"run_mha", "fa_candle_last_status", "fa_candle_last_error", "fa_candle_arguments_37"}
PROGRAM = """
#include <stdint.h>
void run_mha(void *, void *, void *, void *, void *, void *, int32_t *, int32_t *, uint32_t, uint32_t, uint32_t, uint32_t,
             uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
             uint32_t, uint32_t, uint32_t, float, uint32_t, uint32_t, uint32_t, uint32_t, int, int, int, int, int, float);
static char m[8192];
int main(int count, char **words) {
  (void)words;
  const uint32_t d = count > 1 ? 512 : 32;
  run_mha(m, m, m, m + 4096, m, 0, 0, 0, d, d, d, d, 0, d, d, d, d, d, d, d, d, 1, 1, 1, d, d, 0.125f, 1, 1, 128, 128, 1, 1,
          0, -1, 0, 0.0f);
  return 0;
}
"""
C_RUNTIME = {
    *("abort", "atexit", "calloc", "fprintf", "free", "getenv", "memcpy", "memset", "strcmp", "vsnprintf"),
    *("__acrt_iob_func", "_tls_index"),
}
KERNEL32 = {"FreeLibrary", "GetModuleHandleA", "GetProcAddress", "LoadLibraryExA"}


def test_a_target_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UsageError, match="there are linux-x86_64, linux-aarch64, windows-x86_64"):
        parse_target("macos-arm64")


def test_each_target_has_a_row_and_is_found_by_its_name() -> None:
    assert [parse_target(str(row)) for row in TARGETS] == list(TARGETS)


@dataclass(frozen=True)
class Shop:
    """A toy tree and a depot, and flashdepot on them."""

    folder: Path

    def run(self, command: str, *options: str) -> Any:
        words = ["--passes", "fwd", "--head-dims", "32", "--arch", "80,90", "--upstream", str(self.folder / "tree")]
        words += ["--depot", str(self.folder / "depot"), "--json", *options]
        return json.loads(run_program([sys.executable, "-m", "flashdepot", command, *words]))


@pytest.fixture(scope="module")
def shop(quick_library: Path, upstream_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("targets")
    make_toy_upstream(folder / "tree", upstream_tree)
    return Shop(folder)


@pytest.fixture(scope="module")
def libraries(shop: Shop, real_depot: Path) -> dict[str, Any]:
    """The answers of one `build` a target, in the order in which they ran."""
    shutil.rmtree(shop.folder / "depot", ignore_errors=True)  # of an attempt that ended in the middle
    copy_depot(real_depot, shop.folder / "depot", COMPILED)
    return {str(row): shop.run("build", "--target", str(row)) for row in TARGETS}


def manifest(answer: Any) -> Manifest:
    return Manifest.from_json(json.loads(Path(answer["manifest"]).read_text()))


@pytest.mark.nvcc
def test_device_code_that_one_target_compiled_serves_the_others(libraries) -> None:
    first, *others = libraries.values()
    assert first["units"]["compiled"] == 2
    assert [other["units"]["compiled"] for other in others] == [0, 0]
    kept = [{n: k for n, k in manifest(a).actions.items() if not n.endswith(t)} for t, a in libraries.items()]
    assert kept[0]
    assert kept[0] == kept[1] == kept[2]


@pytest.mark.nvcc
def test_without_a_target_it_is_that_of_the_machine(shop, libraries) -> None:
    answer = shop.run("build")
    assert answer["status"] == "hit"
    assert answer["recipe_key"] == libraries[str(this_platform())]["recipe_key"]


@pytest.mark.nvcc
def test_wheels_for_several_targets_are_made_in_one_call(shop, libraries, tmp_path) -> None:
    wheels = shop.run("wheel", "--target", ",".join(libraries), "--out", str(tmp_path))
    assert [wheel["recipe_key"] for wheel in wheels] == [answer["recipe_key"] for answer in libraries.values()]
    assert [wheel["tag"] for wheel in wheels] == [
        "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64",
        "py3-none-win_amd64",
    ]
    held = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel["path"]) as archive:
            held.append([name for name in archive.namelist() if name.startswith("flash_attn_2_cuda/lib/")])
    linux, windows = ["flash_attn_2_cuda/lib/libflashattention.so.1"], ["flash_attn_2_cuda/lib/flashattention.dll"]
    assert held == [linux, linux, windows]


@pytest.mark.nvcc
@pytest.mark.parametrize("target", ["linux-x86_64", "linux-aarch64"])
def test_a_library_for_linux_needs_an_old_c_library_and_nothing_of_nvidia(libraries, target) -> None:
    facts = read_shared_library(Path(libraries[target]["path"]) / "lib/shared/libflashattention.so.1")
    assert all(
        name.split(".so")[0] in {"libc", "libdl", "libpthread", "libm"} or "ld-linux" in name for name in facts.needed
    )
    assert facts.libc_floor is not None
    assert facts.libc_floor.numbers <= (2, 17)
    assert str(manifest(libraries[target]).libc_floor) == "2.17"


@pytest.mark.nvcc
def test_a_library_for_windows_has_import_libraries_for_both_linkers(libraries) -> None:
    shared = Path(libraries["windows-x86_64"]["path"]) / "lib/shared"
    assert sorted(path.name for path in shared.iterdir()) == [
        "flashattention.dll",
        "flashattention.lib",
        "libflashattention.dll.a",
    ]


@pytest.mark.nvcc
def test_a_program_with_a_cuda_runtime_of_its_own_links_the_static_library(libraries, tmp_path) -> None:
    library = Path(libraries["linux-x86_64"]["path"])
    source = tmp_path / "main.c"
    source.write_text(
        "#include <flash_attention.h>\n#include <stdlib.h>\nint cudaGetDevice(int *x) { return *x; }\n"
        "int cudaLaunchKernel(void) { return 0; }\nvoid bye(void) {}\n"
        "int main(void) { fa_info info = {sizeof info}; int x = 0; atexit(bye);\n"
        "return cudaGetDevice(&x) + cudaLaunchKernel() + fa_build_info(&info); }\n"
    )
    program = tmp_path / "main"
    command = ["gcc", f"-I{library / 'include'}", str(source), str(library / "lib/static/libflashattention.a")]
    run_program([*command, "-ldl", "-o", str(program)])
    assert subprocess.run([str(program)], check=False).returncode == 0


@pytest.mark.nvcc
def test_a_library_may_be_unloaded_before_the_program_ends(libraries, tmp_path) -> None:
    shared = Path(libraries["linux-x86_64"]["path"]) / "lib/shared/libflashattention.so.1"
    source = tmp_path / "main.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <malloc.h>\n#include <stdio.h>\n"
        "int main(int count, char **words) { int used[3000];\n"
        "for (int i = 0; i < 3000; ++i) { void *l = dlopen(words[1], RTLD_NOW);\n"
        "if (!l) return count; dlclose(l); used[i] = mallinfo().uordblks; }\n"
        'printf("%d %d", used[1000], used[2999]); return 0; }\n'
    )
    program = tmp_path / "main"
    subprocess.run(["gcc", "-w", str(source), "-ldl", "-o", str(program)], check=True)
    third, last = run_program([str(program), str(shared)]).split()  # of glibc's own, some stays the first times
    assert third == last


LOADS_AND_UNLOADS = """
#include <stdio.h>
#include <windows.h>
#define FA_STATIC
#include <flash_attention.h>
typedef fa_status (*Forward)(const fa_fwd_args *);
static DWORD WINAPI fail(void *forward) { return ((Forward)forward)(NULL); }
int main(void) {
  for (int i = 0; i < 100; ++i) {
    HMODULE dll = LoadLibraryA("flashattention.dll");
    if (dll == NULL) return 10;
    Forward forward = (Forward)(void *)GetProcAddress(dll, "fa_fwd");
    fa_status (*contents)(fa_info *) = (fa_status(*)(fa_info *))(void *)GetProcAddress(dll, "fa_build_info");
    const char *(*error)(void) = (const char *(*)(void))(void *)GetProcAddress(dll, "fa_last_error");
    HANDLE other = CreateThread(NULL, 0, fail, (void *)forward, 0, NULL);
    DWORD status = FA_STATUS_OK;
    WaitForSingleObject(other, INFINITE);
    if (!GetExitCodeThread(other, &status) || status != FA_STATUS_INVALID) return 11;
    if (error()[0] != 0) return 12;  /* it was another thread's */
    fa_info info = {sizeof info};
    if (contents(&info) != FA_STATUS_OK || info.families_count != 1) return 13;
    forward(NULL);
    if (i == 99) printf("%s: %s", info.families->name, error());
    FreeLibrary(dll);
    if (GetModuleHandleA("flashattention.dll") != NULL) return 14;
  }
  return 0;
}
"""


@pytest.mark.nvcc
@needs(MINGW, "wine")
def test_a_dll_may_be_loaded_and_unloaded_and_keeps_an_error_for_each_thread(libraries, tmp_path) -> None:
    library = Path(libraries["windows-x86_64"]["path"])
    (tmp_path / "program.c").write_text(LOADS_AND_UNLOADS)
    shutil.copy(library / "lib/shared/flashattention.dll", tmp_path)
    words = [f"-I{library / 'include'}", "program.c", "-o", "program.exe"]
    subprocess.run([MINGW, "-Wall", "-Werror", *words], cwd=tmp_path, check=True)
    ran = Wine("wine", tmp_path / "wine").run("program.exe", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "fa2: args is NULL; pass a fa_fwd_args"), ran.stderr


CALLS_IN_A_NEW_THREAD = """
#include <windows.h>
static DWORD WINAPI call(void *function) { return ((int (*)(int))function)(41); }
int main(void) {
  void *function = (void *)GetProcAddress(LoadLibraryA("flashattention.dll"), "fa_version");
  HANDLE thread = CreateThread(NULL, 4096, call, function, 0, NULL);
  DWORD answer = 0;
  WaitForSingleObject(thread, INFINITE);
  return GetExitCodeThread(thread, &answer) ? (int)answer : 1;
}
"""


@needs(MINGW, "wine")
@pytest.mark.nvcc
def test_a_function_of_the_dll_may_have_a_large_frame(real_depot, tmp_path) -> None:
    """Compilers have what the DLL's start defines called before one, as in FlashAttention-3; registers outlive that."""
    target = parse_target("windows-x86_64")
    zig = provide_zig(this_platform(), real_depot / "toolchains", lambda _name: None, compiling_version())
    names = exported_names((NATIVE / "templates/libflashattention.map").read_text())
    body = "volatile char frame[800000]; for (auto &byte : frame) { byte = n; } return frame[799999] + 1;"
    large = f'extern "C" int fa_version(int n) {{ {body} }}\n'
    others = (f'extern "C" void {name}() {{}}\n' for name in names if name != "fa_version")
    (tmp_path / "abi.cpp").write_text(large + "".join(others))
    words = filled({"zig": str(zig.lib), "zig_program": str(zig.program)}, *cxx_words(target))
    subprocess.run([*words, "-o", "abi.obj", "-x", "c++", "abi.cpp"], cwd=tmp_path, check=True)
    (tmp_path / "linked").mkdir()
    linked = link(target, zig, [tmp_path / "abi.obj"], NATIVE, tmp_path / "linked")
    shutil.copy(linked.files["lib/shared/flashattention.dll"], tmp_path)
    (tmp_path / "program.c").write_text(CALLS_IN_A_NEW_THREAD)
    subprocess.run([MINGW, "-Wall", "-Werror", "program.c", "-o", "program.exe"], cwd=tmp_path, check=True)
    ran = Wine("wine", tmp_path / "wine").run("program.exe", cwd=tmp_path)
    assert ran.returncode == 42, ran.stderr


@pytest.fixture(scope="module")
def candle(libraries: dict[str, Any], shop: Shop) -> dict[str, Path]:
    """The folder with candle's archive for each target that is foreign here."""
    folders, made = {}, shop.folder / "candle"
    crate = write_stand_in(shop.folder / "candle-sources", "0.9.1")
    for name in {str(row) for row in TARGETS} - {str(this_platform())}:
        folders[name] = made / "lib" / name
        words = ["--candle-version", "0.9.1", "--crate", str(crate), "--build-dir", str(made)]
        words += ["--library", libraries[name]["path"]]
        command = [sys.executable, "-m", "flashdepot", "link", "candle", *words, "--depot", str(shop.folder / "depot")]
        run_program(command)
    return folders


@pytest.mark.nvcc
def test_an_archive_for_candle_offers_its_own_function_on_every_target(candle) -> None:
    for folder in candle.values():
        for archive in folder.glob("*flashattention_candle.*"):
            with open_window(archive) as window:
                objects = [(m.name, m.window.take(0, m.window.size, "object")) for m in read_members(window)]
            names = {name for member, data in objects for name in defined_names(data, member)}
            assert {name for name in names if not name.startswith("flashdepot_")} == OFFERED
    assert sorted(path.name for path in candle["windows-x86_64"].iterdir() if path.is_file()) == [
        "flashattention_candle.lib",
        "libflashattention_candle.a",
        "manifest.json",
    ]


@pytest.mark.nvcc
@needs(MINGW, "wine")
def test_a_windows_program_that_calls_candles_function_hears_that_there_is_no_driver(candle, tmp_path) -> None:
    (tmp_path / "program.c").write_text(PROGRAM)
    archive = candle["windows-x86_64"] / "libflashattention_candle.a"
    subprocess.run([MINGW, "program.c", str(archive), "-o", "program.exe"], cwd=tmp_path, check=True)
    for words, said in (([], "CUDA driver version is insufficient"), (["512"], "FA_STATUS_UNSUPPORTED: d is 512")):
        ran = subprocess.run(
            ["wine", "program.exe", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"},
        )
        assert said in ran.stderr


def linked_as_by_microsoft(folder: Path, program: str, archive: Path) -> str:
    """What lld-link puts where, without a C runtime and Windows's libraries: no other name may be missing."""
    (folder / "program.c").write_text(program.replace("int main", "int start"))
    subprocess.run([MINGW, "-O1", "-c", "program.c", "-o", "program.obj"], cwd=folder, check=True)
    (folder / "legacy_stdio_definitions.lib").write_bytes(b"!<arch>\n")
    words = ["/entry:start", "/subsystem:console", "/force:unresolved", "/errorlimit:0", "/map:map", "/out:program.exe"]
    command = ["lld-link", "program.obj", str(archive), *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    missing = set(re.findall(r"undefined symbol: (?:__declspec\(dllimport\) )?(\S+)", done.stderr))
    assert missing, "something must be missing"
    assert missing <= C_RUNTIME | KERNEL32, done.stderr
    assert "error:" not in done.stderr
    return (folder / "map").read_text()


@pytest.mark.nvcc
@needs(MINGW, "lld-link")
def test_microsofts_linker_finds_all_but_windows_itself_and_runs_what_registers_kernels(
    candle, libraries, tmp_path
) -> None:
    of_candle = candle["windows-x86_64"] / "flashattention_candle.lib"
    assert ".CRT$XCU" in linked_as_by_microsoft(tmp_path, PROGRAM, of_candle)
    static = Path(libraries["windows-x86_64"]["path"]) / "lib/static/flashattention.lib"
    forward = "int fa_fwd(void *);\nint main(void) { return fa_fwd(0); }\n"
    assert ".CRT$XCU" in linked_as_by_microsoft(tmp_path, forward, static)
