"""One wheel file under many Pythons and torches: what it imports as, and what a call with CPU tensors gets.

Usage: python benchmarks/import_matrix.py WHEEL PYTHON...      (interpreters of environments that have torch and einops)

The file is installed with uv, as it is, into each environment. Its SHA-256 is printed once, for all rows.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

INSIDE = """
import sys, torch, flash_attn
operators = [n for n in ("_flash_attn_forward", "_flash_attn_varlen_forward", "_flash_attn_backward",
                         "_flash_attn_varlen_backward") if hasattr(torch.ops.flash_attn, n)]
q = torch.zeros(1, 8, 2, 64, dtype=torch.bfloat16)
try:
    flash_attn.flash_attn_func(q, q, q)
    answer = "no error"
except Exception as error:
    answer = f"{type(error).__name__}: {error}".replace("\\n", " | ")
abi = "new" if torch._C._GLIBCXX_USE_CXX11_ABI else "old"
print(f"| {sys.version.split()[0]} | {torch.__version__} | {abi} | {flash_attn.__version__} | {len(operators)} | {answer} |")
"""


def main() -> int:
    """Print the table; the exit code is 1 when an import fails."""
    wheel, pythons = Path(sys.argv[1]), sys.argv[2:]
    print(f"{wheel.name}, SHA-256 {hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    print("| Python | torch | C++ ABI | flash_attn | operators | flash_attn_func of CPU tensors |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    failed = 0
    for python in pythons:
        install = ["uv", "pip", "install", "-q", "--no-deps", "--reinstall", "--python", python, str(wheel)]
        subprocess.run(install, check=True)
        failed |= subprocess.run([python, "-W", "ignore", "-c", INSIDE], check=False).returncode
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
