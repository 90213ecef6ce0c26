"""A published wheel and its torch, from C++: named by variables, because they are gigabytes.

FLASHDEPOT_TEST_WHEEL is vllm_flash_attn 2.6.2, FLASHDEPOT_TEST_WHEEL_PYTHON an environment with its torch (2.4.0), and
FLASHDEPOT_TEST_OTHER_PYTHON one with a torch of the other C++ ABI (2.7 or newer).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from wheel_world import link_wheel, run

EXAMPLE = Path(__file__).parents[2] / "examples" / "wheel_cpp"


def named(variable: str) -> str:
    if variable not in os.environ:
        pytest.skip(f"needs {variable}")
    return os.environ[variable]


def build(package: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    configured = run("cmake", "-S", EXAMPLE, "-B", folder, f"-DCMAKE_PREFIX_PATH={package}")
    assert configured.returncode == 0, configured.stderr
    return run("cmake", "--build", folder)


def test_a_program_over_a_published_wheel_links_loads_and_runs_as_far_as_the_machine_can(tmp_path: Path) -> None:
    wheel, python = named("FLASHDEPOT_TEST_WHEEL"), named("FLASHDEPOT_TEST_WHEEL_PYTHON")
    done = link_wheel(wheel, "--python", python, "--out", tmp_path / "package", "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["entry_points"]) == {"mha_fwd", "mha_varlen_fwd", "mha_fwd_kvcache"}
    built = build(tmp_path / "package", tmp_path / "build")
    assert built.returncode == 0, built.stdout + built.stderr
    program = str(tmp_path / "build" / "attention")
    ran = subprocess.run([program], capture_output=True, text=True, check=False, env={**os.environ, "LD_BIND_NOW": "1"})
    if "NVIDIA driver" in ran.stderr:
        assert ran.returncode == 3  # every symbol was bound, and torch has looked for a GPU
    else:
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_with_another_torch_exactly_the_symbols_that_were_named_are_undefined(tmp_path: Path) -> None:
    wheel, python = named("FLASHDEPOT_TEST_WHEEL"), named("FLASHDEPOT_TEST_OTHER_PYTHON")
    assert link_wheel(wheel, "--python", python, "--out", tmp_path / "package").returncode == 4
    forced = link_wheel(wheel, "--python", python, "--out", tmp_path / "package", "--force")
    assert forced.returncode == 0, forced.stderr
    foretold = re.search(r"lacks \d+: ([\w, ]+)", forced.stderr)
    assert foretold is not None
    demangled = subprocess.run(
        ["c++filt", "--no-verbose", *foretold[1].strip().split(", ")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    built = build(tmp_path / "package", tmp_path / "build")
    assert built.returncode != 0
    undefined = set(re.findall(r"undefined reference to `(.*)'", built.stdout + built.stderr))
    assert undefined == set(demangled)
