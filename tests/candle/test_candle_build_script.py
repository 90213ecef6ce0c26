"""The build script of a patched crate: what it gives to cargo, and which archives it refuses before they are linked."""

import json
import os
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from flashdepot.link.candle_archive import linking_build_script
from support.tools import assert_ends, tool

NAME = "libflashattention_candle.a"
LINUX, WINDOWS = "linux-x86_64", "windows-x86_64"
ARCHIVE = b"!<arch>\n run_mha\0fa_candle_arguments_37\0" + bytes(range(256)) * 5000
OTHER_CANDLE = ARCHIVE.replace(b"_37", b"_45")
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"

Script = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script as a program, for candle with 37 arguments."""
    folder = tmp_path_factory.mktemp("script")
    (folder / "build.rs").write_text(linking_build_script(37))
    command = [tool("rustc"), "--edition", "2021", "-D", "warnings", str(folder / "build.rs"), "-o"]
    subprocess.run([*command, str(folder / "build")], check=True)
    return folder / "build"


def put(folder: Path, written: dict[str, bytes], record: bool = True) -> None:
    """Archives as `link candle` writes them, with machine code for two GPUs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"platform": folder.name, "sass": ["80", "90"]}, indent=2))
    for name, data in written.items():
        (folder / name).write_bytes(data)
    if not record:
        return
    path = folder.parents[1] / ".flashdepot-candle-crate.json"
    files = json.loads(path.read_text())["files"] if path.exists() else {"Cargo.toml": "0" * 64}
    files |= {f"lib/{folder.name}/{name}": sha256(data).hexdigest() for name, data in written.items()}
    path.write_text(json.dumps({"files": files}, indent=2))


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Script:
    """Run it in a crate whose archive, which was ARCHIVE when it was written, has these bytes."""

    def run(
        archive: bytes = ARCHIVE, platform: str = LINUX, libc: str = "gnu", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        put(tmp_path / "lib" / LINUX, {NAME: ARCHIVE})
        (tmp_path / "lib" / LINUX / NAME).write_bytes(archive)
        system, _, cpu = platform.partition("-")
        said = {"CARGO_CFG_TARGET_OS": system, "CARGO_CFG_TARGET_ARCH": cpu, "CARGO_CFG_TARGET_ENV": libc}
        env = {"PATH": os.environ["PATH"], "CARGO_MANIFEST_DIR": str(tmp_path), **said, **variables}
        return subprocess.run([str(program)], env=env, capture_output=True, text=True, check=False)

    return run


def test_the_archive_that_was_written_is_given_to_cargo(run, tmp_path) -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    folder = tmp_path / "lib" / LINUX
    assert f"cargo:rerun-if-changed={folder}/{NAME}" in said
    assert [line for line in said if "rustc-link" in line] == [
        f"cargo:rustc-link-search=native={folder}",
        "cargo:rustc-link-lib=static:-bundle=flashattention_candle",
        "cargo:rustc-link-lib=dylib=dl",
        "cargo:rustc-link-lib=dylib=pthread",
    ]


@pytest.mark.parametrize("archive", [b"", b"a" * 55, b"b" * 56, b"c" * 64, b"d" * ((1 << 20) + 63)], ids=len)
def test_a_changed_archive_is_refused_with_both_digests(run, archive) -> None:
    longer = archive.ljust(len(ARCHIVE), b"\1")
    done = run(longer + archive)
    assert done.returncode == 1
    found, wanted = sha256(longer + archive).hexdigest(), sha256(ARCHIVE).hexdigest()
    assert f"its {len(longer + archive)} bytes have SHA-256 {found} in place of {wanted}" in done.stderr
    assert "rustc-link" not in done.stdout


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (ARCHIVE[:-1], f"was changed or cut off: its {len(ARCHIVE) - 1} bytes have SHA-256"),
        (b"", "was changed or cut off: its 0 bytes"),
        (POINTER, "is a Git LFS pointer, not a library. Fetch it: git lfs install && git lfs pull"),
        (OTHER_CANDLE[:-9], "has run_mha with 45 arguments, and this crate wants that of 37"),
    ],
    ids=["cut off", "empty", "pointer", "another candle"],
)
def test_what_is_wrong_with_an_archive_is_said_before_it_is_linked(run, archive, said) -> None:
    done = run(archive)
    assert_ends(done, 1, said)
    assert "rustc-link" not in done.stdout


def test_an_archive_that_is_missing_or_for_another_platform_is_refused(run, tmp_path) -> None:
    done = run(platform=WINDOWS)
    assert_ends(done, 1, f"has an archive for {LINUX}, and this is a build for {WINDOWS}", f"--target {WINDOWS}")
    done = run(FLASHDEPOT_CANDLE_LIB_DIR=str(tmp_path / "nowhere"))
    assert_ends(done, 1, f"nowhere/{NAME} cannot be read", "flashdepot link candle --write")


@pytest.mark.parametrize("record", [True, False])
def test_an_archive_of_another_crate_is_compared_with_its_record(run, tmp_path, record) -> None:
    other = tmp_path / "another/lib" / LINUX
    put(other, {NAME: ARCHIVE + b"newer"}, record)
    done = run(FLASHDEPOT_CANDLE_LIB_DIR=str(other))
    assert done.returncode == 0, done.stderr
    assert f"rustc-link-search=native={other}\n" in done.stdout
    (other / NAME).write_bytes(ARCHIVE if record else ARCHIVE.replace(b"fa_candle", b"FA_candle"))
    done = run(FLASHDEPOT_CANDLE_LIB_DIR=str(other))
    assert done.returncode == 1
    assert ("was changed" if record else "has no run_mha for candle") in done.stderr


def test_an_archive_of_the_crate_that_no_record_names_is_refused(run, tmp_path) -> None:
    put(tmp_path / "lib" / "linux-aarch64", {NAME: ARCHIVE}, record=False)
    done = run(platform="linux-aarch64")
    assert_ends(done, 1, f"flashdepot-candle-crate.json names no {tmp_path}/lib/linux-aarch64/{NAME}")


def test_each_platform_and_toolchain_gets_its_own_archive(run, tmp_path) -> None:
    lib, names = tmp_path / "lib" / WINDOWS, {"gnu": NAME, "msvc": "flashattention_candle.lib"}
    for environment, name in names.items():
        put(lib, {one: ARCHIVE + one.encode() for one in names.values()})
        for other in {*names.values()} - {name}:
            (lib / other).write_bytes(POINTER)
        done = run(POINTER, WINDOWS, environment)
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stdout.splitlines() if "rustc-link" in line] == [
            f"cargo:rustc-link-search=native={lib}",
            "cargo:rustc-link-lib=static:-bundle=flashattention_candle",
        ]
        (lib / name).write_bytes(POINTER)
        assert f"{name} is a Git LFS pointer" in run(POINTER, WINDOWS, environment).stderr


@pytest.mark.parametrize(
    ("capability", "serves"), [("75", True), ("86", True), ("90a", True), ("9.0", True), ("120", False)]
)
def test_an_archive_for_no_gpu_that_candle_is_compiled_for_is_refused(run, tmp_path, capability, serves) -> None:
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
            said = f"code only for sm_80, sm_90, and candle is compiled for {capability} and newer, as {source} says"
            assert said in done.stderr
            assert "rustc-link-lib" not in done.stdout
