"""A small torch, a Python that has it, and a wheel whose extension was built with it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support import forge

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
    (site,) = venv.glob("lib/python*/site-packages")
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


def link_wheel(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "flashdepot", "link", "wheel", *map(str, arguments))


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
