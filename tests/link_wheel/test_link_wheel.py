"""`link wheel`: a program calls the functions of a published extension, here of a small torch."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from support import forge
from support.tools import assert_ends, flashdepot_here, tool

HERE = Path(__file__).parent
MODULE = f"flash_attn_2_cuda.cpython-3{sys.version_info[1]}-x86_64-linux-gnu.so"
TAG = f"cp3{sys.version_info[1]}-cp3{sys.version_info[1]}-linux_x86_64"
RETURNS = "list[torch.Tensor]"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def compiled(*command: str | Path) -> None:
    done = run("g++", "-std=c++17", *command)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class TorchEnvironment:
    """A program that runs Python with a torch."""

    python: Path
    torch: Path


def make_environment(folder: Path, version: str = "2.4.0", *flags: str) -> TorchEnvironment:
    """A torch of a version, in a folder that its Python imports from."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.rglob("site-packages")
    torch = site / "torch"
    (torch / "lib").mkdir(parents=True)
    (torch / "include").symlink_to(HERE / "stub_torch")
    (torch / "version.py").write_text(f"__version__ = '{version}'\ncuda = '12.1'\n")
    options = ["-shared", "-fPIC", f"-I{HERE / 'stub_torch'}", "-D_GLIBCXX_USE_CXX11_ABI=1", *flags]
    compiled(*options, "-Wl,-soname,libc10.so", HERE / "torch_side.cc", "-o", torch / "lib" / "libc10.so")
    return TorchEnvironment(venv / "bin" / "python", torch)


def make_wheel(
    folder: Path, environment: TorchEnvironment, *flags: str, returns: str = RETURNS, requires: tuple[str, ...] = ()
) -> Path:
    """A wheel built with the torch of an environment."""
    module = folder / MODULE
    options = ["-shared", "-fPIC", f"-I{HERE / 'stub_torch'}", f'-DRETURNS="{returns}"', *flags]
    compiled(*options, HERE / "extension.cc", environment.torch / "lib" / "libc10.so", "-o", module)
    files = {MODULE: module.read_bytes(), "flash_attn/__init__.py": b"", "flash_attn-2.6.3.dist-info/LICENSE": b"BSD"}
    return forge.wheel(folder, files, version="2.6.3", tag=TAG, requires=requires)


link_wheel = partial(flashdepot_here, "link", "wheel")


