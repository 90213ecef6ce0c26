"""A run time inside a static library keeps out of the way of a program's own CUDA runtime."""

import contextlib
import platform
import re
import subprocess
from pathlib import Path

import pytest

from flashdepot.binary.objects import privately, with_private_runtime
from flashdepot.errors import IntegrityError
from support.tools import has, run_program, tool

SOURCE = """
int cudaLaunchKernel(int x) { return x + 40; }
int cudaGet(int);
int cudaGetDevice(int x) { return cudaLaunchKernel(x) + cudaGet(1); }
int __cudaLaunchKernel(int x) { return cudaLaunchKernel(x); }
static int cuda_hidden(int x) { return x; }
int cudaGet(int x) { return cuda_hidden(x); }
int my_cudaGetDevice(int x) { return cudaGetDevice(x); }
int entry(void) { return __cudaLaunchKernel(1) + my_cudaGetDevice(1) - 41; }
"""
PROGRAM = """
int entry(void);
int cudaLaunchKernel(int x) { return 1000 * x; }
int cudaGetDevice(int x) { return 1000 * x; }
int __cudaLaunchKernel(int x) { return 1000 * x; }
int cudaGet(int x) { return 1000 * x; }
int main(void) { return entry() == 42 && cudaGetDevice(2) == 2000 ? 0 : 1; }
"""
LARGE = """
__asm__(".section .ltext,\\"axl\\",@progbits\\n.globl large\\n.type large,@function\\nlarge:\\n.cfi_startproc\\n"
        "movl $42, %eax\\nret\\n.cfi_endproc\\n.size large, .-large\\n.text\\n");
"""
PANICKING = """
extern "C" { fn large() -> i32; }
fn main() {
    let caught = std::panic::catch_unwind(|| assert_ne!(unsafe { large() }, 42));
    std::process::exit(i32::from(caught.is_ok()));
}
"""
COMPILERS = {
    "linux": ("gcc", ()),
    "clang": ("clang", ()),
    "windows": ("x86_64-w64-mingw32-gcc", ("wine",)),
}


def compile_source(compiler: str, text: str, output: Path) -> Path:
    source = output.with_suffix(".c")
    source.write_text(text)
    subprocess.run([compiler, "-O0", "-c", str(source), "-o", str(output)], check=True)
    return output


def names(path: Path) -> set[str]:
    listed = run_program(["nm", str(path)])
    return {line.split()[-1] for line in listed.splitlines() if line.split()[-2] in "TtU"}


@pytest.mark.parametrize("system", COMPILERS)
def test_a_program_that_defines_the_same_functions_links_and_each_calls_its_own(system, tmp_path) -> None:
    name, runner = COMPILERS[system]
    compiler = tool(name)
    compiled = compile_source(compiler, SOURCE, tmp_path / "library.o")
    private = tmp_path / "private.o"
    private.write_bytes(with_private_runtime(compiled.read_bytes(), "library.o"))
    renamed = {"cudaLaunchKernel", "cudaGet", "cudaGetDevice", "__cudaLaunchKernel"}
    assert names(private) == names(compiled) - renamed | {f"flashdepot_{name}" for name in renamed}

    program = compile_source(compiler, PROGRAM, tmp_path / "program.o")
    both = tmp_path / "both.exe"
    twice = subprocess.run([compiler, str(program), str(compiled), "-o", str(both)], capture_output=True, check=False)
    assert b"cudaLaunchKernel" in twice.stderr
    subprocess.run([compiler, str(program), str(private), "-o", str(both)], check=True)
    if has(*runner):
        assert subprocess.run([*runner, str(both)], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("system", "private"), [("linux", True), ("windows", False)])
def test_atexit_is_the_run_times_own_on_linux_only(system, private, tmp_path) -> None:
    compiler = tool(COMPILERS[system][0])
    text = "int atexit(void (*)(void));\nvoid entry(void (*f)(void)) { atexit(f); }\n"
    compiled = compile_source(compiler, text, tmp_path / "library.o")
    [changed] = privately([compiled], tmp_path / "private")
    assert names(changed) - {".text"} == {"entry", "flashdepot_atexit" if private else "atexit"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="large sections are those of x86-64")
def test_code_that_is_marked_as_large_does_not_take_a_programs_panics_away(tmp_path) -> None:
    large = compile_source("gcc", LARGE, tmp_path / "large.o")
    [changed] = privately([large], tmp_path / "private")
    flags = [
        re.findall(r"\.ltext +PROGBITS.* ([A-Zl]+) ", shown)
        for shown in (subprocess.check_output(["readelf", "-SW", str(path)], text=True) for path in (large, changed))
    ]
    assert flags == [["AXl"], ["AX"]]
    rustc = tool("rustc")  # whose linker places large code elsewhere
    (tmp_path / "program.rs").write_text(PANICKING)
    words = [rustc, "program.rs", "-C", f"link-arg={changed}", "-o", "program"]
    subprocess.run(words, cwd=tmp_path, check=True)
    assert subprocess.run([str(tmp_path / "program")], capture_output=True, check=False).returncode == 0


def test_what_is_private_already_stays(tmp_path) -> None:
    compiled = compile_source("gcc", SOURCE, tmp_path / "library.o")
    once = with_private_runtime(compiled.read_bytes(), "library.o")
    assert with_private_runtime(once, "library.o") == once


@pytest.mark.parametrize("cut", range(0, 2000, 97))
def test_an_object_that_is_cut_off_is_refused_or_read_and_never_more(cut, tmp_path) -> None:
    data = compile_source("gcc", SOURCE, tmp_path / "library.o").read_bytes()
    with contextlib.suppress(IntegrityError):
        assert len(with_private_runtime(data[:cut], "library.o")) >= cut


def test_another_file_is_refused() -> None:
    with pytest.raises(IntegrityError, match="not an object file"):
        with_private_runtime(b"#!/bin/sh\n" + bytes(100), "script")
