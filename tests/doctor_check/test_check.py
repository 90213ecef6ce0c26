"""Whether a file fits a place: what its bytes say, compared with a machine, a driver, a Python and a torch."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from places import (
    ERROR_NEW_ABI,
    ERROR_OLD_ABI,
    SET_DEVICE_2_3,
    SET_DEVICE_2_8,
    extension,
    lines,
    machine,
    needing,
    place,
)

from flashdepot import api
from flashdepot.api.answers import place_of
from flashdepot.binary.fatbin import CodeKind, GpuCode
from flashdepot.binary.window import FileKind
from flashdepot.diagnose.check.judge import Outcome, judge_architectures, judge_floors
from flashdepot.diagnose.check.place import built_for
from flashdepot.diagnose.check.run import check_file
from flashdepot.diagnose.check.subject import Binary
from flashdepot.model.environment import Torch
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Architecture, Version
from flashdepot.resolve.facts import NamedFacts
from support import forge
from support.toolkits import make_python

NOTE, FITS, UNKNOWN, MISFIT, DAMAGED = Outcome
Make = Callable[[Path], Path]

SASS_80, SASS_90 = forge.entry(forge.SASS, 80), forge.entry(forge.SASS, 90)
SASS_90A = forge.entry(forge.SASS, 90, 0x11 | forge.EXACT)
PTX_80 = forge.entry(forge.PTX, 80, header=80)
PTX_87 = forge.entry(forge.PTX, 80, header=80, version=(8, 7))
GPU_CODE = forge.fatbin(SASS_80, PTX_80)
UNKNOWN_SYMBOL = "_ZN2at99nobody_knowsEv"
MUSL = machine(libc=None, libc_name="musl")


def code(*entries: bytes) -> Make:
    return lambda folder: forge.library_with_gpu_code(folder, forge.fatbin(*entries))


def written_by(abi: int, compression: int = 0) -> Make:
    gpu = forge.fatbin(forge.entry(forge.SASS, 90, 0x11 | compression, version=(1, abi)))
    return lambda folder: extension(folder, gpu=gpu)


def takes(*symbols: str, gpu: bytes = b"") -> Make:
    return lambda folder: extension(folder, *symbols, gpu=gpu)


def wheel(tag: str, **words: Any) -> Make:
    return lambda folder: forge.wheel(folder, {"flash_attn/__init__.py": b""}, tag=tag, **words)


def of_glibc(folder: Path) -> Path:
    return forge.shared_library(folder, '#include <stdio.h>\nvoid f(void) { puts("x"); }')


def named_for_cuda_12(folder: Path) -> Path:
    files = {"flash_attn_2_cuda.so": written_by(7)(folder).read_bytes()}
    return forge.wheel(folder, files, version="2.8.3+cu12torch2.9cxx11abiTRUE", metadata_version="2.8.3")


GPU_CASES = [
    (code(SASS_80), {"gpu": "8.6"}, FITS),
    (code(SASS_80), {"gpu": "9.0"}, MISFIT),
    (code(SASS_90A), {"gpu": "9.0"}, FITS),
    (code(SASS_90A), {"gpu": "12.0"}, MISFIT),
    (code(PTX_80), {"gpu": "12.0"}, FITS),
]
"""The architectures decide, by GPU."""
DRIVER_CASES = [
    (code(PTX_87), {"driver": "560.28.03"}, MISFIT),
    (code(PTX_87), {"driver": "570.26"}, FITS),
    (code(PTX_87), {"driver": None}, FITS),
    (code(forge.entry(forge.PTX, 80, header=80, version=(99, 0))), {"driver": "560.28.03"}, FITS),
    (
        code(forge.entry(forge.SASS, 90, version=(1, 7)), forge.entry(forge.PTX, 90, version=(8, 7))),
        {"driver": "560.28.03"},
        FITS,
    ),
    (written_by(7, forge.ZSTD), {"driver": "535.54.03"}, MISFIT),
    (written_by(7, forge.ZSTD), {"driver": "550.54.14"}, FITS),
    (written_by(7), {"driver": "535.1"}, FITS),
    (written_by(8), {"driver": "570.1"}, MISFIT),
    (written_by(8, forge.ZSTD), {"driver": "570.1"}, MISFIT),
    (written_by(8, forge.ZSTD), {"driver": "580.1"}, FITS),
    (needing("libcudart.so.13"), {"driver": "570.1"}, MISFIT),
    (needing("libcudart.so.12"), {"driver": "470.1"}, MISFIT),
    (needing("libcudart.so.12"), {"driver": "535.1"}, FITS),
    (named_for_cuda_12, {"driver": "470.1", "python": (3, 11)}, MISFIT),
    (named_for_cuda_12, {"driver": "535.1", "python": (3, 11)}, FITS),
]
"""The driver must know the PTX, the compression, and the CUDA that wrote the code, as bytes or the name say."""
TORCH_CASES = [
    *((code(SASS_80, PTX_80), {"gpu": "8.6", "torch": torch}, FITS) for torch in (None, "2.0", "2.6+cu124", "2.11")),
    (takes(SET_DEVICE_2_3), {"torch": "2.7"}, FITS),
    (takes(SET_DEVICE_2_3), {"torch": "2.8"}, MISFIT),
    (takes(SET_DEVICE_2_8), {"torch": "2.7"}, MISFIT),
    (takes(SET_DEVICE_2_8), {"torch": "2.10"}, FITS),
    (takes(ERROR_OLD_ABI), {"torch": "2.8"}, MISFIT),
    (takes(ERROR_NEW_ABI), {"torch": "2.6+cu124"}, MISFIT),
    (takes(SET_DEVICE_2_8), {"torch": None}, UNKNOWN),
    (takes(UNKNOWN_SYMBOL), {"torch": "2.8"}, UNKNOWN),
    (takes(SET_DEVICE_2_8), {"torch": "2.99"}, UNKNOWN),
    (takes(SET_DEVICE_2_8), {"torch": "1.13"}, UNKNOWN),
    *(
        (takes(SET_DEVICE_2_8, gpu=forge.fatbin(SASS_90)), {"gpu": "9.0", "torch": f"2.11.0+{build}"}, verdict)
        for build, verdict in (("cpu", MISFIT), ("rocm6.4", MISFIT), ("cu128", FITS))
    ),
    (takes(SET_DEVICE_2_8, gpu=forge.fatbin(SASS_90)), {"gpu": "9.0", "python": (3, 11)}, UNKNOWN),
]
"""An extension is for the torch whose symbols it takes, with CUDA; a library without torch is for any."""
SYSTEM_CASES = [
    (needing("libc.musl-x86_64.so.1", "-nostdlib"), {"host": machine(libc_name="glibc")}, MISFIT),
    (needing("libc.musl-x86_64.so.1", "-nostdlib"), {"host": MUSL}, FITS),
    (needing("libc.musl-x86_64.so.1", "-nostdlib"), {"host": machine(libc=None)}, UNKNOWN),
    (of_glibc, {"host": MUSL}, MISFIT),
    (of_glibc, {"host": machine("linux-aarch64")}, MISFIT),
    (of_glibc, {"host": machine("windows-x86_64", None)}, MISFIT),
    (of_glibc, {"host": machine(libc="2.1")}, MISFIT),
    (needing("libnowhere.so.4"), {"python": (3, 11)}, MISFIT),
]
TAG_CASES = [
    *(
        (wheel(f"cp311-cp311-{tag}"), {"host": MUSL, "python": (3, 11)}, verdict)
        for tag, verdict in (
            ("musllinux_1_2_x86_64", FITS),
            ("musllinux_1_2_aarch64", MISFIT),
            ("manylinux_2_28_x86_64", MISFIT),
            ("linux_x86_64", FITS),
        )
    ),
    *(
        (wheel(tag), {"python": python}, verdict)
        for tag, python, verdict in (
            ("cp311-cp311-musllinux_1_2_x86_64", (3, 11), MISFIT),
            ("cp311-cp311-manylinux_2_28_x86_64", (3, 11), FITS),
            ("cp311-cp311-manylinux_2_28_x86_64", (3, 12), MISFIT),
            ("cp39-abi3-manylinux2014_x86_64", (3, 12), FITS),
            ("py3-none-any", (3, 12), FITS),
            ("cp311-cp311-manylinux_2_39_x86_64", (3, 11), MISFIT),
            ("cp311-cp311-linux_aarch64", (3, 11), MISFIT),
            ("cp311-cp311-win_amd64", (3, 11), MISFIT),
        )
    ),
    *(
        (wheel("py3-none-any", requires_python=required), {"python": python}, verdict)
        for required, python, verdict in (
            (">=3.13", (3, 11), MISFIT),
            (">=3.9", (3, 11), FITS),
            (">=3.10,<4", (3, 9), MISFIT),
            ("three", (3, 11), UNKNOWN),
        )
    ),
]
"""The tags decide by Python, platform and C library, and METADATA's Requires-Python counts."""


