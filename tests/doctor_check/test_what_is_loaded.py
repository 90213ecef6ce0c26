"""Only what an import loads decides; the CUDA that wrote the code decides on drivers; each file is called what it is."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from places import extension, interpreter, lines, machine, place

from flashdepot import api
from flashdepot.api.answers import place_of
from flashdepot.diagnose.check import Outcome, check_file
from flashdepot.model.environment import Torch
from flashdepot.model.target import Version
from support import forge

HERE = machine()


@pytest.mark.parametrize(
    ("elf_abi", "driver", "compression", "verdict"),
    [
        (8, "570.1", 0, Outcome.MISFIT),
        (8, "570.1", 0x8000, Outcome.MISFIT),
        (8, "580.1", 0x8000, Outcome.FITS),
        (7, "535.1", 0, Outcome.FITS),
        (7, "550.1", 0x8000, Outcome.FITS),
        (7, "535.1", 0x8000, Outcome.MISFIT),
    ],
)
def test_the_driver_that_code_needs_is_that_of_the_cuda_that_wrote_it(
    tmp_path: Path, elf_abi: int, driver: str, compression: int, verdict: Outcome
) -> None:
    gpu = forge.fatbin(forge.entry(forge.SASS, 90, 0x11 | compression, version=(1, elf_abi)))
    where = place("9.0", host=machine(driver=driver), torch="2.9.0+cu128", is_here=False)
    assert check_file(extension(tmp_path, gpu=gpu), where).verdict is verdict


@pytest.mark.parametrize(("driver", "verdict"), [("470.1", Outcome.MISFIT), ("535.1", Outcome.FITS)])
def test_the_driver_serves_the_cuda_that_a_wheels_name_says(tmp_path: Path, driver: str, verdict: Outcome) -> None:
    gpu = forge.fatbin(forge.entry(forge.SASS, 90, version=(1, 7)))
    files = {"flash_attn_2_cuda.so": extension(tmp_path, gpu=gpu).read_bytes()}
    wheel = forge.wheel(tmp_path, files, version="2.8.3+cu12torch2.9cxx11abiTRUE", metadata_version="2.8.3")
    where = place("9.0", host=machine(driver=driver), torch="2.9.0+cu128", python=(3, 11), is_here=False)
    assert check_file(wheel, where).verdict is verdict


@pytest.mark.parametrize(
    ("required", "python", "verdict"),
    [
        (">=3.13", (3, 11), Outcome.MISFIT),
        (">=3.9", (3, 11), Outcome.FITS),
        (">=3.10,<4", (3, 9), Outcome.MISFIT),
        ("three", (3, 11), Outcome.UNKNOWN),
    ],
)
def test_requires_python_counts(tmp_path: Path, required: str, python: tuple[int, int], verdict: Outcome) -> None:
    wheel = forge.wheel(tmp_path, {"flash_attn.py": b""}, tag="py3-none-any", requires_python=required)
    report = check_file(wheel, place(host=HERE, python=python))
    assert report.verdict is verdict
    assert required in lines(report, "python")[0].seen


def lacking(folder: Path, name: str, needs: str = "") -> bytes:
    """A library that needs another, by default one that no machine has."""
    needed = needs or "libavcodec.so.58"
    forge.shared_library(folder, "void deep(void) {}", f"-Wl,-soname,{needed}", name="libdeep.so")
    source = "void deep(void); void f(void) { deep(); }"
    return forge.shared_library(folder, source, f"-L{folder}", "-ldeep", name=name).read_bytes()


PACKAGES: dict[str, tuple[Mapping[str, bytes], Outcome]] = {
    "an import loads it": (
        {"pkg/__init__.py": b"from pkg import _extension\n", "pkg/_extension.py": b"import pkg._C\n"},
        Outcome.MISFIT,
    ),
    "an import loads it by another's need": ({"pkg/__init__.py": b"from . import _needs\n"}, Outcome.MISFIT),
    "a function loads it": (
        {"pkg/__init__.py": b"from . import _core\ndef load():\n    from . import _C\n"},
        Outcome.FITS,
    ),
    "an import goes without it": (
        {"pkg/__init__.py": b"import pkg._core\ntry:\n    import pkg._C\nexcept ImportError:\n    pass\n"},
        Outcome.FITS,
    ),
    "one branch loads it": (
        {
            "pkg/__init__.py": b"import sys\nfrom . import _core\nif sys.argv:\n    pass\nelse:\n    import pkg._C as c\n"
        },
        Outcome.MISFIT,
    ),
    "it cannot be told": ({"pkg/__init__.py": b"import torch; torch.ops.load_library('pkg/_C.so')\n"}, Outcome.MISFIT),
}


@pytest.mark.parametrize("how", PACKAGES)
def test_what_an_import_does_without_is_a_note(tmp_path: Path, how: str) -> None:
    texts, verdict = PACKAGES[how]
    files = {
        **texts,
        "pkg/_C.so": lacking(tmp_path, "_C.so"),
        "pkg/_core.so": forge.shared_library(tmp_path, name="core.so").read_bytes(),
        "pkg/_needs.so": lacking(tmp_path, "_needs.so", needs="_C.so"),
    }
    wheel = forge.wheel(tmp_path, files, tag="py3-none-any")
    report = check_file(wheel, place(host=HERE, python=(3, 11)))
    assert report.verdict is verdict, report.evidence
    if verdict is Outcome.FITS:
        assert any("the import does without it" in line.has for line in lines(report, "libraries"))


def test_an_archive_of_another_system_is_data_in_a_wheel(tmp_path: Path) -> None:
    """triton-windows brings an ELF archive that its compiler links."""
    unit = forge.object_file(tmp_path, "int f(void) { return 1; }")
    files = {"triton/backends/lib/libdevice.a": forge.archive(tmp_path, unit).read_bytes(), "triton/__init__.py": b""}
    wheel = forge.wheel(tmp_path, files, name="triton_windows", version="3.5.0", tag="py3-none-win_amd64")
    there = place(host=machine("windows-x86_64", None), python=(3, 11), is_here=False)
    assert check_file(wheel, there).verdict is Outcome.FITS


def archives(folder: Path) -> dict[str, Path]:
    made = {name: folder / name for name in ("flash_attn-2.8.3.tar.gz", "data.tar.gz", "flash_attn-2.8.3.zip")}
    for path in made.values():
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("flash_attn-2.8.3/setup.py", "")
        else:
            with tarfile.open(path, "w:gz") as tar:
                tar.addfile(tarfile.TarInfo("flash_attn-2.8.3/setup.py"), io.BytesIO())
    return made


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("flash_attn-2.8.3.tar.gz", "source distribution"),
        ("data.tar.gz", "archive"),
        ("flash_attn-2.8.3.zip", "source distribution"),
    ],
)
def test_sources_and_data_are_called_what_they_are(tmp_path: Path, name: str, kind: str) -> None:
    report = check_file(archives(tmp_path)[name], place(host=HERE))
    assert (report.kind, report.verdict) == (kind, Outcome.UNKNOWN)


def test_the_python_and_torch_of_a_record_are_asked(tmp_path: Path) -> None:
    python = replace(interpreter(3, 12), torch=Torch.parse("2.9.1+cu128"))
    record = replace(machine(driver="580.1"), python=python)
    wheel = forge.wheel(tmp_path, {"flash_attn.py": b""}, tag="cp311-cp311-linux_x86_64")
    report = api.check([wheel], host=record)[0]
    assert report.verdict is Outcome.MISFIT
    assert "Python 3.12" in lines(report, "tags")[0].has
    assert json.dumps(report.to_json())
    assert Version("2.9") <= place_of(host=record).torch.torch.release  # type: ignore[union-attr]
