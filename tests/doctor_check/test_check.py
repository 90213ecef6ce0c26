from __future__ import annotations

from pathlib import Path

import places
import pytest
from places import ERROR_NEW_ABI, ERROR_OLD_ABI, SET_DEVICE_2_3, SET_DEVICE_2_8, lines, machine, place

from flashdepot.binary.window import FileKind
from flashdepot.diagnose.check import Outcome, check_file
from flashdepot.diagnose.check.judge import judge_floors
from flashdepot.diagnose.check.place import TabledTorch, built_for
from flashdepot.diagnose.check.subject import Binary
from flashdepot.errors import UsageError
from flashdepot.model.environment import Torch
from flashdepot.model.host import HostRecord
from support import forge

GPU_CODE = forge.fatbin(forge.entry(forge.SASS, 80), forge.entry(forge.PTX, 80, header=80))


@pytest.mark.parametrize("torch", [None, "2.0", "2.6+cu124", "2.11"])
def test_a_library_without_torch_fits_beside_any_torch(tmp_path: Path, torch: str | None) -> None:
    library = forge.library_with_gpu_code(tmp_path, GPU_CODE)
    assert check_file(library, place("8.6", torch=torch)).verdict is Outcome.FITS


@pytest.mark.parametrize(
    ("codes", "gpu", "verdict"),
    [
        ([forge.entry(forge.SASS, 80)], "8.6", Outcome.FITS),
        ([forge.entry(forge.SASS, 80)], "9.0", Outcome.MISFIT),
        ([forge.entry(forge.SASS, 90, 0x11 | forge.EXACT)], "9.0", Outcome.FITS),
        ([forge.entry(forge.SASS, 90, 0x11 | forge.EXACT)], "12.0", Outcome.MISFIT),
        ([forge.entry(forge.PTX, 80, header=80)], "12.0", Outcome.FITS),
    ],
)
def test_the_architectures_decide_by_gpu(tmp_path: Path, codes: list[bytes], gpu: str, verdict: Outcome) -> None:
    report = check_file(forge.library_with_gpu_code(tmp_path, forge.fatbin(*codes)), place(gpu))
    assert report.verdict is verdict
    assert f"GPU {gpu}" in lines(report, "architectures")[0].has


@pytest.mark.parametrize(
    ("codes", "driver", "verdict"),
    [
        ([forge.entry(forge.PTX, 80, header=80, version=(8, 7))], "560.28.03", Outcome.MISFIT),
        ([forge.entry(forge.PTX, 80, header=80, version=(8, 7))], "570.26", Outcome.FITS),
        ([forge.entry(forge.PTX, 80, header=80, version=(99, 0))], "560.28.03", Outcome.FITS),
        (
            [forge.entry(forge.SASS, 90, version=(1, 7)), forge.entry(forge.PTX, 90, version=(8, 7))],
            "560.28.03",
            Outcome.FITS,
        ),
        ([forge.entry(forge.SASS, 90, 0x11 | forge.ZSTD, version=(1, 7))], "535.54.03", Outcome.MISFIT),
        ([forge.entry(forge.SASS, 90, 0x11 | forge.ZSTD, version=(1, 7))], "550.54.14", Outcome.FITS),
        ([forge.entry(forge.PTX, 80, header=80, version=(8, 7))], None, Outcome.FITS),
    ],
)
def test_the_driver_must_know_the_ptx_and_the_compression(
    tmp_path: Path, codes: list[bytes], driver: str | None, verdict: Outcome
) -> None:
    library = forge.library_with_gpu_code(tmp_path, forge.fatbin(*codes))
    report = check_file(library, place("9.0", host=machine(driver=driver)))
    assert report.verdict is verdict
    assert [line.topic for line in report.evidence if line.outcome is Outcome.MISFIT] in ([], ["driver"])


def test_a_wheel_fits_when_one_of_its_files_has_code_for_the_gpu(tmp_path: Path) -> None:
    files = {}
    for number in (80, 90):
        path = forge.library_with_gpu_code(
            tmp_path, forge.fatbin(forge.entry(forge.SASS, number)), name=f"s{number}.so"
        )
        files[f"flash_attn/s{number}.so"] = path.read_bytes()
    report = check_file(forge.wheel(tmp_path, files), place("9.0", python=(3, 11)))
    assert report.verdict is Outcome.FITS
    assert [line.outcome for line in lines(report, "architectures")] == [Outcome.FITS, Outcome.NOTE]


