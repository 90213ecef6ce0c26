"""A cargo project that uses the stand-in for candle-flash-attn."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

STAND_IN = Path(__file__).parents[1] / "candle" / "stand_in"


def write_stand_in(folder: Path, version: str, build_dependencies: str = "") -> Path:
    """The crate, with two kernel sources."""
    shutil.copytree(STAND_IN, folder)
    manifest = folder / "Cargo.toml"
    text = manifest.read_text().replace("@VERSION@", version).replace("@BUILD_DEPENDENCIES@", build_dependencies)
    manifest.write_text(text)
    (folder / "kernels").mkdir()
    for name in ("flash_api.cu", "flash_fwd_kernel.h"):
        (folder / "kernels" / name).write_text("// a kernel\n")
    return folder


def write_program(folder: Path, dependency: str, more: str = "") -> Path:
    """A program that calls the crate once."""
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "program"\nversion = "0.1.0"\nedition = "2021"\n\n'
        f"[dependencies]\n{dependency}\n\n{more}\n\n[workspace]\n"
    )
    (folder / "src" / "main.rs").write_text("fn main() {\n    candle_flash_attn::attention();\n}\n")
    return folder


def cargo_run(project: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Build and run it offline."""
    command = ["cargo", "run", "--offline", "--quiet", "--manifest-path", str(project / "Cargo.toml")]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env})
