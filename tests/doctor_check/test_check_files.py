"""Files of every kind, and wheels with several of them: what each is called, and whether it fits."""

import io
import struct
import tarfile
import zipfile
from collections.abc import Mapping

import pytest
from places import SET_DEVICE_2_3, lines, machine, needing, place

from flashdepot.diagnose.check.judge import Outcome
from flashdepot.diagnose.check.run import check_file
from support import forge

NOTE, FITS, UNKNOWN, MISFIT, DAMAGED = Outcome


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
def test_what_stands_in_for_a_library_is_named(tmp_path, content, said) -> None:
    path = tmp_path / "libflashattention.so"
    path.write_bytes(content)
    report = check_file(path, place())
    assert report.verdict is DAMAGED
    assert said in report.evidence[0].seen
    assert report.evidence[0].fix


def test_a_pointer_inside_a_static_library_or_a_wheel_is_found(tmp_path) -> None:
    pointer = tmp_path / "unit.o"
    pointer.write_bytes(forge.LFS_POINTER)
    packed = forge.wheel(tmp_path, {"flash_attn/_C.so": forge.LFS_POINTER})
    for path, where in ((forge.archive(tmp_path, pointer), "lib.a(unit.o)"), (packed, "flash_attn/_C.so")):
        report = check_file(path, place())
        assert report.verdict is DAMAGED
        assert f"{where} is a Git LFS pointer" in report.evidence[0].seen


def test_a_windows_extension_is_judged_by_the_dlls_it_imports(tmp_path) -> None:
    path = tmp_path / "_C.cp311-win_amd64.pyd"
    imports = {"torch_cuda.dll": ["?f@@YAXXZ"], "KERNEL32.dll": ["c"]}
    path.write_bytes(
        forge.windows_library(
            imports=imports, gpu=forge.fatbin(forge.entry(forge.SASS, 80), forge.entry(forge.PTX, 80, header=80))
        )
    )
    windows = machine("windows-x86_64", None)
    report = check_file(path, place("8.0", host=windows, python=(3, 12), is_here=False))
    assert report.verdict is MISFIT
    assert lines(report, "python")[0].fix == "Take the build for Python 3.12."
    assert lines(report, "torch")[0].outcome is UNKNOWN
    assert lines(report, "architectures")[0].outcome is FITS


def test_a_static_library_and_an_object_are_checked_too(tmp_path) -> None:
    source = f"extern void {SET_DEVICE_2_3}(void); void f(void) {{ {SET_DEVICE_2_3}(); }}"
    unit = forge.object_file(tmp_path, source)
    for path in (unit, forge.archive(tmp_path, unit)):
        assert check_file(path, place(torch="2.8")).verdict is MISFIT
        assert check_file(path, place(torch="2.4")).verdict is FITS


def test_an_object_and_a_static_library_for_windows_are_read_and_do_not_fit_linux(tmp_path) -> None:
    unit = forge.windows_object(tmp_path, forge.fatbin(forge.entry(forge.SASS, 90)))
    for path, what in ((unit, "COFF object"), (forge.archive(tmp_path, unit, name="fa.lib"), "Windows static library")):
        found = {line.topic: line for line in check_file(path, place("90")).evidence}
        assert (found["platform"].outcome, found["platform"].seen) == (MISFIT, f"{what} for x86_64")
        assert (found["architectures"].outcome, found["architectures"].seen) == (FITS, "SASS sm_90; PTX none")
    library = tmp_path / "fa.lib"
    for path, name in ((unit, b"/4"), (library, b"unit.obj/ ")):
        # A superscript is a digit to Python, and no number.
        path.write_bytes(path.read_bytes().replace(name, b"/\xb2".ljust(len(name)), 1))
        assert check_file(path, place("90")).verdict is MISFIT
    unit.write_bytes(unit.read_bytes()[:90])
    assert check_file(unit, place()).verdict is DAMAGED
    line = tmp_path / "line"
    line.write_bytes(struct.pack("<HHHH12xIHH", 0, 0xFFFF, 0, 0xAA64, 0, 0, 4)[:20] + b"f\0a.dll\0")
    report = check_file(forge.archive(tmp_path, line, name="import.lib"), place("90"))
    assert "aarch64" in next(line.seen for line in report.evidence if line.topic == "platform")