@pytest.mark.parametrize(
    ("make", "where", "verdict"), [*GPU_CASES, *DRIVER_CASES, *TORCH_CASES, *SYSTEM_CASES, *TAG_CASES]
)
def test_a_file_fits_a_place_or_does_not(tmp_path, make, where, verdict) -> None:
    words = dict(where)
    gpus = [words.pop("gpu")] if "gpu" in words else []
    if "driver" in words:
        gpus, words["host"], words["is_here"] = ["9.0"], machine(driver=words.pop("driver")), False
        words.setdefault("torch", "2.9.0+cu128")
    report = check_file(make(tmp_path), place(*gpus, **words))
    assert report.verdict is verdict, report.evidence
    if "driver" in where:
        assert {line.topic for line in report.evidence if line.outcome is MISFIT} <= {"driver"}


@pytest.mark.parametrize(
    ("make", "where", "topic", "seen", "has", "fix"),
    [
        (code(SASS_80), place("9.0"), "architectures", "SASS sm_80", "GPU 9.0", "flashdepot wheel --arch 90"),
        (
            takes(SET_DEVICE_2_3),
            place(torch="2.8"),
            "torch symbols",
            "built for torch 2.3 to 2.7",
            f"torch 2.8 lacks 1: {SET_DEVICE_2_3}",
            "Take the build for torch 2.8, or use torch 2.3 to 2.7.",
        ),
        (of_glibc, place(host=machine("linux-aarch64")), "platform", "x86_64", "aarch64", ""),
        (of_glibc, place(host=machine(libc="2.1")), "libc", "GLIBC_", "GNU libc 2.1", ""),
        (of_glibc, place(host=MUSL), "libc", "GLIBC_", "the musl C library", ""),
        (
            needing("libnowhere.so.4"),
            place(python=(3, 11)),
            "libraries",
            "libnowhere.so.4",
            "not next to torch",
            "Install the package that has libnowhere.so.4.",
        ),
    ],
)
def test_the_line_that_decides_names_both_sides(tmp_path, make, where, topic, seen, has, fix) -> None:
    report = check_file(make(tmp_path), where)
    (line,) = (line for line in report.evidence if line.outcome is MISFIT)
    assert line.topic == topic
    assert seen in line.seen
    assert has in line.has
    assert fix in line.fix


