"""What a build of candle links: the archive, and stubs where there is no CUDA toolkit."""

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from flashdepot.api.acquire import Context, open_depot
from flashdepot.api.candle import bindings_of, cargo_toolkit, declared_names, provide_stubs, toolkit_lines
from flashdepot.api.libraries import zig
from flashdepot.errors import CompileError, IncompatibleError, IntegrityError, MissingToolError
from flashdepot.host.probe import this_platform
from flashdepot.link.candle_archive import write_candle_crate
from flashdepot.link.candle_project import CandleProject
from flashdepot.link.library import Shell, read_library
from flashdepot.model.target import Platform
from flashdepot.toolchain import wheels
from flashdepot.toolchain.zig import Zig
from support.depots import make_manifest
from support.programs import write_stand_in
from support.tools import assert_ends, flashdepot_here, run_program


def no_zig() -> Zig:
    raise AssertionError("this machine's own tools make an archive for it")


@pytest.fixture
def library(quick_library: Path, tmp_path: Path) -> Path:
    """A copy of a library that may be changed."""
    copy: Path = shutil.copytree(quick_library, tmp_path / "library")
    for folder, _, _ in os.walk(copy):
        Path(folder).chmod(0o755)
    return copy


@pytest.fixture
def crate(tmp_path: Path) -> Path:
    return write_stand_in(tmp_path / "crate", "0.9.1")


@pytest.mark.nvcc
def test_a_library_without_its_archive_is_refused_before_anything_is_written(library, crate, tmp_path) -> None:
    (library / "lib/static/libflashattention.a").unlink()
    with pytest.raises(IntegrityError, match=r"libflashattention\.a is missing"):
        write_candle_crate(read_library(library), 37, crate, tmp_path / "out", no_zig)
    assert not (tmp_path / "out").exists()


@pytest.mark.nvcc
def test_a_missing_tool_is_named_with_its_package(library, crate, tmp_path, monkeypatch) -> None:
    only = tmp_path / "bin"
    only.mkdir()
    (only / "cc").symlink_to(shutil.which("cc") or "cc")
    monkeypatch.setenv("PATH", str(only))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MissingToolError, match="'ld' was not found") as caught:
        write_candle_crate(read_library(library), 37, crate, tmp_path / "out", no_zig)
    assert "binutils" in caught.value.hint


@pytest.mark.nvcc
def test_a_compiler_that_refuses_is_quoted(library, crate, tmp_path) -> None:
    (library / "include/flash_attention.h").chmod(0o644)
    (library / "include/flash_attention.h").write_text("#error this header is broken\n")
    with pytest.raises(CompileError, match="this header is broken"):
        write_candle_crate(read_library(library), 37, crate, tmp_path / "out", no_zig)


CUDARC = {
    "runtime": (
        "pub unsafe fn cudaFree(at: *mut u8) -> u32 {\n"
        '        extern "C" {\n            fn cudaFree(at: *mut u8) -> u32;\n        }\n        cudaFree(at)\n}\n'
    ),
    "driver": 'extern "C" {\n    pub fn cuInit(flags: u32) -> u32;\n}\npub unsafe fn safe() {}\n',
    "cublas": "    pub fn cublasCreate_v2(\n        handle: *mut u8,\n    ) -> u32;\n    pub fn is_culib_present() -> bool {\n",
}


@pytest.fixture
def bindings(tmp_path: Path) -> list[Path]:
    """The sources of a cudarc, where Cargo unpacks them for the project in tmp_path."""
    (tmp_path / "Cargo.lock").write_text('version = 4\n[[package]]\nname = "cudarc"\nversion = "0.19.9"\n')
    with pytest.raises(MissingToolError, match=r"cudarc 0\.19\.9"):
        bindings_of(tmp_path, tmp_path / "home")
    source = tmp_path / "home/registry/src/index/cudarc-0.19.9/src"
    for module, text in CUDARC.items():
        (source / module / "sys").mkdir(parents=True)
        (source / module / "sys/mod.rs").write_text(text)
    return bindings_of(tmp_path, tmp_path / "home")


def test_the_names_are_those_that_cudarc_declares(bindings) -> None:
    assert declared_names(bindings) == {
        "driver": ["cuInit"],
        "runtime": ["cudaFree"],
        "cublas": ["cublasCreate_v2"],
    }


def test_sources_without_a_function_that_is_known_are_an_error_and_not_an_empty_library(tmp_path) -> None:
    with pytest.raises(MissingToolError, match="No function of the driver"):
        declared_names([tmp_path])


