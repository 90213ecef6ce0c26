"""The build script of the crate: what it tells cargo for each target, and what it refuses."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flashdepot.link.library import CRATE_SOURCE
from support.tools import assert_ends, tool

SCRIPT = CRATE_SOURCE / "build.rs"
LINUX = {"OS": "linux", "ENV": "gnu"}
MSVC = {"OS": "windows", "ENV": "msvc"}
MINGW = {"OS": "windows", "ENV": "gnu"}
FILES = {
    "linux": ("static/libflashattention.a", "shared/libflashattention.so"),
    "windows": (
        "static/flashattention.lib",
        "static/libflashattention.a",
        "shared/flashattention.lib",
        "shared/flashattention.dll",
    ),
}

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build script as a program of this machine, on which cargo runs it whatever the target is."""
    program = tmp_path_factory.mktemp("script") / "build"
    command = [tool("rustc"), "--edition", "2021", "-D", "warnings", str(SCRIPT), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


@pytest.fixture
def run(script: Path, tmp_path: Path) -> Script:
    """Run it for a target in a crate whose library is for the same system, with the kind that was asked for."""

    def run(target: dict[str, str], link: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        library = tmp_path / "library" / f"{target['OS']}-x86_64"
        (library / "lib/static").mkdir(parents=True, exist_ok=True)
        (library / "lib/shared").mkdir(exist_ok=True)
        (library / "manifest.json").write_text(f'{{"platform": "{target["OS"]}-x86_64"}}')
        for name in FILES[target["OS"]]:
            if not (library / "lib" / name).exists():
                (library / "lib" / name).write_text("a library")
        said = {f"CARGO_CFG_TARGET_{part}": value for part, value in {"ARCH": "x86_64", **target}.items()}
        env = {"PATH": os.environ["PATH"], "CARGO_MANIFEST_DIR": str(tmp_path), "FLASHDEPOT_LINK": link, **said}
        return subprocess.run([str(script)], env={**env, **variables}, capture_output=True, text=True, check=False)

    return run


SEARCH, STATIC, SHARED = (
    "rustc-link-search=native={folder}",
    "rustc-link-lib=static:-bundle=flashattention",
    "rustc-link-lib=dylib=flashattention",
)
OF_WINDOWS = [f"rustc-link-lib=dylib={name}" for name in ("kernel32", "advapi32", "shell32", "user32")]
OF_LINUX = [f"rustc-link-lib=dylib={name}" for name in ("dl", "pthread")]


@pytest.mark.parametrize(
    ("target", "link", "lines", "files"),
    [
        (MSVC, "static", [SEARCH, STATIC, *OF_WINDOWS], ["static/flashattention.lib"]),
        (MINGW, "static", [SEARCH, STATIC, *OF_WINDOWS], ["static/libflashattention.a"]),
        (MSVC, "shared", [SEARCH, SHARED], ["shared/flashattention.lib", "shared/flashattention.dll"]),
        (MINGW, "shared", [SEARCH, SHARED], ["shared/flashattention.lib", "shared/flashattention.dll"]),
        (LINUX, "static", [SEARCH, STATIC, *OF_LINUX], ["static/libflashattention.a"]),
        (
            LINUX,
            "shared",
            [SEARCH, SHARED, "rustc-link-arg=-Wl,-rpath,{folder}"],
            ["shared/libflashattention.so"],
        ),
    ],
    ids=["MSVC static", "MinGW static", "MSVC shared", "MinGW shared", "Linux static", "Linux shared"],
)
def test_cargo_learns_how_to_link(run, tmp_path, target, link, lines, files) -> None:
    done = run(target, link)
    assert done.returncode == 0, done.stderr
    root = tmp_path / "library" / f"{target['OS']}-x86_64"
    folder = root / "lib" / link
    said = [line.removeprefix("cargo:") for line in done.stdout.splitlines()]
    assert [line for line in said if line.startswith("rustc-")] == [line.format(folder=folder) for line in lines]
    assert said[-4:] == [f"root={root}", f"include={root}/include", f"libdir={folder}", f"kind={link}"]
    watched = [line for line in said if line.startswith(f"rerun-if-changed={folder}")]
    assert watched == [f"rerun-if-changed={root}/lib/{name}" for name in files]


@pytest.mark.parametrize("target", [MSVC, MINGW])
def test_a_build_with_its_own_c_runtime_is_sent_to_the_shared_library(run, target) -> None:
    target = {**target, "FEATURE": "fxsr,crt-static,sse2"}
    done = run(target)
    assert_ends(done, 1, "this is a build with crt-static", "set FLASHDEPOT_LINK=shared")
    assert run(target, "shared").returncode == 0


@pytest.mark.parametrize(
    ("library", "target", "said"),
    [
        (LINUX, MSVC, "is a library for 'linux-x86_64', and this is a build for windows-x86_64"),
        (MSVC, LINUX, "is a library for 'windows-x86_64', and this is a build for linux-x86_64"),
    ],
)
def test_a_library_of_the_other_system_is_refused(run, tmp_path, library, target, said) -> None:
    run(library)
    kept = next((tmp_path / "library").iterdir())
    done = run(target, FLASHDEPOT_LIB_DIR=str(kept))
    assert_ends(done, 1, said)


@pytest.mark.parametrize(
    ("link", "name"),
    [
        ("static", "static/flashattention.lib"),
        ("shared", "shared/flashattention.lib"),
        ("shared", "shared/flashattention.dll"),
    ],
)
def test_a_file_that_a_build_for_windows_needs_is_named_when_it_is_a_pointer(run, tmp_path, link, name) -> None:
    assert run(MSVC, link).returncode == 0
    (tmp_path / "library/windows-x86_64/lib" / name).write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )
    done = run(MSVC, link)
    assert_ends(done, 1, f"{name} is a Git LFS pointer")


@pytest.fixture
def answering(script: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run it in a crate without a library, where a program stands in for flashdepot and gives an answer."""
    program, asked = tmp_path / "flashdepot", tmp_path / "asked"

    def run(answer: str, status: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "answer").write_text(answer)
        program.write_text(f'#!/bin/sh\nprintf "%s " "$@" > "{asked}"\ncat "{tmp_path}/answer"\nexit {status}\n')
        program.chmod(0o755)
        said = {f"CARGO_CFG_TARGET_{part}": value for part, value in {"ARCH": "x86_64", **LINUX}.items()}
        env = {"PATH": os.environ["PATH"], "CARGO_MANIFEST_DIR": str(tmp_path), "FLASHDEPOT": str(program), **said}
        return subprocess.run([str(script)], env={**env, **variables}, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, "link flags --json -q "),
        ({"FLASHDEPOT_REQUEST": "--profile quick --arch 80"}, "link flags --json -q --profile quick --arch 80 "),
        ({"FLASHDEPOT_GET": "1"}, "get --json -q "),
        ({"CARGO_CFG_TARGET_ARCH": "aarch64"}, "link flags --json -q --target linux-aarch64 "),
    ],
)
def test_without_a_library_flashdepot_is_asked_for_one(answering, tmp_path, variables, asked) -> None:
    library = tmp_path / "a library"
    (library / "lib/static").mkdir(parents=True)
    (library / "lib/static/libflashattention.a").write_text("a library")
    machine = variables.get("CARGO_CFG_TARGET_ARCH", "x86_64")
    (library / "manifest.json").write_text(f'{{"platform": "linux-{machine}"}}')
    done = answering(json.dumps({"path": str(library)}), **variables)
    assert done.returncode == 0, done.stderr
    assert f"cargo:root={library}\n" in done.stdout
    assert (tmp_path / "asked").read_text() == asked


def test_a_depot_without_a_library_is_a_warning_with_the_way_out(answering) -> None:
    done = answering("", 4)
    assert done.returncode == 0, done.stderr  # 'cargo check' needs no library
    warning = next(line for line in done.stdout.splitlines() if line.startswith("cargo:warning="))
    assert "flashdepot link flags' gave none" in warning
    assert "FLASHDEPOT_GET=1" in warning
    assert "FLASHDEPOT_BUILD=always" in answering("", 8, FLASHDEPOT_GET="1").stdout
    nowhere = answering("", FLASHDEPOT="/nowhere/flashdepot")
    assert "'/nowhere/flashdepot' cannot be run" in nowhere.stdout


def test_documentation_is_built_without_a_library(answering) -> None:
    done = answering("", 4, DOCS_RS="1")
    assert done.returncode == 0, done.stderr
    assert "rustc-link" not in done.stdout
