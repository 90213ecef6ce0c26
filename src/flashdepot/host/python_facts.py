"""Run by the interpreter that is asked about: prints facts of its environment as JSON, and imports nothing of it.

A program of its own, for any Python from 3.7 on, with the standard library only. torch is read from its files.
"""

from __future__ import annotations

import glob
import json
import os
import platform
import re
import sys
import sysconfig

PACKAGES = (
    "torch",
    "einops",
    "flash-attn",
    "flash-attn-3",
    "packaging",
    "wheel",
    "setuptools",
    "ninja",
    "psutil",
    "numpy",
    "pip",
    "uv",
    "xformers",
    "vllm",
)
EXTENSIONS = ("flash_attn_2_cuda", "flash_attn_3_cuda", "flash_attn_cuda", "flash_attn_3/_C")


def read(path: str, size: int = -1) -> bytes:
    """A file's bytes, empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def names(folder: str) -> list[str]:
    """What is in a folder, nothing when it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def packages() -> dict[str, str]:
    """Versions by normalized name, from the names of the metadata folders."""
    found: dict[str, str] = {}
    for folder in sys.path:
        for name in names(folder):
            match = re.match(r"(.+?)-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info$", name)
            if match:
                found.setdefault(re.sub(r"[-_.]+", "-", match.group(1)).lower(), match.group(2))
    return {name: found[name] for name in PACKAGES if name in found}


def torch() -> dict[str, object] | None:
    """What torch's version.py and libraries say; None without torch."""
    for folder in sys.path:
        place = os.path.join(os.path.abspath(folder), "torch")
        text = read(os.path.join(place, "version.py")).decode("utf-8", "replace")
        values = dict(re.findall(r"^(\w+)(?:\s*:[^=\n]+)?\s*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE))
        version = values.get("__version__")
        if version:
            libraries = os.path.join(place, "lib")
            return {
                "version": version,
                "accelerator": "rocm" if values.get("hip") else "cuda" if values.get("cuda") else "cpu",
                "cuda": values.get("cuda"),
                "hip": values.get("hip"),
                "cxx11_abi": cxx11_abi(place),
                "folder": place,
                "architectures": architectures(libraries),
                "libraries": [name for name in names(libraries) if re.search(r"\.(?:so[\d.]*|dll|dylib)$", name)],
            }
    return None


def cxx11_abi(place: str) -> bool | None:
    """Which of libstdc++'s two C++ ABIs torch uses; None where its files do not tell.

    libc10.so has strings of both kinds; the constructor of c10::Error has the string type of the ABI in its name.
    """
    library = read(os.path.join(place, "lib", "libc10.so"), 64 << 20)
    named = re.search(rb"_ZN3c105ErrorC[12]ENS_14SourceLocationE(Ss|NSt7__cxx11)", library)
    if named:
        return named.group(1) != b"Ss"
    cmake = read(os.path.join(place, "share", "cmake", "Torch", "TorchConfig.cmake")).decode("utf-8", "replace")
    match = re.search(r"_GLIBCXX_USE_CXX11_ABI=([01])", cmake)
    return match.group(1) == "1" if match else None


def architectures(libraries: str) -> list[str]:
    """What torch.cuda.get_arch_list() would say: torch/csrc/cuda/Module.cpp has the list as one string."""
    spelled = re.compile(rb"(?:sm|compute)_\d+[af]?(?: (?:sm|compute)_\d+[af]?)*(?=\0)")
    for name in ("libtorch_python.so", "torch_python.dll"):
        library = read(os.path.join(libraries, name), 256 << 20)
        start = library.find(b"sm_")
        while start >= 0:
            match = spelled.match(library, start)
            if match:
                return [word.partition("_")[2] for word in match.group().decode().split() if word.startswith("sm_")]
            start = library.find(b"sm_", start + 1)
    return []


def extensions() -> list[dict[str, str]]:
    """The compiled modules of FlashAttention that Python would find."""
    found: list[dict[str, str]] = []
    for folder in sys.path:
        place = os.path.abspath(folder)
        for module in EXTENSIONS:
            for pattern in (".*so", ".*pyd", ".py", "/__init__.py"):
                found += [
                    {"module": module.replace("/", "."), "path": path}
                    for path in sorted(glob.glob(os.path.join(glob.escape(place), *module.split("/")) + pattern))
                    if {"module": module.replace("/", "."), "path": path} not in found
                ]
    return found


def glibc() -> str | None:
    """The version of the GNU C library that the interpreter runs with; None for another."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return version if name == "glibc" else None


def shared_library() -> str | None:
    """The file of an interpreter that is a shared library; None for one that is linked into its program."""
    variables = sysconfig.get_config_vars("LIBDIR", "INSTSONAME", "Py_ENABLE_SHARED")
    path = os.path.join(*map(str, variables[:2]))
    return path if variables[2] and os.path.isfile(path) else None


def nearest(path: str) -> str:
    """A folder, or the nearest one above it that is there: installers make the rest."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def embedded() -> bool:
    """Whether it is the embeddable Python for Windows, as portable applications bring one: its own environment."""
    folder = os.path.dirname(sys.executable)
    return os.name == "nt" and any(re.match(r"python\d+\._pth$", name) for name in names(folder))


def facts() -> dict[str, object]:
    """Everything, as the record of flashdepot.model.environment.PythonEnvironment."""
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    short = {"cpython": "cp", "pypy": "pp"}.get(sys.implementation.name, sys.implementation.name)
    site = sysconfig.get_path("purelib")
    installed = packages()
    return {
        "executable": sys.executable,
        "version": ".".join(str(n) for n in sys.version_info[:3]),
        "implementation": platform.python_implementation(),
        "tag": "{}{}{}{}".format(short, sys.version_info[0], sys.version_info[1], "t" if free_threaded else ""),
        "platform": sysconfig.get_platform(),
        "free_threaded": free_threaded,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "site": site,
        "platlib": sysconfig.get_path("platlib"),
        "scripts": sysconfig.get_path("scripts"),
        "data": sysconfig.get_path("data"),
        "search": sys.path,
        "virtual": sys.prefix != sys.base_prefix,
        "managed": sys.prefix == sys.base_prefix
        and os.path.isfile(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")),
        "embedded": embedded(),
        "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
        "writable": os.access(nearest(site), os.W_OK),
        "libc": glibc(),
        "library": shared_library(),
        "torch": torch(),
        "packages": installed,
        "extensions": extensions(),
        "installers": ["pip"] if "pip" in installed else [],
        "shadow": None,
    }


# The line begins with a word of the caller's: what the environment prints when it starts is not an answer.
sys.stdout.write(sys.argv[1] + json.dumps(facts()) + "\n")
