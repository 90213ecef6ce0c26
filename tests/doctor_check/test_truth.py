"""Files and places that once got a false 'fits'."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from places import SET_DEVICE_2_8, extension, interpreter, machine, place

from flashdepot.binary.fatbin import CodeKind, GpuCode
from flashdepot.binary.window import FileKind
from flashdepot.diagnose.check import Outcome, check_file
from flashdepot.diagnose.check.judge import judge_architectures
from flashdepot.diagnose.check.subject import Binary
from flashdepot.model.target import Architecture
from support import forge


@pytest.mark.parametrize(
    ("torch", "verdict"),
    [
        ("2.11.0+cpu", Outcome.MISFIT),
        ("2.11.0+rocm6.4", Outcome.MISFIT),
        ("2.11.0+cu128", Outcome.FITS),
    ],
)
def test_a_torch_without_cuda_takes_no_cuda_extension(tmp_path: Path, torch: str, verdict: Outcome) -> None:
    gpu = forge.fatbin(forge.entry(forge.SASS, 90))
    report = check_file(extension(tmp_path, SET_DEVICE_2_8, gpu=gpu), place("9.0", torch=torch))
    assert report.verdict is verdict


@pytest.mark.parametrize(
    ("runtime", "driver", "verdict"),
    [("13", "570.1", Outcome.MISFIT), ("12", "470.1", Outcome.MISFIT), ("12", "535.1", Outcome.FITS)],
)
def test_the_driver_of_a_record_is_asked(tmp_path: Path, runtime: str, driver: str, verdict: Outcome) -> None:
    name = f"libcudart.so.{runtime}"
    forge.shared_library(tmp_path, "void cuda(void) {}", f"-Wl,-soname,{name}", name="libcudart.so")
    path = forge.shared_library(tmp_path, "void cuda(void); void f(void) { cuda(); }", f"-L{tmp_path}", "-lcudart")
    assert check_file(path, place(host=machine(driver=driver), is_here=False)).verdict is verdict


def binary(*groups: tuple[tuple[str, ...], int], relocatable: bool = False) -> Binary:
    containers = tuple(
        (frozenset(GpuCode(CodeKind.SASS, Architecture.parse(s), "") for s in sass), count) for sass, count in groups
    )
    return Binary("_C.so", FileKind.ELF_SHARED, frozenset({"x86_64"}), containers=containers, relocatable=relocatable)


@pytest.mark.parametrize(
    ("groups", "outcome"),
    [
        ([(("80", "90"), 72)], Outcome.FITS),
        ([(("80",), 70), (("80", "90"), 2)], Outcome.MISFIT),
        ([(("80", "90"), 70), (("80",), 2)], Outcome.UNKNOWN),
        ([(("80",), 72)], Outcome.MISFIT),
    ],
)
def test_code_in_a_few_helpers_is_no_code_for_the_kernels(
    groups: list[tuple[tuple[str, ...], int]], outcome: Outcome
) -> None:
    (line,) = judge_architectures([binary(*groups)], place("9.0"))
    assert line.outcome is outcome
    assert bool(line.fix) == (outcome is not Outcome.FITS)


def test_no_gpu_at_all_is_said_and_is_no_fit() -> None:
    (line,) = judge_architectures([binary((("90",), 3))], place())
    assert (line.outcome, line.fix) == (Outcome.UNKNOWN, "Name the GPU that it is for: --gpu 9.0")


def test_relocatable_device_code_is_not_taken_for_code_that_runs(tmp_path: Path) -> None:
    code = tmp_path / "code.bin"
    code.write_bytes(forge.fatbin(forge.entry(forge.PTX, 80)))
    unit = forge.object_file(tmp_path, "void f(void) {}")
    with_code = tmp_path / "rdc.o"
    subprocess.run(["objcopy", f"--add-section=__nv_relfatbin={code}", unit, with_code], check=True)
    report = check_file(with_code, place("9.0"))
    assert report.verdict is Outcome.UNKNOWN
    assert "once it is linked" in next(e.seen for e in report.evidence if e.topic == "architectures")


def test_a_backend_that_does_not_fit_does_not_matter_beside_one_that_does(tmp_path: Path) -> None:
    forge.shared_library(tmp_path, "void g(void) {}", "-Wl,-soname,libnowhere.so.11", name="libnowhere.so")
    source = "void g(void); void f(void) { g(); }"
    old = forge.shared_library(tmp_path, source, f"-L{tmp_path}", "-lnowhere", name="libkernels_cuda118.so")
    new = forge.shared_library(tmp_path, "void f(void) {}", name="libkernels_cuda126.so")
    here = place(python=(3, 11))
    both = {f"kernels/{path.name}": path.read_bytes() for path in (old, new)}
    assert check_file(forge.wheel(tmp_path, both), here).verdict is Outcome.FITS
    alone = {"kernels/libkernels_cuda118.so": old.read_bytes()}
    assert check_file(forge.wheel(tmp_path, alone), here).verdict is Outcome.MISFIT


@pytest.mark.parametrize("torch", ["2.99", "1.13"])
def test_a_torch_that_the_table_does_not_reach_cannot_be_told(tmp_path: Path, torch: str) -> None:
    report = check_file(extension(tmp_path, SET_DEVICE_2_8), place(torch=torch))
    assert report.verdict is Outcome.UNKNOWN


def test_a_python_without_torch_does_not_fit_what_needs_one(tmp_path: Path) -> None:
    assert interpreter(3, 11).torch is None
    path = extension(tmp_path, SET_DEVICE_2_8, gpu=forge.fatbin(forge.entry(forge.SASS, 90)))
    assert check_file(path, place("9.0", python=(3, 11))).verdict is not Outcome.FITS


@pytest.mark.parametrize(
    ("function", "named", "verdict"),
    [
        ("ncclCommInitRank", True, Outcome.FITS),
        ("ncclCommWindowRegister", True, Outcome.MISFIT),
        ("ncclCommWindowRegister", False, Outcome.MISFIT),
    ],
)
def test_functions_of_nccl_are_looked_for_as_the_loader_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, named: bool, verdict: Outcome
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "lib"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "newer").mkdir()
    soname = "-Wl,-soname,libnccl.so.2"
    forge.shared_library(tmp_path / "lib", "void ncclCommInitRank(void) {}", soname, name="libnccl.so.2")
    forge.shared_library(tmp_path / "newer", f"void {function}(void) {{}}", soname, name="libnccl.so")
    source = f"void {function}(void); void f(void) {{ {function}(); }}"
    path = forge.shared_library(tmp_path, source, *([f"-L{tmp_path / 'newer'}", "-lnccl"] if named else []))
    lines = [line for line in check_file(path, place(python=(3, 11))).evidence if line.topic == "CUDA symbols"]
    assert [line.outcome for line in lines] == [verdict]
    assert verdict is Outcome.FITS or function in lines[0].has