def test_a_backend_that_does_not_fit_does_not_matter_next_to_one_that_does(tmp_path) -> None:
    old = needing("libnowhere.so.11", name="libkernels_cuda118.so")(tmp_path).read_bytes()
    new = forge.shared_library(tmp_path, "void f(void) {}", name="libkernels_cuda126.so").read_bytes()
    files = {"kernels/libkernels_cuda118.so": old}
    assert check_file(forge.wheel(tmp_path, files), place(python=(3, 11))).verdict is MISFIT
    files["kernels/libkernels_cuda126.so"] = new
    assert check_file(forge.wheel(tmp_path, files), place(python=(3, 11))).verdict is FITS


PACKAGES: dict[str, tuple[Mapping[str, bytes], Outcome]] = {
    "an import loads it": (
        {"pkg/__init__.py": b"from pkg import _extension\n", "pkg/_extension.py": b"import pkg._C\n"},
        MISFIT,
    ),
    "an import loads it by another's need": ({"pkg/__init__.py": b"from . import _needs\n"}, MISFIT),
    "a function loads it": ({"pkg/__init__.py": b"from . import _core\ndef load():\n    from . import _C\n"}, FITS),
    "an import goes without it": (
        {"pkg/__init__.py": b"import pkg._core\ntry:\n    import pkg._C\nexcept ImportError:\n    pass\n"},
        FITS,
    ),
    "one branch loads it": (
        {"pkg/__init__.py": b"import sys\nfrom . import _core\nif sys.argv:\n    pass\nelse:\n    import pkg._C\n"},
        MISFIT,
    ),
    "it cannot be known": ({"pkg/__init__.py": b"import torch; torch.ops.load_library('pkg/_C.so')\n"}, MISFIT),
}


@pytest.mark.parametrize("how", PACKAGES)
def test_what_an_import_does_without_is_a_note(tmp_path, how) -> None:
    texts, verdict = PACKAGES[how]
    files = {
        **texts,
        "pkg/_C.so": needing("libavcodec.so.58")(tmp_path).read_bytes(),
        "pkg/_core.so": forge.shared_library(tmp_path, name="core.so").read_bytes(),
        "pkg/_needs.so": needing("_C.so", name="_needs.so")(tmp_path).read_bytes(),
    }
    report = check_file(forge.wheel(tmp_path, files, tag="py3-none-any"), place(python=(3, 11)))
    assert report.verdict is verdict, report.evidence
    if verdict is FITS:
        assert any("the import does without it" in line.has for line in lines(report, "libraries"))


def test_an_archive_of_another_system_is_data_in_a_wheel(tmp_path) -> None:
    """triton-windows brings an ELF archive that its compiler links."""
    unit = forge.object_file(tmp_path, "int f(void) { return 1; }")
    files = {"triton/backends/lib/libdevice.a": forge.archive(tmp_path, unit).read_bytes(), "triton/__init__.py": b""}
    packed = forge.wheel(tmp_path, files, name="triton_windows", version="3.5.0", tag="py3-none-win_amd64")
    there = place(host=machine("windows-x86_64", None), python=(3, 11), is_here=False)
    assert check_file(packed, there).verdict is FITS


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("flash_attn-2.8.3.tar.gz", "source distribution"),
        ("data.tar.gz", "archive"),
        ("flash_attn-2.8.3.zip", "source distribution"),
    ],
)
def test_sources_and_data_are_called_what_they_are(tmp_path, name, kind) -> None:
    path = tmp_path / name
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("flash_attn-2.8.3/setup.py", "")
    else:
        with tarfile.open(path, "w:gz") as tar:
            tar.addfile(tarfile.TarInfo("flash_attn-2.8.3/setup.py"), io.BytesIO())
    report = check_file(path, place())
    assert (report.kind, report.verdict) == (kind, UNKNOWN)
