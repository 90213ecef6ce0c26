from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from flashdepot.binary.fatbin import CodeKind, GpuCode, read_fatbins
from flashdepot.binary.window import Window
from flashdepot.diagnose.check.subject import read_subject
from flashdepot.errors import IntegrityError
from flashdepot.model.target import Architecture
from support import forge


def read(data: bytes) -> list[set[tuple[str, str, str]]]:
    return [
        {(code.kind.value, str(code.architecture), code.compression) for code in container}
        for container in read_fatbins(Window.of(data, "section"))
    ]


def test_every_container_and_entry_is_found_behind_padding() -> None:
    first = forge.fatbin(forge.entry(forge.SASS, 80), forge.entry(forge.PTX, 80, 0x11 | forge.LZ4, header=80))
    second = forge.fatbin(forge.entry(forge.SASS, 120, 0x1000011 | forge.ZSTD, header=112))
    found = read(b"\0" * 24 + first + b"\0" * 40 + second)
    assert found == [{("SASS", "80", ""), ("PTX", "80", "LZ4")}, {("SASS", "120", "Zstandard")}]


def test_a_payload_that_holds_the_magic_number_is_not_taken_for_a_container() -> None:
    inner = forge.fatbin(forge.entry(forge.SASS, 90))
    assert read(forge.fatbin(forge.entry(forge.SASS, 80, payload=inner))) == [{("SASS", "80", "")}]


@pytest.mark.parametrize(("flags", "suffix"), [(0x11, ""), (forge.EXACT, "a"), (forge.FAMILY, "f")])
def test_the_suffix_of_an_architecture_is_in_its_flags(flags: int, suffix: str) -> None:
    assert read(forge.fatbin(forge.entry(forge.SASS, 100, flags))) == [{("SASS", f"100{suffix}", "")}]


def test_a_container_cut_anywhere_is_called_damaged() -> None:
    whole = forge.fatbin(forge.entry(forge.SASS, 80), forge.entry(forge.PTX, 90))
    for cut in range(4, len(whole)):
        with pytest.raises(IntegrityError):
            read(whole[:cut])


def test_an_entry_for_no_architecture_is_called_damaged() -> None:
    with pytest.raises(IntegrityError, match="architecture 7"):
        read(forge.fatbin(forge.entry(forge.SASS, 7)))


@pytest.mark.parametrize(
    ("kind", "code", "gpu", "runs"),
    [
        (CodeKind.SASS, "80", "86", True),
        (CodeKind.SASS, "80", "90", False),
        (CodeKind.SASS, "90a", "90", True),
        (CodeKind.PTX, "80", "90", True),
        (CodeKind.PTX, "90", "80", False),
        (CodeKind.PTX, "90a", "100", False),
        (CodeKind.PTX, "100f", "103", True),
        (CodeKind.PTX, "100f", "120", False),
        (CodeKind.OTHER, "80", "80", False),
    ],
)
def test_which_code_runs_on_which_gpu(kind: CodeKind, code: str, gpu: str, runs: bool) -> None:
    assert GpuCode(kind, Architecture.parse(code), "").runs_on(Architecture.parse(gpu)) is runs


@pytest.mark.nvcc
@pytest.mark.parametrize("mode", ["none", "size", "speed"])
def test_code_from_a_real_nvcc_is_read_whatever_its_compression(tmp_path: Path, mode: str) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc in PATH")
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k(float *p) { p[threadIdx.x] *= 2; }')
    targets = ["arch=compute_80,code=sm_80", "arch=compute_90a,code=sm_90a", "arch=compute_90,code=compute_90"]
    gencode = [part for target in targets for part in ("-gencode", target)]
    library = tmp_path / "k.so"
    command = [nvcc, "-shared", "-Xcompiler", "-fPIC", f"--compress-mode={mode}", *gencode, "-o", str(library), "k.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "compress-mode" in done.stderr:
        pytest.skip("this nvcc has no --compress-mode")
    assert done.returncode == 0, done.stderr
    (binary,) = read_subject(library).binaries
    assert [a.sm for a in binary.architectures(CodeKind.SASS)][-2:] == ["sm_80", "sm_90a"]
    assert "90" in [str(a) for a in binary.architectures(CodeKind.PTX)]
