"""What is missing, refused or of another version is understood in the words of any program."""

from __future__ import annotations

import pytest

from doctor.logs import classes

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

REFUSED = [
    "{} does not support dropout",
    "alibi is not supported with {}",
    "head_dim 320 is not supported by {}",
    "{} requires fp16 or bf16 inputs",
    "cannot use {} with attention sinks",
]
TOO_OLD = [
    "requires {} or newer",
    "not supported on GPUs older than {}",
    "only supported on {} and above",
    "{} or higher is required, got 7.5",
    "this kernel requires at least {}",
]
CODED = [
    "CUDA error {0}: {1}",
    "CUDA runtime error ({0}) : {1} at x.cu:7",
    "CUDA failure {0}: {1} ; GPU=0",
    "Test CUDA failure common.cu:963 '{1}'",
    "CUDA initialization failure with error {0}.",
    "cudaGetDeviceCount returned {0}",
    "HIP error code: {0}",
]


def _first(sentence: str) -> list[str]:
    log = f'  File "/env/site-packages/torch/x.py", line 3, in load\nRuntimeError: {sentence}\n'
    return classes(log)[:1]


@pytest.mark.parametrize(("thing", "rule"), LACKED.items())
def test_a_thing_that_is_not_there_is_understood_in_any_sentence(thing: str, rule: str) -> None:
    sentences = [sentence.format(thing) for sentence in MISSING]
    assert [sentence for sentence in sentences if _first(sentence) != [rule]] == []


@pytest.mark.parametrize(("thing", "rule"), OUTDATED.items())
def test_a_version_that_will_not_do_is_understood_in_any_sentence(thing: str, rule: str) -> None:
    sentences = [sentence.format(thing) for sentence in UNSUITABLE]
    assert [sentence for sentence in sentences if _first(sentence) != [rule]] == []


@pytest.mark.parametrize("kernel", ["FlashAttention", "flash_attn", "xformers"])
def test_inputs_that_a_kernel_refuses_are_understood_in_any_sentence(kernel: str) -> None:
    sentences = [sentence.format(kernel) for sentence in REFUSED]
    assert [sentence for sentence in sentences if _first(sentence) != ["input-not-supported"]] == []


@pytest.mark.parametrize("least", ["Ampere", "sm_80", "compute capability 8.0", "Hopper"])
def test_a_gpu_that_is_too_old_is_understood_in_any_sentence(least: str) -> None:
    sentences = [sentence.format(least) for sentence in TOO_OLD]
    assert [sentence for sentence in sentences if _first(sentence) != ["gpu-too-old"]] == []


@pytest.mark.parametrize(
    ("number", "text", "rule"),
    [
        (35, "CUDA driver version is insufficient for CUDA runtime version", "driver-too-old"),
        (100, "no CUDA-capable device is detected", "no-gpu-visible"),
        (2, "out of memory", "gpu-memory-full"),
        (700, "an illegal memory access was encountered", "illegal-memory-access"),
        (209, "no kernel image is available for execution on the device", "no-kernel-image"),
    ],
)
def test_an_error_of_cuda_is_understood_by_its_number_and_by_its_text(number: int, text: str, rule: str) -> None:
    sentences = [sentence.format(number, text) for sentence in CODED]
    assert [sentence for sentence in sentences if _first(sentence) != [rule]] == []