@pytest.mark.parametrize(
    ("symbol", "torch", "verdict"),
    [
        (SET_DEVICE_2_3, "2.7", Outcome.FITS),
        (SET_DEVICE_2_3, "2.8", Outcome.MISFIT),
        (SET_DEVICE_2_8, "2.7", Outcome.MISFIT),
        (SET_DEVICE_2_8, "2.10", Outcome.FITS),
        (ERROR_OLD_ABI, "2.8", Outcome.MISFIT),
        (ERROR_NEW_ABI, "2.6+cu124", Outcome.MISFIT),
        (SET_DEVICE_2_8, None, Outcome.UNKNOWN),
        ("_ZN2at99nobody_knowsEv", "2.8", Outcome.UNKNOWN),
    ],
)
def test_the_table_tells_which_torch_an_extension_was_built_for(
    tmp_path: Path, symbol: str, torch: str | None, verdict: Outcome
) -> None:
    assert check_file(places.extension(tmp_path, symbol), place(torch=torch)).verdict is verdict


def test_both_versions_are_named_when_torch_does_not_fit(tmp_path: Path) -> None:
    report = check_file(places.extension(tmp_path, SET_DEVICE_2_3), place(torch="2.8"))
    (line,) = lines(report, "torch symbols")
    assert "built for torch 2.3 to 2.7" in line.seen
    assert line.has == f"torch 2.8 lacks 1: {SET_DEVICE_2_3}"
    assert line.fix == "Take the build for torch 2.8, or use torch 2.3 to 2.7."


def test_a_symbol_that_another_file_of_the_wheel_offers_is_not_asked_of_torch(tmp_path: Path) -> None:
    taker = places.extension(tmp_path, SET_DEVICE_2_3, name="taker.so")
    giver = forge.shared_library(tmp_path, f"void {SET_DEVICE_2_3}(void) {{}}", name="giver.so")
    files = {f"flash_attn/{path.name}": path.read_bytes() for path in (taker, giver)}
    assert check_file(forge.wheel(tmp_path, files), place(torch="2.8", python=(3, 11))).verdict is Outcome.FITS


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
def test_symbols_together_narrow_the_versions(symbols: list[str], span: str) -> None:
    assert built_for(frozenset(symbols)) == span


@pytest.mark.parametrize("text", ["2", "new"])
def test_what_is_no_version_of_torch_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        TabledTorch(Torch.parse(text), "x86_64")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (forge.LFS_POINTER, "Git LFS pointer for 4828304 bytes with SHA-256 abab"),
        (b"", "empty"),
        (b"<html>404</html>", "web page"),
        (b"!<thin>\n", "thin archive"),
        (b"\x1f\x8b\x08\x00 a tarball", "begins with 1f 8b 08 00"),
    ],
)
def test_what_stands_in_for_a_library_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "libflashattention.so"
    path.write_bytes(content)
    report = check_file(path, place())
    assert report.verdict is Outcome.DAMAGED
    assert said in report.evidence[0].seen
    assert report.evidence[0].fix


def test_a_pointer_inside_a_static_library_or_a_wheel_is_found(tmp_path: Path) -> None:
    pointer = tmp_path / "unit.o"
    pointer.write_bytes(forge.LFS_POINTER)
    wheel = forge.wheel(tmp_path, {"flash_attn/_C.so": forge.LFS_POINTER})
    for path, where in ((forge.archive(tmp_path, pointer), "lib.a(unit.o)"), (wheel, "flash_attn/_C.so")):
        report = check_file(path, place())
        assert report.verdict is Outcome.DAMAGED
        assert f"{where} is a Git LFS pointer" in report.evidence[0].seen


@pytest.mark.parametrize(
    ("host", "topic"),
    [
        (machine("linux-aarch64"), "platform"),
        (machine("windows-x86_64", None), "platform"),
        (machine(libc="2.1"), "libc"),
    ],
)
def test_another_platform_or_an_older_libc_does_not_fit(tmp_path: Path, host: object, topic: str) -> None:
    library = forge.shared_library(tmp_path, '#include <stdio.h>\nvoid f(void) { puts("x"); }')
    report = check_file(library, place(host=host))  # type: ignore[arg-type]
    assert [line.topic for line in report.evidence if line.outcome is Outcome.MISFIT] == [topic]


