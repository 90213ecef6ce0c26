"""What is missing or of another version is understood in the words of any program."""

from __future__ import annotations

import io

import pytest

from flashdepot.doctor.explain import explain

MISSING = [
    "{} is not installed.",
    "{} was not found",
    "{} could not be found",
    "{} isn't available",
    "{} is required but not installed",
    "missing {}",
    "no {} found",
    "unable to locate {}",
    "couldn't find {}",
    "Please install {} first.",
    "please make sure {} is installed",
    "requires {}",
    "you need to install {}",
    "failed to find {} (see the log)",
]
UNSUITABLE = [
    "requires {} >= 3.5",
    "{}>=3.5 is required",
    "{} 3.5 or later is required",
    "{} version 3.5 is not supported",
    "unsupported {} version: 3.5",
    "{} version must be at least 3.5",
    "your {} version is too old",
    "minimum {} version is 3.5",
    "please upgrade {}",
]
LACKED = {
    "nvcc": "nvcc-not-found",
    "the CUDA toolkit": "nvcc-not-found",
    "flash_attn": "extension-not-built",
    "FlashAttention 2": "extension-not-built",
    "a C++ compiler": "host-compiler-missing",
    "cl.exe": "msvc-env-missing",
    "cmake": "build-tool-missing",
    "triton": "triton-missing",
    "`deepspeed`": "module-missing",
    "NVIDIA GPU": "no-gpu-visible",
}
OUTDATED = {
    "PyTorch": "torch-api-drift",
    "transformers": "transformers-api-drift",
    "flash_attn": "extension-version-mixup",
    "Python": "python-version-unsupported",
    "CMake": "cmake-version",
    "NVIDIA driver": "driver-too-old",
    "triton": "triton-version",
    "vllm": "python-api-drift",
}


def _first(sentence: str) -> list[str]:
    log = f'  File "/env/site-packages/torch/x.py", line 3, in load\nRuntimeError: {sentence}\n'
    return [finding.id for finding in explain(io.BytesIO(log.encode())).findings][:1]


@pytest.mark.parametrize(("thing", "rule"), LACKED.items())
def test_a_thing_that_is_not_there_is_understood_in_any_sentence(thing: str, rule: str) -> None:
    sentences = [sentence.format(thing) for sentence in MISSING]
    assert [sentence for sentence in sentences if _first(sentence) != [rule]] == []


@pytest.mark.parametrize(("thing", "rule"), OUTDATED.items())
def test_a_version_that_will_not_do_is_understood_in_any_sentence(thing: str, rule: str) -> None:
    sentences = [sentence.format(thing) for sentence in UNSUITABLE]
    assert [sentence for sentence in sentences if _first(sentence) != [rule]] == []


@pytest.mark.parametrize("begin", ["", "WARNING: ", "INFO: ", "note: "])
def test_what_reports_no_failure_names_nothing(begin: str) -> None:
    log = f"{begin}{{}} was installed with torch; it is not required to update it.\n"
    for thing in ("deepspeed", "cmake", "triton", "nvcc"):
        assert explain(io.BytesIO(log.format(thing).encode())).findings == ()