def test_a_wheel_fits_when_one_of_its_files_has_code_for_the_gpu(tmp_path) -> None:
    files = {}
    for number in (80, 90):
        gpu = forge.fatbin(forge.entry(forge.SASS, number))
        path = forge.library_with_gpu_code(tmp_path, gpu, name=f"s{number}.so")
        files[f"flash_attn/s{number}.so"] = path.read_bytes()
    report = check_file(forge.wheel(tmp_path, files), place("9.0", python=(3, 11)))
    assert report.verdict is FITS
    assert [line.outcome for line in lines(report, "architectures")] == [FITS, NOTE]


def binary(*groups: tuple[tuple[str, ...], int]) -> Binary:
    containers = tuple(
        (frozenset(GpuCode(CodeKind.SASS, Architecture.parse(s), "") for s in sass), count) for sass, count in groups
    )
    return Binary("_C.so", FileKind.ELF_SHARED, frozenset({"x86_64"}), containers=containers)


@pytest.mark.parametrize(
    ("groups", "outcome"),
    [
        ([(("80", "90"), 72)], FITS),
        ([(("80",), 70), (("80", "90"), 2)], MISFIT),
        ([(("80", "90"), 70), (("80",), 2)], UNKNOWN),
        ([(("80",), 72)], MISFIT),
    ],
)
def test_code_in_a_few_helpers_does_not_count_for_the_kernels(groups, outcome) -> None:
    (line,) = judge_architectures([binary(*groups)], place("9.0"))
    assert line.outcome is outcome
    assert bool(line.fix) == (outcome is not FITS)