def test_a_program_links_with_them_and_asks_for_the_libraries_when_it_starts(bindings, tmp_path) -> None:
    toolkit = tmp_path / "toolkit"
    (toolkit / "lib").mkdir(parents=True)
    subprocess.run(["ar", "rcs", toolkit / "lib/libcudart_static.a"], check=True)
    stubs = provide_stubs(toolkit, 13, bindings, tmp_path / "depot")
    assert provide_stubs(toolkit, 13, bindings, tmp_path / "depot") == stubs
    program = tmp_path / "program.c"
    program.write_text(
        "int cuInit(int); int cublasCreate_v2(void *);\nint main(void) { return cuInit(0) + cublasCreate_v2(0); }"
    )
    command = [
        "cc",
        str(program),
        f"-L{stubs / 'lib'}",
        "-lcudart",
        "-lcuda",
        "-lcublas",
        "-o",
        str(tmp_path / "program"),
    ]
    subprocess.run(command, check=True)
    needed = run_program(["readelf", "-d", tmp_path / "program"])
    assert "[libcuda.so.1]" in needed
    assert "[libcublas.so.13]" in needed
    assert "cudart" not in needed


@pytest.mark.nvcc
def test_a_program_for_windows_has_an_import_library_for_each_dll(bindings, real_depot, tmp_path) -> None:
    stubs = provide_stubs(tmp_path / "toolkit", 13, bindings, tmp_path, lambda: zig(Context(open_depot(real_depot))))
    made = {path.name: path.read_bytes() for path in (stubs / "lib").iterdir()}
    assert made.keys() == {"libcuda.a", "libcublas.a", "libcudart.a"}
    for name, dll, function in (
        ("libcuda.a", b"nvcuda.dll", b"cuInit"),
        ("libcublas.a", b"cublas64_13.dll", b"cublasCreate_v2"),
        ("libcudart.a", b"cudart64_13.dll", b"cudaFree"),
    ):
        assert dll in made[name]
        assert function in made[name]


def test_the_lines_put_nvcc_in_front_of_the_path() -> None:
    lines = toolkit_lines(Path("/depot/cuda 13"), Path("/depot/stubs"), "80", Shell.POSIX)
    script = "\n".join([*lines, "echo $CUDA_ROOT $CUDA_COMPUTE_CAP; echo $PATH"])
    said = run_program(["sh", "-c", script]).splitlines()
    assert said[0] == "/depot/stubs 80"
    assert said[1].startswith("/depot/cuda 13/bin:")


@pytest.mark.nvcc
def test_the_option_gives_a_shell_nvcc_and_the_folder_with_the_stubs(
    bindings, real_depot, quick_library, tmp_path, monkeypatch
) -> None:
    with (tmp_path / "Cargo.lock").open("a") as lock:
        lock.write('[[package]]\nname = "candle-flash-attn"\nversion = "0.9.1"\n')
    toolkit = wheels.pinned_toolkit(this_platform()).provide(real_depot / "toolchains", lambda _: None)
    monkeypatch.setattr(wheels, "pinned_toolkit", lambda _: SimpleNamespace(provide=lambda *_: toolkit))
    write_stand_in(tmp_path / "home/registry/src/index/candle-flash-attn-0.9.1", "0.9.1")
    link = partial(flashdepot_here, "link", "candle", "--library", quick_library, "--toolkit", cwd=tmp_path)
    here = {"CARGO_HOME": str(tmp_path / "home"), "FLASHDEPOT_HOME": str(tmp_path / "depot")}
    assert_ends(link(**here), 2, "--toolkit prints lines for a shell", "--write")
    done = link("--write", **here)
    assert done.returncode == 0, done.stderr
    script = f"{done.stdout}command -v nvcc; ls $CUDA_ROOT/lib; echo $CUDA_COMPUTE_CAP"
    said = run_program(["sh", "-c", script]).split()
    assert said[0] == str(toolkit / "bin/nvcc")
    assert said[1:] == ["libcublas.so", "libcuda.so", "libcudart.a", "80"]


@pytest.mark.parametrize("platform", ["linux-riscv64", "windows-aarch64"])
def test_the_option_is_refused_for_a_machine_that_its_nvcc_does_not_build_for(platform, tmp_path) -> None:
    project = CandleProject(tmp_path, "0.9.1", "", ())
    manifest = make_manifest(platform=Platform.parse(platform))
    with pytest.raises(IncompatibleError, match=f"and the library for {platform}"):
        cargo_toolkit(project, manifest, Context(open_depot(tmp_path / "depot")))
