"""What is missing, refused or of another version is understood in the words of any program."""

from __future__ import annotations

import io

import pytest

from flashdepot.diagnose.explain import explain

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
DIFFERENT = {
    "nvcc version 11.8 does not match torch CUDA version 12.1": "cuda-torch-mismatch",
    "PyTorch was compiled with CUDA 12.1 but nvcc is 11.8": "cuda-torch-mismatch",
    "xformers was built for torch 2.3 (you have 2.5)": "torch-build-mismatch",
    "this module needs to be rebuilt for torch 2.5": "torch-build-mismatch",
    "Could not load library libcudnn.so.9": "cudart-missing",
    "cublas64_12.dll could not be loaded": "cudart-missing",
    "Unable to load libmpi.so.40": "shared-library-missing",
    "FlashAttention 2 is not supported on this GPU": "gpu-too-old",
    "your device does not support bfloat16": "gpu-too-old",
}
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
    return [finding.id for finding in explain(io.BytesIO(log.encode())).findings][:1]


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


@pytest.mark.parametrize(("sentence", "rule"), DIFFERENT.items())
def test_two_that_do_not_fit_and_what_does_not_load_are_understood(sentence: str, rule: str) -> None:
    assert _first(sentence) == [rule]


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


@pytest.mark.parametrize(
    "line", ["CUDA error checks passed: 2 of 2", "cuda 12.2 found, error 2.5 %", "CUDA version 11.2"]
)
def test_a_number_that_is_no_error_of_cuda_names_nothing(line: str) -> None:
    assert explain(io.BytesIO(f"{line}\n".encode())).findings == ()


@pytest.mark.parametrize(
    "line",
    [
        "time=12:00 level=DEBUG msg=unload error=/usr/lib/libcuda.so.1: wrong ELF class: ELFCLASS32",
        "ggml_new_object: not enough space in the context's memory pool (needed 19422912, available 19333120)",
        "-- The CUDA compiler identification is unknown",
    ],
)
def test_what_a_program_only_remarks_names_nothing(line: str) -> None:
    assert explain(io.BytesIO(f"{line}\n".encode())).findings == ()


def test_an_exception_of_cpp_that_says_what_happened_is_no_crash() -> None:
    thrown = "terminate called after throwing an instance of 'std::runtime_error'"
    log = f"{thrown}\n  what():  CUDA error: operation not permitted\nAborted (core dumped)\n"
    assert [finding.id for finding in explain(io.BytesIO(log.encode())).findings] == ["cuda-call-failed"]


def test_templates_in_source_that_a_traceback_shows_are_not_taken_for_messages() -> None:
    source = (
        '    390 raise ValueError(\n    391     f"Unrecognized configuration class {config.__class__} for this kind"\n'
    )
    quoted = '    print(\n        "ERROR: Can not execute `setup.py` since setuptools is not available in "\n'
    assert explain(io.BytesIO(f"transformers flash_attn\n{source}{quoted}".encode())).findings == ()


@pytest.mark.parametrize("begin", ["", "WARNING: ", "INFO: ", "note: "])
def test_what_reports_no_failure_names_nothing(begin: str) -> None:
    log = f"{begin}{{}} was installed with torch; it is not required to update it.\n"
    for thing in ("deepspeed", "cmake", "triton", "nvcc"):
        assert explain(io.BytesIO(log.format(thing).encode())).findings == ()
