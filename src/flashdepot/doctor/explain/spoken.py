"""Advice in the words of the system that a log comes from: its shell, its programs, its vendor of GPUs."""

from __future__ import annotations

import re

WINDOWS_SIGNS = (
    "win_amd64", "win-amd64", ".pyd", "winerror", "cl.exe", "link.exe", "site-packages\\", "\\lib\\", "dll load failed",
    "powershell", "c:\\users", "d:\\", "\\scripts\\", "nvcc.exe", "lnk1", "lnk2", "windows-",
)  # fmt: skip
"""Texts in lower case, one of which a log of Windows has."""

AMD_SIGNS = (
    "libamdhip64", "+rocm", "hipcc", "hiperror", "/opt/rocm", "hip error", "hip/hip_runtime", "rocm-smi", "amd-smi",
    "gfx90", "gfx94", "gfx95", "gfx10", "gfx11", "gfx12", "pytorch_rocm_arch", "radeon", "ck only supports",
    "devicegroupedmultiheadattention", "flash_attn_triton_amd", "flash_attention_triton_amd",
)  # fmt: skip
"""Texts in lower case, one of which a log of a machine with AMD GPUs has."""

FIELD_SIGNS = (
    "torch", "flash", "cuda", "nvcc", "cudnn", "cublas", "nccl", "nvidia", "gpu", "rocm", "hipcc", "triton",
    "attention", "_attn", "attn_", "cutlass", "cpp_extension", "libtorch", "vllm", "sglang", "sgl_kernel", "xformers",
    "transformers", "huggingface", "diffusers", "diffusion", "deepspeed", "accelerate", "bitsandbytes", "unsloth",
    "axolotl", "megatron", "transformer_engine", "transformer-engine", "sageattention", "mamba", "causal-conv1d",
    "causal_conv1d", "gptq", "awq", "exllama", "comfyui", "custom_nodes", "webui", "text-generation",
    "text_generation", "candle", "cudarc", "mistralrs", "llama", "qwen", "deepseek", "mistral", "tensorrt", "apex",
    "jetson", "natten", "spconv", "pytorch3d", "detectron", "gaussian", "splat", "nerf", "minkowski",
    "nvdiffrast", "tinycudann", "tiny-cuda", "cumm", "kaolin", "mmcv", "pyg_lib", "megablocks", "grouped_gemm",
    "deep_gemm", "deep_ep", "fbgemm", "pointops", "pointgroup", "pcdet", "groundingdino", "grounding_dino", "lietorch",
    "nunchaku", "onnxruntime", "cupy",
    "ggml", "gguf", "whisper", "cubecl", "nvinfer", "[trt]",
)  # fmt: skip
"""Texts in lower case, one of which a log of PyTorch, of models or of kernels for GPUs has."""

OWN_ERRORS = (
    "runtimeerror:", "oserror:", "valueerror:", "attributeerror:", "assertionerror:", "filenotfounderror:", "typeerror:",
    "keyerror:", "permissionerror:", "indexerror:", "importerror:", "syntaxerror:", "nameerror:", "unicodedecodeerror",
    "unicodeencodeerror", "http error",
)  # fmt: skip
"""Texts in lower case of errors that a package's own build raises, which say more than that the build failed."""

_SETTING = re.compile(r"^((?:[A-Z][A-Z0-9_]*=(?:'[^']*'|\"[^\"]*\"|[^\s'\"]+)\s+)+)(.*)$")
_PROGRAMS = (
    "apt|apt-file|cargo|cd|cmake|conda|df|dmesg|dnf|docker|export|file|flashdepot|free|g\\+\\+|gcc|git|hash|id|ldd|ls"
    "|nvcc|nvidia-smi|pip|python|rm|rustc|rustup|set|sha256sum|sudo|torchrun|uname|unset|uv|vllm|where|which|winget"
)
_COMMAND = re.compile(rf"(?:[A-Z][A-Z0-9_]*=|(?:{_PROGRAMS})(?: |$)(?!.*[,:] ))")
"""What begins a command; other words are prose, and what parts them is no end of a command."""
_EXPORT = re.compile(r"\bexport ((?:[A-Z][A-Z0-9_]*=\S+\s*)+)")


def for_windows(command: str) -> str:
    """A command for a POSIX shell as cmd.exe takes it; what has no equal there stays.

    No blank stands before ``&&``: to cmd it would be the end of the value.
    """
    code, mark, comment = command.partition("   # ")
    parts = re.split(r"\s*(?:;|&&)\s+", code)
    if '"' not in code and all(map(_COMMAND.match, parts)):
        code = "&& ".join(map(_one, parts))
    for posix, windows in (("$HOME", "%USERPROFILE%"), ("which -a ", "where "), ("grep -i -E ", "findstr /i ")):
        code = code.replace(posix, windows)
    return code + mark + comment


def _one(code: str) -> str:
    if found := _EXPORT.match(code):
        return "&& ".join(f"set {setting}" for setting in found[1].split())
    if found := _SETTING.match(code):
        return "&& ".join([*(f"set {setting}" for setting in found[1].split()), found[2]])
    return code
