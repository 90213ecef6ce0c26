"""NVML as the driver has it, in place of a machine's own: a library with its functions, compiled here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flashdepot.host.probe import probe_driver
from flashdepot.model.target import Version
from support.tools import run_program, tool

FUNCTIONS = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.159.04", size); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (char *)0 + (1ull << 40) + index; return 0; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory *found) { found->total = 150754820096ull; return MEMORY; }
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
  strncpy(name, device == (char *)0 + (1ull << 40) ? "NVIDIA H200" : "NVIDIA H100", size);
  return 0;
}
"""
ASK = "from flashdepot.host.probe import probe_gpus; driver, gpus = probe_gpus(); print(driver, *gpus, sep='\\n')"


def ask(folder: Path, *macros: str) -> list[str]:
    compiler = tool("gcc")
    source = folder / "nvml.c"
    source.write_text(FUNCTIONS)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", *macros, "-o", library, source], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PATH": str(folder)}
    return run_program([sys.executable, "-c", ASK], env=environment).splitlines()


def test_driver_and_gpus_are_what_nvml_says(tmp_path) -> None:
    driver, first, second = ask(tmp_path, "-DINIT=0", "-DMEMORY=0")
    assert driver == "580.159.04"
    assert "NVIDIA H200" in first
    assert "150754820096" in first
    assert "NVIDIA H100" in second


@pytest.mark.parametrize("macros", [("-DINIT=9", "-DMEMORY=0"), ("-DINIT=0", "-DMEMORY=3")])
def test_an_nvml_that_refuses_counts_as_no_answer(tmp_path, macros) -> None:
    assert ask(tmp_path, *macros) == ["None"]


@pytest.mark.parametrize("written", ["580.159.04\n", "not a version\n", None])
def test_the_drivers_version_is_what_the_kernel_says_where_it_says_one(written, tmp_path, monkeypatch) -> None:
    module = tmp_path / "version"
    if written is not None:
        module.write_text(written)
    monkeypatch.setitem(probe_driver.__globals__, "_DEVICE", tmp_path)
    monkeypatch.setitem(probe_driver.__globals__, "_MODULE", module)
    monkeypatch.setitem(probe_driver.__globals__, "probe_gpus", lambda: (Version("575.51"), ()))
    assert probe_driver() == Version("580.159.04" if written == "580.159.04\n" else "575.51")


def test_a_container_without_gpus_has_no_driver_though_its_kernel_has(tmp_path, monkeypatch) -> None:
    (tmp_path / "version").write_text("580.159.04\n")
    monkeypatch.setitem(probe_driver.__globals__, "_DEVICE", tmp_path / "nvidiactl")
    monkeypatch.setitem(probe_driver.__globals__, "_MODULE", tmp_path / "version")
    monkeypatch.setitem(probe_driver.__globals__, "probe_gpus", lambda: (None, ()))
    assert probe_driver() is None
