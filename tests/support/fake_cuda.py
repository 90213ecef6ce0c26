"""Toolkit folders whose nvcc answers like a real one of some release, for tests of decisions."""

from __future__ import annotations

from pathlib import Path

from flashdepot.model.host import CudaToolkit, Gpu, HostCompiler, HostRecord
from flashdepot.model.target import Platform, Version

CODES = {
    "11.8": "70 75 80 86 87 89 90",
    "12.4": "70 75 80 86 87 89 90",
    "12.8": "75 80 86 87 89 90 100 101 120",
    "13.0": "75 80 86 87 88 89 90 100 103 110 120 121",
}
NEWEST_GCC = {"11.8": 11, "12.4": 13, "12.8": 14, "13.0": 15}
NEWEST_CLANG = {"11.8": 14, "12.4": 17, "12.8": 19, "13.0": 20}


def make_toolkit(root: Path, release: str) -> CudaToolkit:
    """A folder that looks like the CUDA toolkit of a release."""
    files = [
        "bin/cudafe++",
        "bin/ptxas",
        "bin/fatbinary",
        "bin/nvcc.profile",
        "nvvm/bin/cicc",
        "nvvm/libdevice/libdevice.10.bc",
        "lib64/libcudart_static.a",
    ]
    for name in [*files, "include/cuda_runtime.h", "include/cuda_fp16.h"]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    config = root / "include/crt/host_config.h"
    config.parent.mkdir()
    config.write_text(
        f"#if __GNUC__ > {NEWEST_GCC[release]}\n#error\n#endif\n"
        f"#if (__clang_major__ >= {NEWEST_CLANG[release] + 1}) || (__clang_major__ < 3)\n#error\n#endif\n"
        "#if _MSC_VER < 1920 || _MSC_VER >= 1950\n#error\n#endif\n"
    )
    nvcc = root / "bin/nvcc"
    codes = " ".join(f"sm_{code}" for code in CODES[release].split())
    nvcc.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f'--version) echo "Cuda compilation tools, release {release}, V{release}.99";;\n'
        f'--list-gpu-code) printf "%s\\n" {codes};;\n'
        '--help) echo "--objdir-as-tempdir (-objtemp)";;\n'
        f'--dryrun) echo "#\\$ TOP={root}" >&2;;\n'
        "esac\n"
    )
    nvcc.chmod(0o755)
    return CudaToolkit(str(root), Version(f"{release}.99"), "PATH")


def make_host(
    *toolkits: CudaToolkit,
    gcc: tuple[str, ...] = ("12.2.0",),
    driver: str | None = None,
    gpus: tuple[Gpu, ...] = (),
    os_name: str = "Debian GNU/Linux 12 (bookworm)",
    platform: str = "linux-x86_64",
    compilers: tuple[HostCompiler, ...] | None = None,
) -> HostRecord:
    """A host record with these facts; ``compilers`` in place of those of ``gcc``."""
    gnu = tuple(HostCompiler("g++", f"/usr/bin/g++-{v.split('.')[0]}", Version(v)) for v in gcc)
    return HostRecord(
        platform=Platform.parse(platform),
        os_name=os_name,
        libc=Version("2.36"),
        cores=2,
        memory=8 * 10**9,
        driver=Version(driver) if driver else None,
        gpus=gpus,
        toolkits=toolkits,
        compilers=gnu if compilers is None else compilers,
    )