def build_program(package: Path, folder: Path, *definitions: str) -> subprocess.CompletedProcess[str]:
    """Build program.cc with CMake against a package and, when it links, run it with every symbol bound at once."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(p CXX)\nfind_package(FlashAttentionWheel REQUIRED)\n"
        f"add_executable(program {HERE / 'program.cc'})\n"
        f"target_compile_definitions(program PRIVATE {' '.join(definitions)})\n"
        "target_link_libraries(program PRIVATE FlashAttentionWheel::extension)\n"
    )
    configured = run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={package}")
    assert configured.returncode == 0, configured.stderr
    built = run("cmake", "--build", folder / "build")
    if built.returncode != 0:
        return built
    env = {**os.environ, "LD_BIND_NOW": "1"}
    program = str(folder / "build" / "program")
    return subprocess.run([program], capture_output=True, text=True, check=False, env=env)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> TorchEnvironment:
    return make_environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="session")
def wheel(environment: TorchEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("wheel"), environment, requires=("torch>=2.4,<2.5", "einops"))


@pytest.fixture
def cmake() -> None:
    tool("cmake")


CHECK_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


def test_a_program_compiles_links_loads_and_calls_the_extension(wheel, environment, tmp_path, cmake) -> None:
    done = link_wheel(wheel, "--python", environment.python, "--out", tmp_path / "package", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document["entry_points"]) == ["mha_fwd"]
    assert document["left_out"] == ["mha_bwd: nothing in the file says what it returns"]
    assert (tmp_path / "package" / "lib" / MODULE).is_file()
    assert (tmp_path / "package" / "licenses" / "LICENSE").read_text() == "BSD"
    moved = (tmp_path / "package").rename(tmp_path / "moved")
    ran = build_program(moved, tmp_path / "program")
    assert ran.stdout == "2: 42 7\n", ran.stdout + ran.stderr


def test_functions_in_upstreams_namespace_are_declared_there(environment, tmp_path, cmake) -> None:
    namespaced = make_wheel(tmp_path, environment, "-DIN_NAMESPACE")
    done = link_wheel(namespaced, "--python", environment.python, "--out", tmp_path / "package")
    assert done.returncode == 0, done.stderr
    ran = build_program(tmp_path / "package", tmp_path / "program", "IN_NAMESPACE")
    assert ran.stdout == "2: 42 7\n", ran.stdout + ran.stderr


def test_a_torch_of_pybind11_3_spells_types_in_two_ways(environment, tmp_path) -> None:
    newest = make_wheel(
        tmp_path,
        environment,
        '-DFLOAT="@typing.SupportsFloat | typing.SupportsIndex@float@"',
        returns="@collections.abc.Sequence@list@[torch.Tensor]",
    )
    done = link_wheel(newest, "--python", environment.python, "--out", tmp_path / "package", "--json")
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["entry_points"]) == ["mha_fwd"]


def test_another_torch_is_refused_by_the_symbol_that_it_lacks_and_when_forced_fails_by_that_symbol(
    wheel, tmp_path, cmake
) -> None:
    other = make_environment(tmp_path / "other", "2.4.1", "-DWITHOUT_CHECK")
    refused = link_wheel(wheel, "--python", other.python, "--out", tmp_path / "package")
    assert_ends(refused, 4, f"torch 2.4.1 lacks 1: {CHECK_FAIL}")
    assert not (tmp_path / "package").exists()

    forced = link_wheel(wheel, "--python", other.python, "--out", tmp_path / "package", "--force")
    assert_ends(forced, 0, CHECK_FAIL)
    built = build_program(tmp_path / "package", tmp_path / "program")
    assert built.returncode != 0
    assert "undefined reference to `c10::detail::torchCheckFail(" in built.stdout + built.stderr


def test_a_torch_with_every_symbol_is_refused_when_the_wheel_requires_another(wheel, tmp_path) -> None:
    newer = make_environment(tmp_path / "newer", "2.5.1+cu124")
    done = link_wheel(wheel, "--python", newer.python, "--out", tmp_path / "package")
    assert_ends(done, 4, "it requires torch<2.5,>=2.4 | torch 2.5.1+cu124")


def test_an_environment_without_torch_is_asked_for_one(wheel, environment, tmp_path) -> None:
    without = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(without)], check=True)
    done = link_wheel(wheel, "--python", without, "--out", tmp_path / "package")
    assert_ends(done, 3, "no torch is known here")
    forced = link_wheel(wheel, "--python", without, "--out", tmp_path / "package", "--force")
    assert_ends(forced, 3, "No torch was found to build with")


@pytest.mark.parametrize("returns", ["torch.Tensor", "None"])
def test_a_return_type_that_is_not_known_is_not_guessed(environment, tmp_path, returns) -> None:
    unclear = make_wheel(tmp_path, environment, returns=returns)
    done = link_wheel(unclear, "--python", environment.python, "--out", tmp_path / "package")
    assert_ends(done, 4, "mha_fwd: nothing in the file says what it returns")
    assert not (tmp_path / "package").exists()


def test_a_damaged_wheel_is_refused_even_when_forced(wheel, environment, tmp_path) -> None:
    damaged = tmp_path / wheel.name
    damaged.write_bytes(wheel.read_bytes()[:-200])
    done = link_wheel(damaged, "--python", environment.python, "--out", tmp_path / "package", "--force")
    assert done.returncode == 6
    assert not (tmp_path / "package").exists()


def test_what_is_not_a_wheel_is_refused(environment, tmp_path) -> None:
    library = environment.torch / "lib" / "libc10.so"
    done = link_wheel(library, "--python", environment.python, "--out", tmp_path / "package")
    assert_ends(done, 2, "is not a wheel")


def test_a_folder_of_somebody_elses_is_left_untouched_and_an_own_one_is_written_again(
    wheel, environment, tmp_path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    done = link_wheel(wheel, "--python", environment.python, "--out", other)
    assert done.returncode == 2
    assert [path.name for path in other.iterdir()] == ["notes.txt"]
    for _ in range(2):
        assert link_wheel(wheel, "--python", environment.python, "--out", tmp_path / "own").returncode == 0
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == [
        ".flashdepot-wheel.json",
        "include",
        "lib",
        "licenses",
    ]
