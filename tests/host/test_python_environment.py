import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from flashdepot.diagnose.python_checks import command_for_torch
from flashdepot.errors import UsageError
from flashdepot.host.probe import this_platform
from flashdepot.host.python_environment import choose_python, chosen_environment, get_installer, look_for_python
from flashdepot.model.codec import plain, read
from flashdepot.model.environment import Accelerator, PythonEnvironment, Torch
from flashdepot.model.target import Architecture, Version
from support.tools import posix
from support.venvs import make_environment

OLD_ABI = b"\x7fELF..._ZNSt7__cxx1112basic_stringIcE\0_ZN3c105ErrorC2ENS_14SourceLocationESs\0"
NEW_ABI = b"\x7fELF..._ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcE\0"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without pip."""
    folder = tmp_path_factory.mktemp("environments") / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


@pytest.fixture
def site(bare: Path) -> Path:
    """Its package folder, emptied before each test."""
    folder = next(bare.rglob("site-packages"))
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    return folder


def put(path: Path, data: bytes = b"raise SystemExit('this module was imported')\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def put_torch(site: Path, version: str, cuda: str, library: bytes = NEW_ABI) -> None:
    text = f"from typing import Optional\n__version__ = '{version}'\ndebug = False\ncuda: Optional[str] = {cuda}\n"
    put(site / "torch/version.py", (text + "git_version = 'abc'\nhip: Optional[str] = None\n").encode())
    put(site / "torch/__init__.py")
    put(site / "torch/lib/libc10.so", library)


def look(folder: Path) -> PythonEnvironment:
    found, _ = look_for_python(str(folder))
    assert found is not None
    return found


def test_an_environment_is_known_by_its_folder(bare, site) -> None:
    found = look(bare)
    assert (found.prefix, found.purelib, found.virtual, found.managed) == (bare, site, True, False)
    assert found.version == Version(".".join(map(str, sys.version_info[:3])))
    assert found.tag.startswith(f"cp{sys.version_info[0]}{sys.version_info[1]}")
    assert found.platform == sysconfig.get_platform()
    assert (found.torch, found.extensions, found.writable) == (None, (), True)
    assert (found.scripts, found.data, found.found_by) == (bare / Path(INSIDE).parent, bare, f"--python {bare}")
    assert site in found.search
    assert read(plain(found), PythonEnvironment) == found


@pytest.mark.parametrize(
    ("version", "cuda", "library", "abi"),
    [
        ("2.8.0+cu128", "'12.8'", NEW_ABI, True),
        ("2.4.1+cu121", "'12.1'", OLD_ABI, False),
        ("2.13.0+cpu", "None", NEW_ABI, True),
        ("2.9.0a0+git1234", "'13.0'", b"", None),
    ],
)
def test_torch_is_read_from_its_files_and_not_imported(bare, site, version, cuda, library, abi) -> None:
    put_torch(site, version, cuda, library)
    expected = Version(cuda.strip("'")) if cuda != "None" else None
    on = Accelerator.CUDA if expected else Accelerator.CPU
    folder = str(site / "torch")
    assert look(bare).torch == Torch(version, on, expected, None, abi, folder, libraries=("libc10.so",))


@pytest.mark.parametrize(
    ("text", "architectures"),
    [
        (b"std::string ipc_hsm_70 sm_90a compute_90\0/pytorch", (Architecture(7, 0), Architecture(9, 0, "a"))),
        (b"\0sm_120\0", (Architecture(12, 0),)),
        (b"sm_ sm_90 and more\0", ()),
    ],
)
def test_the_architectures_of_torch_are_those_of_its_own_list(bare, site, text, architectures) -> None:
    put_torch(site, "2.8.0+cu128", "'12.8'")
    put(site / "torch/lib/libtorch_python.so", b"\x7fELF..." + text)
    torch = look(bare).torch
    assert torch is not None
    assert torch.architectures == architectures


def test_the_cmake_package_tells_the_abi_where_the_library_does_not(bare, site) -> None:
    put_torch(site, "2.5.1", "'12.4'", b"")
    put(site / "torch/share/cmake/Torch/TorchConfig.cmake", b'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")\n')
    assert look(bare).torch.cxx11_abi is False


def test_builds_of_flash_attention_and_packages_are_found(bare, site) -> None:
    put(site / "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so")
    put(site / "flash_attn_3/_C.abi3.so")
    (site / "flash_attn-2.8.3.dist-info").mkdir()
    (site / "Flash_Attn_3-3.0.0b1.dist-info").mkdir()
    found = look(bare)
    assert sorted((e.module, Path(e.path).name) for e in found.extensions) == [
        ("flash_attn_2_cuda", "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"),
        ("flash_attn_3._C", "_C.abi3.so"),
    ]
    assert found.packages == {"flash-attn": "2.8.3", "flash-attn-3": "3.0.0b1"}


@posix("program without a suffix")
def test_installers_are_those_available(bare, site, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look(bare).installers == ()
    (site / "pip-25.0.dist-info").mkdir()
    assert look(bare).installers == ("pip",)
    put(tmp_path / "uv").chmod(0o755)
    assert look(bare).installers == ("uv", "pip")


def test_a_conda_environment_is_known_by_its_folder(bare, site) -> None:
    (bare / "conda-meta").mkdir()
    try:
        assert look(bare).conda
    finally:
        (bare / "conda-meta").rmdir()


def test_a_flash_attn_folder_in_the_current_one_is_seen(bare, site, monkeypatch, tmp_path) -> None:
    put(tmp_path / "flash_attn/__init__.py")
    monkeypatch.chdir(tmp_path)
    assert look(bare).shadow == str(tmp_path / "flash_attn")


INSIDE = "Scripts/python.exe" if os.name == "nt" else "bin/python"


def make_venv(folder: Path) -> Path:
    return put(folder / INSIDE, b"#!/bin/sh\nexit 3\n").parents[1]


def test_what_is_named_comes_first_then_what_is_active_then_the_nearest(tmp_path) -> None:
    """Nothing is started: only the places are checked."""
    active, conda, venv = (make_venv(tmp_path / name) for name in ("active", "conda", "project/.venv"))
    uv = make_venv(tmp_path / "project/envs/uv")
    here = tmp_path / "project" / "src" / "deep"
    here.mkdir(parents=True)
    both = {"VIRTUAL_ENV": str(active), "CONDA_PREFIX": str(conda)}
    base = {"CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "base"}
    gone = {"VIRTUAL_ENV": str(tmp_path / "gone")}
    cases = [
        (str(conda), both, conda, f"--python {conda}"),
        (None, both, active, "VIRTUAL_ENV"),
        (None, {"CONDA_PREFIX": str(conda)}, conda, "CONDA_PREFIX"),
        (None, base, venv, "the nearest .venv"),
        (None, gone, venv, "the nearest .venv"),
        (None, {"UV_PROJECT_ENVIRONMENT": "envs/uv"}, uv, "the nearest envs/uv"),
        (None, {"UV_PROJECT_ENVIRONMENT": str(uv)}, uv, f"the nearest {uv}"),
        (None, {"UV_PROJECT_ENVIRONMENT": "gone"}, venv, "the nearest .venv"),
        (None, {**both, "UV_PROJECT_ENVIRONMENT": "envs/uv"}, active, "VIRTUAL_ENV"),
    ]
    for option, variables, expected, why in cases:
        chosen = choose_python(option, variables, here)
        assert (chosen.program, chosen.why) == (expected / INSIDE, why)
    assert choose_python(None, base, tmp_path).program == conda / INSIDE
    assert choose_python(None, gone, tmp_path).program == Path(sys.executable)


def test_it_is_said_which_environment_was_found_unless_it_was_named() -> None:
    found, _ = look_for_python()
    named, _ = look_for_python(sys.executable)
    assert found is not None
    assert chosen_environment(found).startswith(f"Environment: {found.prefix} ({found.found_by})")
    assert chosen_environment(named) == chosen_environment(None) == ""


@pytest.mark.parametrize(
    ("mark", "keeper"),
    [("uv-receipt.toml", "uv tool"), ("pipx_metadata.json", "pipx"), ("../../CACHEDIR.TAG", "uvx")],
)
def test_an_environment_that_a_tool_keeps_for_flashdepot_is_nobodys_project(
    tmp_path, monkeypatch, mark, keeper
) -> None:
    own = tmp_path / "cache" / "tools" / "own"
    own.mkdir(parents=True)
    put((own / mark).resolve())
    monkeypatch.setattr(sys, "prefix", str(own))
    chosen = choose_python(None, {}, tmp_path)
    assert chosen.program is None
    assert f"no .venv is here or above, and {keeper} keeps flashdepot's own for itself" in chosen.why


@posix("quotes of sh")
def test_what_is_printed_for_an_environment_can_be_pasted_whatever_its_folder_is_called(tmp_path) -> None:
    root = tmp_path / "Anna's $HOME (1)"
    make_environment(root, with_pip=False)
    found, _ = look_for_python(str(root))
    assert found is not None
    assert get_installer(found).endswith(found.command("-m", "ensurepip"))
    done = subprocess.run(
        ["/bin/sh", "-c", found.command("-c", "print('right')")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "right\n"
    assert shlex.split(command_for_torch(found, this_platform()))[-2:] == ["--upgrade", "torch"]
    assert str(found.executable) in shlex.split(command_for_torch(found, this_platform()))


def test_what_is_not_an_interpreter_is_wrong_usage(tmp_path) -> None:
    with pytest.raises(UsageError, match="holds no Python environment"):
        look_for_python(str(tmp_path))
    with pytest.raises(UsageError, match="no such program"):
        look_for_python(str(tmp_path / "python9"))


@posix("stand-in for Python: it is a shell script")
def test_a_program_that_is_not_a_python_is_refused(tmp_path) -> None:
    program = put(tmp_path / "python", b"#!/bin/sh\necho surprise >&2\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match="does not answer like a Python: surprise"):
        look_for_python(str(program))


@posix("stand-in for Python: it is a shell script")
def test_an_active_python_that_does_not_answer_is_unknown_and_said_to_be(tmp_path, monkeypatch) -> None:
    put(tmp_path / "bin/python", b"#!/bin/sh\nexit 3\n").chmod(0o755)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    found, reason = look_for_python()
    assert found is None
    assert reason.endswith("it ended with exit code 3 and said nothing. It was chosen because of this: VIRTUAL_ENV.")