@pytest.mark.parametrize(
    ("needs", "cxx", "misfits"),
    [
        ("GLIBCXX_3.4.30", ("3.4.30", "1.3.13"), 0),
        ("GLIBCXX_3.4.32", ("3.4.30", "1.3.13"), 1),
        ("CXXABI_1.3.13", ("3.4.30", "1.3.13"), 0),
        ("CXXABI_1.3.15", ("3.4.30", "1.3.13"), 1),
    ],
)
def test_the_libstdcxx_of_a_saved_record_is_compared(needs: str, cxx: tuple[str, str], misfits: int) -> None:
    record = HostRecord.from_json(machine(cxx=cxx).to_json())
    binary = Binary("_C.so", FileKind.ELF_SHARED, frozenset({"x86_64"}), version_needs=(needs, "CXXABI_FLOAT128"))
    found = judge_floors(binary, place(host=record, is_here=False))
    assert [line.outcome for line in found].count(Outcome.MISFIT) == misfits
    assert len(found) == 1


@pytest.mark.parametrize(
    ("libc", "libc_name", "verdict"),
    [("2.36", "glibc", Outcome.MISFIT), (None, "musl", Outcome.FITS), (None, None, Outcome.UNKNOWN)],
)
def test_a_library_made_for_musl_fits_musl_alone(
    tmp_path: Path, libc: str | None, libc_name: str | None, verdict: Outcome
) -> None:
    forge.shared_library(tmp_path, "void g(void) {}", "-Wl,-soname,libc.musl-x86_64.so.1", name="libmusl.so")
    source = "extern void g(void); void f(void) { g(); }"
    library = forge.shared_library(tmp_path, source, "-nostdlib", f"-L{tmp_path}", "-lmusl")
    report = check_file(library, place(host=machine(libc=libc, libc_name=libc_name)))
    assert report.verdict is verdict


def test_a_library_made_for_the_gnu_c_library_does_not_fit_musl(tmp_path: Path) -> None:
    library = forge.shared_library(tmp_path, '#include <stdio.h>\nvoid f(void) { puts("x"); }')
    report = check_file(library, place(host=machine(libc=None, libc_name="musl")))
    (line,) = lines(report, "libc")
    assert (line.outcome, line.has) == (Outcome.MISFIT, "the musl C library")


@pytest.mark.parametrize(
    ("tag", "verdict"),
    [
        ("musllinux_1_2_x86_64", Outcome.FITS),
        ("musllinux_1_2_aarch64", Outcome.MISFIT),
        ("manylinux_2_28_x86_64", Outcome.MISFIT),
        ("linux_x86_64", Outcome.FITS),
    ],
)
def test_the_tags_of_a_wheel_name_the_c_library(tmp_path: Path, tag: str, verdict: Outcome) -> None:
    wheel = forge.wheel(tmp_path, {"flash_attn/__init__.py": b""}, tag=f"cp311-cp311-{tag}")
    musl = place(host=machine(libc=None, libc_name="musl"), python=(3, 11))
    assert check_file(wheel, musl).verdict is verdict
    if "musllinux" in tag:
        assert check_file(wheel, place(python=(3, 11))).verdict is Outcome.MISFIT


def test_a_windows_extension_is_judged_by_the_dlls_it_imports(tmp_path: Path) -> None:
    path = tmp_path / "_C.cp311-win_amd64.pyd"
    path.write_bytes(
        forge.windows_library(imports={"torch_cuda.dll": ["?f@@YAXXZ"], "KERNEL32.dll": ["c"]}, gpu=GPU_CODE)
    )
    windows = machine("windows-x86_64", None)
    report = check_file(path, place("8.0", host=windows, python=(3, 12), is_here=False))
    assert report.verdict is Outcome.MISFIT
    assert lines(report, "python")[0].fix == "Take the build for Python 3.12."
    assert lines(report, "torch")[0].outcome is Outcome.UNKNOWN
    assert lines(report, "architectures")[0].outcome is Outcome.FITS