def test_no_gpu_at_all_is_said_and_does_not_fit() -> None:
    (line,) = judge_architectures([binary((("90",), 3))], place())
    assert (line.outcome, line.fix) == (UNKNOWN, "Name the GPU that it is for: --gpu 9.0")


def test_relocatable_device_code_is_not_taken_for_code_that_runs(tmp_path) -> None:
    gpu = tmp_path / "code.bin"
    gpu.write_bytes(forge.fatbin(forge.entry(forge.PTX, 80)))
    unit = forge.object_file(tmp_path, "void f(void) {}")
    with_code = tmp_path / "rdc.o"
    subprocess.run(["objcopy", f"--add-section=__nv_relfatbin={gpu}", unit, with_code], check=True)
    report = check_file(with_code, place("9.0"))
    assert report.verdict is UNKNOWN
    assert "once it is linked" in lines(report, "architectures")[0].seen


def test_a_symbol_that_another_file_of_the_wheel_offers_is_not_asked_of_torch(tmp_path) -> None:
    taker = extension(tmp_path, SET_DEVICE_2_3, name="taker.so")
    giver = forge.shared_library(tmp_path, f"void {SET_DEVICE_2_3}(void) {{}}", name="giver.so")
    files = {f"flash_attn/{path.name}": path.read_bytes() for path in (taker, giver)}
    assert check_file(forge.wheel(tmp_path, files), place(torch="2.8", python=(3, 11))).verdict is FITS


@pytest.mark.parametrize(
    ("symbols", "span"),
    [
        ([SET_DEVICE_2_3], "2.3 to 2.7"),
        ([SET_DEVICE_2_8], "2.8 or newer"),
        ([SET_DEVICE_2_8, "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"], "2.8 to 2.9"),
        (["_ZN2at4_ops5zeros4callEN3c108optionalIlEE"], "2.1 or older"),
        ([SET_DEVICE_2_3, SET_DEVICE_2_8], ""),
        (["_ZN3c104cuda20CUDACachingAllocator9allocatorE"], ""),
    ],
)
def test_symbols_together_narrow_the_versions(symbols, span) -> None:
    assert built_for(frozenset(symbols)) == span


