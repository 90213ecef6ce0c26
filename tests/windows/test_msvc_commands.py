from __future__ import annotations

import ntpath
import re
import subprocess
from pathlib import Path, PureWindowsPath

import pytest
from msgspec.structs import replace

from build.recipes import KIT, OPTIONS, TOOLS, fa2_actions, make_flags, make_recipe
from flashdepot.build.diagnosis import killed_for_memory
from flashdepot.build.linking import MSVC_LINKING, cross_linking
from flashdepot.build.names import PlaceNames
from flashdepot.build.windows_paths import BELOW, path_problems, require_usable_paths
from flashdepot.errors import MissingToolError
from flashdepot.families.family import Kit
from flashdepot.host.toolkits import find_toolkits
from flashdepot.model.action import Action
from flashdepot.model.recipe import Tool, ToolchainId
from flashdepot.model.target import Version
from flashdepot.targets import TARGETS
from flashdepot.targets.dialect import MSVC
from flashdepot.toolchain.long_commands import WINDOWS_LIMIT, options_text, startable
from flashdepot.toolchain.zig import Zig

CL = Tool("cl", "19.44.35211", "c" * 64)
WINDOWS_OPTIONS = OPTIONS | {"--use-local-env"}


def planned(cuda: str = "13.0.88", *, windows: bool = True) -> dict[str, Action]:
    if not windows:
        return {action.name: action for action in fa2_actions(make_recipe(), replace(KIT, source_name=False))}
    kit = Kit(Version(cuda), WINDOWS_OPTIONS, MSVC, source_name=False)
    recipe = make_recipe(toolchain=ToolchainId(Version(cuda), (*TOOLS[:2], CL)))
    return {action.name: action for action in fa2_actions(replace(recipe, flags=make_flags(kit)), kit)}


def msvc_words(cuda: str) -> tuple[str, ...]:
    return MSVC.host_flags(Version(cuda), frozenset(WINDOWS_OPTIONS))


@pytest.mark.parametrize(
    ("cuda", "conforming"), [("12.4", False), ("13.0.88", False), ("13.1", True), ("13.2", True), ("13.5.37", True)]
)
def test_cl_is_told_what_the_headers_of_each_cuda_want(cuda: str, conforming: bool) -> None:
    (host, *others) = msvc_words(cuda)
    words = host.removeprefix("-Xcompiler=").split(",")
    assert words[:5] == ["/MD", "/EHsc", "/bigobj", "/utf-8", "/Zc:__cplusplus"]
    assert ("/Zc:preprocessor" in words) is conforming
    assert others == ["-D_USE_MATH_DEFINES", "--use-local-env"]


def test_an_nvcc_without_the_option_loads_the_environment_as_it_likes() -> None:
    assert "--use-local-env" not in MSVC.host_flags(Version("12.0"), frozenset())


def test_nothing_of_gcc_reaches_cl() -> None:
    for action in planned().values():
        words = ",".join(action.arguments)
        assert action.arguments[:3] == ("{cuda}/bin/nvcc.exe", "-ccbin", "{cxx}")
        assert action.suffix == ".obj"
        assert not any(word in words for word in ("-fPIC", "-fvisibility", "-Wall", "-fno-gnu-unique")), action


def test_the_c_layer_goes_through_nvcc_and_exports_nothing_by_itself() -> None:
    action = planned()["native-abi"]
    assert "-DFA_STATIC" in action.arguments
    assert any("/MD" in word for word in action.arguments)
    assert action.tools[0].name == "nvcc"


@pytest.mark.parametrize(
    ("windows", "changing", "idle"),
    [(True, "INCLUDE", "CPATH"), (True, "CL", "TEMP"), (False, "NVCC_APPEND_FLAGS", "INCLUDE")],
)
def test_a_key_covers_the_variables_that_its_compilers_read(windows: bool, changing: str, idle: str) -> None:
    action = planned(windows=windows)["native-zeros"]
    plain = action.intent_key({})
    assert action.intent_key({changing: "x"}) != plain
    assert action.intent_key({idle: "x"}) == plain


def test_the_two_ways_to_link_have_keys_of_their_own() -> None:
    assert len({MSVC_LINKING.digest, *(cross_linking(row, Zig(Path("zig"), "0.14.1")).digest for row in TARGETS)}) == 4


def test_paths_are_named_however_a_compiler_writes_their_letters() -> None:
    places = PlaceNames(
        (("upstream", PureWindowsPath(r"C:\fd\upstreams\2.8.3")), ("cuda", PureWindowsPath(r"D:\CUDA\v13.0"))),  # type: ignore[arg-type]
        ntpath,
    )
    assert places.name(r"c:\FD\upstreams\2.8.3\csrc/flash_attn\src\..\flash.h") == "{upstream}/csrc/flash_attn/flash.h"
    assert places.name(r"d:/cuda/V13.0/include/cuda.h") == "{cuda}/include/cuda.h"
    assert places.name(r"C:\Program Files\Windows Kits\x.h") == "C:/Program Files/Windows Kits/x.h"