@pytest.mark.parametrize(
    ("tag", "python", "verdict"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", (3, 11), Outcome.FITS),
        ("cp311-cp311-manylinux_2_28_x86_64", (3, 12), Outcome.MISFIT),
        ("cp39-abi3-manylinux2014_x86_64", (3, 12), Outcome.FITS),
        ("py3-none-any", (3, 12), Outcome.FITS),
        ("cp311-cp311-manylinux_2_39_x86_64", (3, 11), Outcome.MISFIT),
        ("cp311-cp311-linux_aarch64", (3, 11), Outcome.MISFIT),
        ("cp311-cp311-win_amd64", (3, 11), Outcome.MISFIT),
    ],
)
def test_the_tags_of_a_wheel_decide_by_python_and_platform(
    tmp_path: Path, tag: str, python: tuple[int, int], verdict: Outcome
) -> None:
    report = check_file(forge.wheel(tmp_path, {"flash_attn/__init__.py": b""}, tag=tag), place(python=python))
    assert report.verdict is verdict


def test_a_static_library_and_an_object_are_checked_too(tmp_path: Path) -> None:
    source = f"extern void {SET_DEVICE_2_3}(void); void f(void) {{ {SET_DEVICE_2_3}(); }}"
    unit = forge.object_file(tmp_path, source)
    for path in (unit, forge.archive(tmp_path, unit)):
        assert check_file(path, place(torch="2.8")).verdict is Outcome.MISFIT
        assert check_file(path, place(torch="2.4")).verdict is Outcome.FITS


def test_an_object_and_a_static_library_for_windows_are_read_and_do_not_fit_linux(tmp_path: Path) -> None:
    unit = forge.windows_object(tmp_path, forge.fatbin(forge.entry(forge.SASS, 90)))
    for path, what in ((unit, "COFF object"), (forge.archive(tmp_path, unit, name="fa.lib"), "Windows static library")):
        lines = {line.topic: line for line in check_file(path, place("90")).evidence}
        assert (lines["platform"].outcome, lines["platform"].seen) == (Outcome.MISFIT, f"{what} for x86_64")
        assert (lines["architectures"].outcome, lines["architectures"].seen) == (Outcome.FITS, "SASS sm_90; PTX none")
    library = tmp_path / "fa.lib"
    for path, name in ((unit, b"/4"), (library, b"unit.obj/ ")):
        # A superscript is a digit to Python, and no number.
        path.write_bytes(path.read_bytes().replace(name, b"/\xb2".ljust(len(name)), 1))
        assert check_file(path, place("90")).verdict is Outcome.MISFIT
    unit.write_bytes(unit.read_bytes()[:90])
    assert check_file(unit, place()).verdict is Outcome.DAMAGED


@pytest.mark.parametrize(
    ("needed", "torch", "outcome"),
    [("12", "2.8+cu128", Outcome.FITS), ("12", "2.9+cu130", Outcome.MISFIT), ("12", "2.9", Outcome.NOTE)],
)
def test_the_cuda_runtime_must_be_the_one_that_torch_brings(
    tmp_path: Path, needed: str, torch: str, outcome: Outcome
) -> None:
    name = f"libcudart.so.{needed}"
    forge.shared_library(tmp_path, "void cuda(void) {}", f"-Wl,-soname,{name}", name="libcudart.so")
    source = (
        f"extern void cuda(void); extern void {SET_DEVICE_2_8}(void); void f(void) {{ cuda(); {SET_DEVICE_2_8}(); }}"
    )
    path = forge.shared_library(tmp_path, source, f"-L{tmp_path}", "-lcudart")
    report = check_file(path, place(torch=torch, is_here=False))
    assert [line.outcome for line in lines(report, "libraries") if line.seen == name] == [outcome]


def test_a_library_that_is_nowhere_is_named(tmp_path: Path) -> None:
    forge.shared_library(tmp_path, "void g(void) {}", "-Wl,-soname,libnowhere.so.4", name="libnowhere.so")
    path = forge.shared_library(tmp_path, "void g(void); void f(void) { g(); }", f"-L{tmp_path}", "-lnowhere")
    report = check_file(path, place(python=(3, 11)))
    assert report.verdict is Outcome.MISFIT
    assert report.evidence[0].fix == "Install the package that has libnowhere.so.4."
