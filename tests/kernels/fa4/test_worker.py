"""The compile worker: its two ways of being called, and one real kernel."""

import json
import os
import runpy
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from flashdepot.kernels.fa4 import Fa4
from flashdepot.kernels.fa4.variants import Variant
from flashdepot.model.target import Platform
from flashdepot.toolchain.wheels import pinned_dsl, running_python
from support import forge
from support.tools import run_program

WORKER = Path(__file__).parents[3] / "src/flashdepot/kernels/fa4/worker"

STAND_IN = """
import sys
def compile_one(job, target):
    print("a word from the compiler")
    if job["kernel"] == "refused":
        raise ValueError("no such kernel")
    target.write_text(job["kernel"])
    import flash_attn.cute.kernels
"""


def command(worker: Path, *arguments: object) -> list[str]:
    return [sys.executable, "-I", "-S", "-B", str(worker), *map(str, arguments)]


@pytest.fixture
def stand_in(tmp_path: Path) -> list[str]:
    """The worker with our compiler in place of CuTe, and an upstream of one module."""
    worker = tmp_path / "worker"
    shutil.copytree(WORKER, worker)
    (worker / "compile_one.py").write_text(STAND_IN)
    (tmp_path / "upstream").mkdir()
    (tmp_path / "upstream/__init__.py").write_text("raise ImportError('its front door')")
    (tmp_path / "upstream/kernels.py").write_text("import torch\nclass Kernel:\n    x: torch.Tensor\n")
    return command(worker, tmp_path / "cute_dsl", tmp_path / "upstream")


def order(tmp_path: Path, name: str) -> dict[str, Any]:
    job = {"kernel": name, "arch": "sm_90a"}
    return {"job": job, "object": str(tmp_path / f"{name}.o"), "depfile": str(tmp_path / f"{name}.d")}


def test_a_worker_answers_jobs_one_after_the_other_and_outlives_a_failure(stand_in, tmp_path) -> None:
    orders = [order(tmp_path, name) for name in ("first", "refused", "second")]
    said = run_program(stand_in, input="".join(json.dumps(o) + "\n" for o in orders))
    answers = [json.loads(line) for line in said.splitlines()]
    assert [a["status"] for a in answers] == ["made", "failed", "made"]
    assert "ValueError: no such kernel" in answers[1]["error"]
    assert all(a["log"] == "a word from the compiler\n" for a in answers)
    assert all(a["peak_memory_bytes"] > 1 << 20 for a in answers) or os.name == "nt"
    assert (tmp_path / "second.o").read_text() == "second"
    assert not (tmp_path / "refused.o").exists()


def test_an_answer_comes_while_the_worker_waits_for_more(stand_in, tmp_path) -> None:
    with subprocess.Popen(stand_in, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        for name in ("first", "second"):
            worker.stdin.write(json.dumps(order(tmp_path, name)) + "\n")
            worker.stdin.flush()
            assert json.loads(worker.stdout.readline())["status"] == "made"
        worker.stdin.close()
        assert worker.wait() == 0


def test_one_job_prints_its_error_and_fails(stand_in, tmp_path) -> None:
    for name, status in (("first", 0), ("refused", 1)):
        one = order(tmp_path, name)
        done = subprocess.run(
            [*stand_in, json.dumps(one["job"]), one["object"], one["depfile"]],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status
        assert ("no such kernel" in done.stdout) == bool(status)


def test_what_was_imported_from_upstream_and_the_worker_is_in_the_depfile(stand_in, tmp_path) -> None:
    one = order(tmp_path, "first")
    subprocess.run([*stand_in, json.dumps(one["job"]), one["object"], one["depfile"]], check=True, capture_output=True)
    rule = Path(one["depfile"]).read_text()
    assert rule.startswith(f"{one['object']}:")
    assert str(tmp_path / "upstream/kernels.py") in rule
    assert str(tmp_path / "worker/compile_one.py") in rule
    assert "json" not in rule.replace(str(tmp_path), "")


def an_object(system: str, flags: int, build: str) -> bytes:
    """An object as CuTe DSL writes it, as far as it differs by the host: a fatbin, ptxas's version, COFF's checksum."""
    note = f"ptxas\0Cuda compilation tools, release 13.4, V13.4.{build}\0".encode()
    section = forge.fatbin(forge.entry(forge.SASS, 90, flags, note))
    if system == "linux":
        return b"\x7fELF" + section
    checksum = struct.pack("<I", ~zlib.crc32(section, 0xFFFFFFFF) & 0xFFFFFFFF)
    head = struct.pack("<HHIIIHH", 0x8664, 1, 0, 60 + len(section), 2, 0, 0)
    return (
        head + struct.pack("<8s8xII16x", b".rdata", len(section), 60) + section + b".rdata".ljust(26, b"\0") + checksum
    )


@pytest.mark.parametrize("system", ["linux", "windows"])
def test_nothing_of_the_host_is_left_in_an_object(system) -> None:
    without_host = runpy.run_path(str(WORKER / "any_host.py"))["without_host"]
    assert without_host(an_object(system, 0x41, "35")) == without_host(an_object(system, 0x11, "59"))
    assert without_host(an_object(system, 0x41, "35")) == an_object(system, 0x11, "00")


@pytest.mark.network
@pytest.mark.skipif(
    "FLASHDEPOT_TEST_CUTE_DSL" not in os.environ,
    reason="fetches 125 MB of CuTe DSL and compiles with it: set FLASHDEPOT_TEST_CUTE_DSL=1",
)
def test_a_real_kernel_has_the_same_bytes_in_a_warm_worker_and_for_another_user_in_another_folder(
    real_depot, tmp_path
) -> None:
    platform = Platform("linux", os.uname().machine)
    dsl = pinned_dsl(platform, running_python()).provide(real_depot / "toolchains", lambda _: None)
    upstream = Fa4().sources.obtain("4.0.0b36", real_depot / "upstreams").root
    shutil.copytree(upstream, tmp_path / "ein Ordner/upstream")
    job = {
        **Variant("dkv", 64, "bf16", "dense").job(),
        "arch": "sm_90a",
        "triple": "x86_64-unknown-linux-gnu",
        "cpu": "x86-64-v2",
        "prefix": "fa4_sm90a_dkv_d64_bf16_dense",
    }
    (tmp_path / "warm").mkdir()
    orders = [
        {"job": job | {"head_dim": d}, "object": str(tmp_path / f"warm/{d}.o"), "depfile": str(tmp_path / "warm/d")}
        for d in (128, 64)
    ]
    run_program(command(WORKER, dsl, upstream), input="".join(json.dumps(o) + "\n" for o in orders))
    single = tmp_path / "ein Ordner/single.o"
    stranger = {"HOME": "/nowhere", "USER": "stranger", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo"}
    subprocess.run(
        command(WORKER, dsl, tmp_path / "ein Ordner/upstream", json.dumps(job), single, tmp_path / "d"),
        env=stranger, cwd=single.parent, check=True, capture_output=True,
    )  # fmt: skip
    made = single.read_bytes()
    assert made == (tmp_path / "warm/64.o").read_bytes()
    for function in (b"_cuda_init", b"_cuda_load_to_device", b"__mlir_ciface_run"):
        assert b"\0_mlir_fa4_sm90a_dkv_d64_bf16_dense" + function + b"\0" in made