@pytest.mark.parametrize(
    ("log", "memory"),
    [
        (
            "flash_bwd.cu\nk.cudafe1.cpp(9): fatal error C1060: Für den Compiler steht nicht genug Heap zur Verfügung",
            True,
        ),
        ("fatal error C1002: 在第 2 遍中编译器的堆空间不足", True),
        ("layout_composed.hpp(478): catastrophic error : out of memory", True),
        ("k.cu(3): error C2065: undeclared identifier", False),
    ],
)
def test_a_compiler_that_ran_out_of_memory_is_known_in_every_language(log: str, memory: bool) -> None:
    assert killed_for_memory(2, log) is memory


LONG = ["C:/cuda/bin/nvcc.exe", *(f"-DNAME_{i}={'x' * 100}" for i in range(400)), "-Ia b/include", "-c", "src\\k.cu"]


def test_a_command_that_windows_cannot_start_goes_through_a_file(tmp_path: Path) -> None:
    assert len(subprocess.list2cmdline(LONG)) > WINDOWS_LIMIT
    short = startable(LONG, tmp_path, system="win32")
    assert short == ["C:/cuda/bin/nvcc.exe", "--options-file", str(tmp_path / "options.txt")]
    lines = (tmp_path / "options.txt").read_text().splitlines()
    assert lines[-3:] == ['"-Ia b/include"', "-c", "src/k.cu"]
    assert len(lines) == len(LONG) - 1


def test_a_command_that_can_be_started_is_left_alone(tmp_path: Path) -> None:
    assert startable(LONG[:50], tmp_path, system="win32") == LONG[:50]
    assert startable(LONG, tmp_path, system="linux") == LONG
    assert not list(tmp_path.iterdir())


@pytest.mark.nvcc
def test_nvcc_reads_from_the_file_what_it_reads_from_the_command(tmp_path: Path) -> None:
    toolkit = next(iter(find_toolkits()), None)
    if toolkit is None:
        pytest.skip("needs an nvcc of this machine")
    nvcc = str(Path(toolkit.root) / "bin" / "nvcc")
    arguments = ["-std=c++17", "-Xcompiler=-O1,-g", "-DTEXT=a", "-I/a b/include", "--dryrun", "-c", "k.cu", "-o", "k.o"]
    (tmp_path / "k.cu").touch()
    (tmp_path / "options.txt").write_text(options_text(arguments))

    def phases(*words: str) -> str:
        done = subprocess.run([nvcc, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return re.sub(r"tmpxft_\w+", "temporary", done.stderr)

    assert "/a b/include" in phases(*arguments)
    assert phases("--options-file", "options.txt") == phases(*arguments)


@pytest.mark.parametrize(
    ("use", "path", "class_id", "mend"),
    [
        ("depot", r"C:\Users\Jane Doe\AppData\Local\flashdepot\Cache", "nvcc-path-spaces", r"--depot C:\fd"),
        ("depot", r"C:\Users\Jürgen\AppData\Local\flashdepot\Cache", "nvcc-path-spaces", r"--depot C:\fd"),
        ("depot", "C:\\" + "d" * 50, "win-long-path", r"--depot C:\fd"),
        ("temp", r"C:\Users\Jane Doe\AppData\Local\Temp", "nvcc-path-spaces", r"set TEMP=C:\t"),
        ("package", r"C:\my projects\.venv\Lib\site-packages\flashdepot", "nvcc-path-spaces", "py -m venv"),
    ],
)
def test_a_folder_that_the_compilers_cannot_use_is_refused(use: str, path: str, class_id: str, mend: str) -> None:
    (problem,) = path_problems({use: path})
    assert problem.class_id == class_id
    assert path in problem.seen
    with pytest.raises(MissingToolError) as caught:
        require_usable_paths({use: path})
    assert mend in caught.value.hint


def test_the_folders_that_the_mends_name_are_usable() -> None:
    assert (
        path_problems({"depot": r"C:\fd", "temp": r"C:\t", "package": r"C:\fd-env\Lib\site-packages\flashdepot"}) == []
    )


@pytest.mark.network
def test_what_a_build_adds_to_the_depots_path_is_known(upstream_tree: Path, real_depot: Path) -> None:
    unpacked = real_depot / "upstreams"
    longest = max(len(str(path.relative_to(unpacked))) for path in upstream_tree.rglob("*"))
    temporary_name = len(".") + len(".123456.01234567.tmp")
    assert len("/upstreams/") + longest + temporary_name <= BELOW["depot"]
