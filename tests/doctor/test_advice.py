from __future__ import annotations

import pytest

from flashdepot.diagnose.explain.machine import named
from flashdepot.diagnose.explain.report import fill
from flashdepot.diagnose.explain.rules import load_rules

NAMES = {
    "abi-undefined-symbol": ["torch.__file__", "FLASH_ATTENTION_FORCE_BUILD=TRUE", "pip cache remove", "cxx11abi"],
    "build-dep-missing": ["packaging", "ninja", "psutil", "wheel", "setuptools", "--no-build-isolation"],
    "build-isolation-no-torch": ["--no-build-isolation", "requirements.txt"],
    "compiler-crash": ["FLASH_ATTN_CUDA_ARCHS", "MAX_JOBS", "newer GCC", "another CUDA minor"],
    "compute-cap-undetected": ["CUDA_COMPUTE_CAP"],
    "cross-device-link": ["TMPDIR", "--no-cache-dir", "WHEEL_URL"],
    "cuda-headers-missing": ["conda install -c nvidia", "module load cuda", "CUDA_HOME"],
    "cuda-invalid-argument": ["sdpa", "without FlashAttention-3", "pip install -U"],
    "cuda-lib-not-found-at-link": ["LIBRARY_PATH", "stubs", "cuda-cudart-dev"],
    "cuda-libraries-mixed": ["LD_LIBRARY_PATH", "pip list"],
    "cuda-torch-mismatch": ["CUDA_HOME", "scaled_dot_product_attention"],
    "cudart-missing": ["torch.version.cuda", "LD_LIBRARY_PATH", "pip cache remove"],
    "cudart-symbols-unlinked": ["-lcudart", "rustc-link-lib=cudart", "rustc-link-search"],
    "cutlass-cuda-incompat": ["12.9", "newer CUTLASS"],
    "cutlass-missing": ["git submodule update --init", "--recursive", "git >= 2.30", "--sparse"],
    "disk-full": ["TMPDIR", "docker system prune", "MAX_JOBS", "df -h"],
    "driver-too-old": ["nvidia-smi", "525", "580"],
    "extension-not-built": [
        "FLASH_ATTENTION_SKIP_CUDA_BUILD",
        "FLASH_ATTENTION_FORCE_BUILD=TRUE",
        "outside the source folder",
    ],
    "extension-version-mixup": ["hopper", "flash-attn<2"],
    "glibc-too-old": ["2.7.4.post1", "--no-binary", "ldd --version"],
    "glibcxx-too-old": ["libstdcxx-ng", "LD_PRELOAD"],
    "gnu-version-unsupported": ["g++-12", "NVCC_CCBIN", "CXX", "newer CUDA toolkit"],
    "gpu-too-old": ["sdpa", "CUDA_COMPUTE_CAP=80"],
    "kernel-image-invalid": ["2.8.0.post2", "driver"],
    "lfs-pointer": ["git lfs pull", "git lfs install", ".gitattributes", "another host"],
    "msvc-compile-error": ["newer flash-attn", "/permissive", "c++17"],
    "msvc-cplusplus-macro": ["/Zc:__cplusplus", "c++17", "DISTUTILS_USE_SDK=1"],
    "msvc-env-missing": ["vcvars64.bat", "where cl", "Windows SDK"],
    "msvc-math-defines": ["-D_USE_MATH_DEFINES"],
    "msvc-preprocessor": ["NVCC_PREPEND_FLAGS", "/Zc:preprocessor", "set CL", "NVCC_FLAGS"],
    "msvc-std-ambiguous": ["-DUSE_CUDA", "header"],
    "msvc-version-unsupported": ["-vcvars_ver", "NVCC_APPEND_FLAGS", "12.4", "NVCC_FLAGS"],
    "no-kernel-image": ["FLASH_ATTN_CUDA_ARCHS", "csrc/layer_norm", "12.8", "sdpa", "xformers", "Triton"],
    "nvcc-gcc-incompat": ["/usr/local/cuda", "g++-10", "nvidia-cuda-toolkit", "pip install -U"],
    "nvcc-not-found": ["CUDA_HOME", "FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE", "FLASH_ATTENTION_TRITON_AMD_ENABLE"],
    "nvcc-path-spaces": ["without blanks"],
    "nvcc-too-old": ["nvcc -V", "CUDA_HOME"],
    "oom-killed": ["MAX_JOBS", "RAYON_NUM_THREADS", "swap", "CANDLE_FLASH_ATTN_BUILD_DIR", "page file"],
    "pic-relocation": ["-fPIC", "newer candle-flash-attn"],
    "ptx-unsupported-toolchain": ["driver", "cuda-compat", "no newer than the driver"],
    "rdc-device-link": ["CUDA_RESOLVE_DEVICE_SYMBOLS", "CUDA_SEPARABLE_COMPILATION", "-dlink", "without -rdc"],
    "reloc-overflow-2gb": ["TORCH_CUDA_ARCH_LIST", "-compress-all", "No -G", "shared library"],
    "rust-crate-dup": ["cargo tree -d", "patch.crates-io", "--locked", "same git rev"],
    "rust-link-lib": ["12.5", "Visual Studio", "mistral.rs"],
    "slow-build": ["ninja", "CANDLE_FLASH_ATTN_BUILD_DIR", "RAYON_NUM_THREADS"],
    "stale-cached-wheel": ["pip cache remove", "--no-cache-dir"],
    "torch-lib-missing": ["csrc/*", "import torch"],
    "unsupported-gpu-arch": ["CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "12.8", "11.1"],
    "uv-build-isolation": ["no-build-isolation-package", "--no-install-package", "extra-build-dependencies"],
    "wheel-corrupt": ["SHA-256", "resume", "pip cache purge"],
    "wheel-metadata-mismatch": ["uv self update", "FLASH_ATTN_LOCAL_VERSION"],
    "wheel-tag-mismatch": ["cpXY"],
    "win-dll-load-failed": ["torch.version.cuda", "CUDA runtime", "import torch first"],
    "win-link-error": ["toolset", "response file", "17.4"],
    "win-long-path": ["core.longpaths", "LongPathsEnabled", "csrc/cutlass", "TMP"],
    "wrong-arch-library": ["git lfs pull", "uname -m"],
}
"""What fixed each class of failure where people reported it: versions, variables, options and commands."""


@pytest.mark.parametrize("class_id", NAMES)
def test_the_advice_names_what_mended_such_failures(class_id: str) -> None:
    rule = next(rule for rule in load_rules() if rule.id == class_id)
    advice = fill("\n".join((rule.why, *rule.fix)), named("flash-attn").values)
    assert [name for name in NAMES[class_id] if name.lower() not in advice.lower()] == []
