"""The recipes for conda-forge, vcpkg, Nix and Conan: their commands are ones, and what they install is found.

Their own tools are run where they are here; what a recipe's script does is done without them.
"""

import ctypes
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from support.documents import complaint, flashdepot_commands
from support.tools import run_program, tool

EXAMPLES = Path(__file__).parents[2] / "examples"
CONDA = {"${{ version }}": "2.8.3.post2", "${{ profile }}": "quick", "${{ arch }}": "80,90",
         '${{ target_platform | replace("-64", "-x86_64") }}': "linux-x86_64"}  # fmt: skip
STUB_NIXPKGS = """
rec { fakes = { cudaPackages_13 = { cuda_nvcc = "nvcc"; cuda_cudart = "cudart"; cuda_cccl = "cccl"; };
  python3 = { withPackages = f: "python"; }; symlinkJoin = x: "/cuda"; fetchPypi = x: x.hash;
  stdenv = { mkDerivation = f: let self = f self; in self; }; }; }
"""


def accepted(script: str) -> list[list[str]]:
    """The flashdepot commands of a script, each of which is one that flashdepot takes."""
    found = flashdepot_commands(script)
    assert found
    assert not {" ".join(words): said for words in found if (said := complaint(words))}
    return found


def is_found_by_cmake(prefix: Path, folder: Path) -> bool:
    lines = ["cmake_minimum_required(VERSION 3.18)", "project(p LANGUAGES NONE)"]
    lines += ["find_package(FlashAttention 2.8 REQUIRED COMPONENTS shared static)"]
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    words = [tool("cmake"), "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.nvcc
def test_what_the_conda_recipe_installs_is_found(moved_library, tmp_path) -> None:
    recipe = yaml.safe_load((EXAMPLES / "conda-forge/recipe.yaml").read_text())
    script = "\n".join(recipe["build"]["script"]["content"])
    for placeholder, value in CONDA.items():
        script = script.replace(placeholder, value)
    (get,) = accepted(script.replace("tool/bin/flashdepot", "flashdepot"))
    assert get[0] == "get"
    lines = [line for line in script.splitlines() if not line.startswith(("python", "tool/"))]
    shutil.copytree(moved_library, tmp_path / "library", symlinks=True)
    prefix = tmp_path / "prefix"
    environment = {**os.environ, "PREFIX": str(prefix), "SRC_DIR": str(tmp_path)}
    subprocess.run(["bash", "-ec", "\n".join(lines)], cwd=tmp_path, env=environment, check=True)
    contents = recipe["tests"][0]["package_contents"]
    assert all((prefix / "include" / name).is_file() for name in contents["include"])
    assert all((prefix / name).exists() for name in contents["files"])
    assert ctypes.CDLL(str(prefix / "lib/shared/libflashattention.so.1")).fa_version() >= 10000
    assert is_found_by_cmake(prefix, tmp_path / "p")


@pytest.mark.nvcc
@pytest.mark.parametrize("cpu", ["x64", "arm64"])
def test_what_the_vcpkg_port_installs_is_found(moved_library, tmp_path, cpu) -> None:
    calls = tmp_path / "calls"
    program = tmp_path / "bin/flashdepot"
    program.parent.mkdir()
    copy = f'for last; do :; done\necho "flashdepot $@" >{shlex.quote(str(calls))}\n'
    program.write_text(f'#!/bin/sh\n{copy}cp -R {shlex.quote(str(moved_library))} "$last"\n')
    program.chmod(0o755)
    (tmp_path / "trees").mkdir()
    stand_in = [
        "function(vcpkg_execute_required_process)",
        '  cmake_parse_arguments(a "" "WORKING_DIRECTORY;LOGNAME" "COMMAND" ${ARGN})',
        "  execute_process(COMMAND ${a_COMMAND} WORKING_DIRECTORY ${a_WORKING_DIRECTORY} COMMAND_ERROR_IS_FATAL ANY)",
        "endfunction()",
        "function(vcpkg_install_copyright)",
        '  cmake_parse_arguments(a "" "" "FILE_LIST" ${ARGN})',
        '  file(INSTALL ${a_FILE_LIST} DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")',
        "endfunction()",
        f'include("{EXAMPLES / "vcpkg/portfile.cmake"}")',
    ]
    (tmp_path / "run.cmake").write_text("\n".join(stand_in) + "\n")
    values = {"PORT": "flashattention", "VCPKG_TARGET_ARCHITECTURE": cpu, "CURRENT_PACKAGES_DIR": tmp_path / "packages",
              "CURRENT_BUILDTREES_DIR": tmp_path / "trees", "FLASHATTENTION_PROFILE": "quick"}  # fmt: skip
    words = [tool("cmake"), *(f"-D{name}={value}" for name, value in values.items()), "-P", tmp_path / "run.cmake"]
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    run_program(words, env=environment)
    (get,) = accepted(calls.read_text())
    assert get[get.index("--target") + 1] == {"x64": "linux-x86_64", "arm64": "linux-aarch64"}[cpu]
    shared = {path.name for path in (tmp_path / "packages/share/flashattention").iterdir()}
    assert shared == {"manifest.json", *(path.name for path in (moved_library / "share/licenses").iterdir())}
    assert is_found_by_cmake(tmp_path / "packages", tmp_path / "p")


def test_the_nix_flake_builds_by_a_command_that_is_one(tmp_path) -> None:
    (tmp_path / "default.nix").write_text(f"{{ ... }}: ({STUB_NIXPKGS}).fakes\n")
    question = f"""
      let flake = import {EXAMPLES / "nix/flake.nix"};
          library = (flake.outputs {{ self = flake; nixpkgs = {tmp_path}; flashdepot = "/flashdepot"; }})
            .packages.x86_64-linux.default;
      in {{ inherit (library) buildPhase installPhase src; }}
    """
    words = [tool("nix-instantiate"), "--eval", "--strict", "--json", "-E", question]
    environment = {**os.environ, "NIX_STATE_DIR": str(tmp_path / "state"), "NIX_STORE_DIR": str(tmp_path / "store"),
                   "NIX_REMOTE": "", "NIX_LOG_DIR": str(tmp_path / "log"), "NIX_CONF_DIR": str(tmp_path)}  # fmt: skip
    evaluated = json.loads(run_program(words, env=environment))
    script = evaluated["buildPhase"].replace("$NIX_BUILD_CORES", "2").replace("python -m flashdepot", "flashdepot")
    (build,) = accepted(script)
    assert build[build.index("--upstream") + 1] == "."


@pytest.mark.nvcc
def test_conan_makes_the_package_and_its_test_passes(moved_library, tmp_path) -> None:
    conan, environment = tool("conan"), {**os.environ, "CONAN_HOME": str(tmp_path / "conan")}
    subprocess.run([conan, "profile", "detect"], env=environment, capture_output=True, check=True)
    for shared in ("False", "True"):
        words = [conan, "create", EXAMPLES / "conan", "-o", f"&:library={moved_library}", "-o", f"&:shared={shared}"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "fa2 2.8.3" in done.stdout + done.stderr
