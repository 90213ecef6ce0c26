"""The build script of a patched crate: what it gives to cargo, and which archives it refuses before they are linked."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from flashdepot.files.user_files import OutputFile
from flashdepot.link.candle_delivery import linking_build_script
from flashdepot.model.target import Architecture, Platform
from support.tools import tool

NAME = "libflashattention.a"
LINUX = Platform("linux", "x86_64")
SASS = (Architecture(8, 0), Architecture(9, 0))
ARCHIVE = b"!<arch>\n run_mha\0fa_candle_arguments_37\0" + bytes(range(256)) * 5000
OTHER_CANDLE = ARCHIVE.replace(b"_37", b"_45")
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"

Script = Callable[..., subprocess.CompletedProcess[str]]


def compiled_script(folder: Path, platform: Platform, archives: Sequence[OutputFile]) -> Path:
    """The script as a program, for candle with 37 arguments."""
    rustc = tool("rustc")
    text = linking_build_script(platform, SASS, 37, archives)
    (folder / "build.rs").write_text(text)
    command = [rustc, "--edition", "2021", "-D", "warnings", str(folder / "build.rs"), "-o", str(folder / "build")]
    subprocess.run(command, check=True)
    return folder / "build"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_script(tmp_path_factory.mktemp("script"), LINUX, [OutputFile.of(f"lib/{NAME}", ARCHIVE)])


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Script:
    """Run it in a crate whose archive has these bytes."""

    def run(archive: bytes = ARCHIVE, system: str = "linux", **variables: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / NAME).write_bytes(archive)
        said = {"CARGO_CFG_TARGET_OS": system, "CARGO_CFG_TARGET_ARCH": "x86_64", "CARGO_CFG_TARGET_ENV": "gnu"}
        env = {"PATH": os.environ["PATH"], "CARGO_MANIFEST_DIR": str(tmp_path), **said, **variables}
        return subprocess.run([str(program)], env=env, capture_output=True, text=True, check=False)

    return run


def test_the_archive_that_was_written_is_given_to_cargo(run: Script, tmp_path: Path) -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert f"cargo:rerun-if-changed={tmp_path}/lib/{NAME}" in told
    assert [line for line in told if "rustc-link" in line] == [
        f"cargo:rustc-link-search=native={tmp_path}/lib",
        "cargo:rustc-link-lib=static:-bundle=flashattention",
        "cargo:rustc-link-lib=dylib=dl",
        "cargo:rustc-link-lib=dylib=pthread",
    ]


@pytest.mark.parametrize("archive", [b"", b"a" * 55, b"b" * 56, b"c" * 64, b"d" * ((1 << 20) + 63)], ids=len)
def test_a_changed_archive_is_refused_with_both_digests(run: Script, archive: bytes) -> None:
    longer = archive.ljust(len(ARCHIVE), b"\1")
    done = run(longer + archive)
    assert done.returncode == 1
    found, wanted = sha256(longer + archive).hexdigest(), sha256(ARCHIVE).hexdigest()
    assert f"was changed: SHA-256 {found} in place of {wanted}" in done.stderr
    assert "rustc-link" not in done.stdout


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (ARCHIVE[:-1], f"is cut off: it has {len(ARCHIVE) - 1} bytes of the {len(ARCHIVE)} that were written"),
        (b"", "is cut off: it has 0 bytes"),
        (POINTER, "is a Git LFS pointer, not a library. Fetch it: git lfs install && git lfs pull"),
        (OTHER_CANDLE[:-9], "has run_mha with 45 arguments, and this candle-flash-attn calls it with 37"),
    ],
    ids=["cut off", "empty", "pointer", "another candle"],
)
def test_what_is_wrong_with_an_archive_is_said_before_it_is_linked(run: Script, archive: bytes, said: str) -> None:
    done = run(archive)
    assert done.returncode == 1
    assert said in done.stderr
    assert "rustc-link" not in done.stdout


def test_an_archive_that_is_missing_or_for_another_system_is_refused(run: Script, tmp_path: Path) -> None:
    done = run(system="windows")
    assert done.returncode == 1
    assert "was made for linux-x86_64, and this is a build for windows-x86_64" in done.stderr
    done = run(FLASHDEPOT_CANDLE_LIB_DIR=str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert f"nowhere/{NAME} cannot be read" in done.stderr
    assert "flashdepot link candle --write" in done.stderr


@pytest.mark.parametrize("record", [".flashdepot-candle.json", "../.flashdepot-candle-crate.json", ""])
def test_an_archive_elsewhere_is_held_against_the_record_beside_it(run: Script, tmp_path: Path, record: str) -> None:
    other = tmp_path / "another" / "lib"
    other.mkdir(parents=True)
    (other / NAME).write_bytes(ARCHIVE + b"newer")
    if record:
        place = f"lib/{NAME}" if ".." in record else NAME
        files = {"Cargo.toml": "0" * 64, place: sha256(ARCHIVE + b"newer").hexdigest()}
        (other / record).write_text(json.dumps({"files": files}, indent=2))
    assert run(FLASHDEPOT_CANDLE_LIB_DIR=str(other)).returncode == 0
    (other / NAME).write_bytes(ARCHIVE if record else ARCHIVE.replace(b"fa_candle", b"FA_candle"))
    done = run(FLASHDEPOT_CANDLE_LIB_DIR=str(other))
    assert done.returncode == 1
    assert ("was changed" if record else "has no run_mha for candle") in done.stderr


def test_on_windows_the_archive_that_rustc_takes_is_the_one_that_is_read(tmp_path: Path) -> None:
    lib = tmp_path / "lib"
    lib.mkdir()
    names = {"gnu": NAME, "msvc": "flashattention.lib"}
    archives = [OutputFile.of(f"lib/{name}", ARCHIVE + name.encode()) for name in names.values()]
    program = compiled_script(tmp_path, Platform("windows", "x86_64"), archives)
    for environment, name in names.items():
        for other in names.values():
            (lib / other).write_bytes(POINTER)
        (lib / name).write_bytes(ARCHIVE + name.encode())
        said = {"OS": "windows", "ARCH": "x86_64", "ENV": environment}
        env = {"CARGO_MANIFEST_DIR": str(tmp_path), **{f"CARGO_CFG_TARGET_{part}": v for part, v in said.items()}}
        done = subprocess.run([str(program)], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stdout.splitlines() if "rustc-link" in line] == [
            f"cargo:rustc-link-search=native={lib}",
            "cargo:rustc-link-lib=static:-bundle=flashattention",
        ]
        (lib / name).write_bytes(POINTER)
        done = subprocess.run([str(program)], env=env, capture_output=True, text=True, check=False)
        assert f"{name} is a Git LFS pointer" in done.stderr


@pytest.mark.parametrize(
    ("capability", "serves"), [("75", True), ("86", True), ("90a", True), ("9.0", True), ("120", False)]
)
def test_an_archive_for_no_gpu_that_candle_is_compiled_for_is_refused(
    run: Script, tmp_path: Path, capability: str, serves: bool
) -> None:
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(f"#!/bin/sh\necho {capability}\n")
    smi.chmod(0o755)
    for source, variables in (
        ("CUDA_COMPUTE_CAP", {"CUDA_COMPUTE_CAP": capability}),
        ("nvidia-smi", {"PATH": f"{smi.parent}:{os.environ['PATH']}"}),
    ):
        done = run(**variables)
        assert done.returncode == (0 if serves else 1), done.stderr
        if not serves:
            said = (
                f"machine code for 8.0 9.0 alone, and candle is compiled for {capability} and newer, as {source} says"
            )
            assert said in done.stderr
            assert "rustc-link-lib" not in done.stdout