@pytest.mark.parametrize(
    ("needs", "misfits"),
    [("GLIBCXX_3.4.30", 0), ("GLIBCXX_3.4.32", 1), ("CXXABI_1.3.13", 0), ("CXXABI_1.3.15", 1)],
)
def test_the_libstdcxx_of_a_saved_record_is_compared(needs, misfits) -> None:
    record = HostRecord.from_json(machine(cxx=("3.4.30", "1.3.13")).to_json())
    library = Binary("_C.so", FileKind.ELF_SHARED, frozenset({"x86_64"}), version_needs=(needs, "CXXABI_FLOAT128"))
    (line,) = judge_floors(library, place(host=record, is_here=False))
    assert (line.outcome is MISFIT) == bool(misfits)


@pytest.mark.parametrize(("torch", "outcome"), [("2.8+cu128", FITS), ("2.9+cu130", MISFIT), ("2.9", NOTE)])
def test_the_cuda_runtime_must_be_the_one_that_torch_brings(tmp_path, torch, outcome) -> None:
    path = needing("libcudart.so.12", takes=SET_DEVICE_2_8)(tmp_path)
    report = check_file(path, place(torch=torch, is_here=False))
    assert [line.outcome for line in lines(report, "libraries") if line.seen == "libcudart.so.12"] == [outcome]


@pytest.mark.parametrize(
    ("function", "named", "verdict"),
    [
        ("ncclCommInitRank", True, FITS),
        ("ncclCommWindowRegister", True, MISFIT),
        ("ncclCommWindowRegister", False, MISFIT),
    ],
)
def test_functions_of_nccl_are_looked_for_as_the_loader_does(tmp_path, monkeypatch, function, named, verdict) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "lib"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "newer").mkdir()
    soname = "-Wl,-soname,libnccl.so.2"
    forge.shared_library(tmp_path / "lib", "void ncclCommInitRank(void) {}", soname, name="libnccl.so.2")
    forge.shared_library(tmp_path / "newer", f"void {function}(void) {{}}", soname, name="libnccl.so")
    source = f"void {function}(void); void f(void) {{ {function}(); }}"
    path = forge.shared_library(tmp_path, source, *([f"-L{tmp_path / 'newer'}", "-lnccl"] if named else []))
    found = lines(check_file(path, place(python=(3, 11))), "CUDA symbols")
    assert [line.outcome for line in found] == [verdict]
    assert verdict is FITS or function in found[0].has


def test_the_python_and_torch_of_a_record_are_asked(tmp_path) -> None:
    python = replace(make_python(12), torch=Torch.parse("2.9.1+cu128"))
    record = replace(machine(driver="580.1"), python=python)
    report = api.check([wheel("cp311-cp311-linux_x86_64")(tmp_path)], host=record)[0]
    assert report.verdict is MISFIT
    assert "Python 3.12" in lines(report, "tags")[0].has
    assert json.dumps(report.to_json())
    assert Version("2.9") <= place_of(None, NamedFacts(), record)[0].torch.torch.release  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("named", "verdict"),
    [
        (NamedFacts(python_tag="3.11"), FITS),
        (NamedFacts(python_tag="3.12"), MISFIT),
        (NamedFacts(python_tag="3.8"), MISFIT),
        (NamedFacts(torch="none"), MISFIT),
        (NamedFacts(torch="2.9+rocm6.4"), MISFIT),
        (NamedFacts(torch="2.8.0+cpu"), MISFIT),
    ],
)
def test_what_is_named_counts_and_not_what_the_record_has(tmp_path, named, verdict) -> None:
    gpu = forge.library_with_gpu_code(tmp_path, GPU_CODE).read_bytes()
    files = {"pkg/__init__.py": b"import torch\nfrom . import _C\n", "pkg/_C.cpython-311-x86_64-linux-gnu.so": gpu}
    packed = forge.wheel(tmp_path, files, tag="py3-none-any", requires_python=">=3.9,<3.13")
    python = replace(make_python(11 if named.torch else 12), torch=Torch.parse("2.8.0+cu128"))
    record = replace(machine(driver="580.1"), python=python)
    (report,) = api.check(packed, host=record, named=replace(named, gpu=("8.0",)))
    assert report.verdict is verdict, report.evidence
