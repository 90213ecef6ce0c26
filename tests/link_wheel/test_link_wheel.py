"""`link wheel`: a program calls the functions of a published extension."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from wheel_world import MODULE, TorchEnvironment, build_program, link_wheel, make_environment, make_wheel, run

CHECK_FAIL = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"


def test_a_program_compiles_links_loads_and_calls_the_extension(
    wheel: Path, environment: TorchEnvironment, tmp_path: Path, cmake: None
) -> None:
    done = link_wheel(wheel, "--python", environment.python, "--out", tmp_path / "package", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert list(document["entry_points"]) == ["mha_fwd"]
    assert document["left_out"] == ["mha_bwd: nothing in the file says what it returns"]
    assert (tmp_path / "package" / "lib" / MODULE).is_file()
    assert (tmp_path / "package" / "licenses" / "LICENSE").read_text() == "BSD"
    moved = (tmp_path / "package").rename(tmp_path / "moved")
    ran = build_program(moved, tmp_path / "program")
    assert ran.stdout == "2: 42 7\n", ran.stdout + ran.stderr


def test_functions_in_upstreams_namespace_are_declared_there(
    environment: TorchEnvironment, tmp_path: Path, cmake: None
) -> None:
    namespaced = make_wheel(tmp_path, environment, "-DIN_NAMESPACE")
    done = link_wheel(namespaced, "--python", environment.python, "--out", tmp_path / "package")
    assert done.returncode == 0, done.stderr
    ran = build_program(tmp_path / "package", tmp_path / "program", "IN_NAMESPACE")
    assert ran.stdout == "2: 42 7\n", ran.stdout + ran.stderr


def test_a_torch_of_pybind11_3_spells_types_in_two_ways(environment: TorchEnvironment, tmp_path: Path) -> None:
    newest = make_wheel(
        tmp_path,
        environment,
        '-DFLOAT="@typing.SupportsFloat | typing.SupportsIndex@float@"',
        returns="@collections.abc.Sequence@list@[torch.Tensor]",
    )
    done = link_wheel(newest, "--python", environment.python, "--out", tmp_path / "package", "--json")
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["entry_points"]) == ["mha_fwd"]


def test_another_torch_is_refused_by_the_symbol_that_it_lacks_and_when_forced_fails_by_that_symbol(
    wheel: Path, tmp_path: Path, cmake: None
) -> None:
    other = make_environment(tmp_path / "other", "2.4.1", "-DWITHOUT_CHECK")
    refused = link_wheel(wheel, "--python", other.python, "--out", tmp_path / "package")
    assert refused.returncode == 4
    assert f"torch 2.4.1 lacks 1: {CHECK_FAIL}" in refused.stderr
    assert not (tmp_path / "package").exists()

    forced = link_wheel(wheel, "--python", other.python, "--out", tmp_path / "package", "--force")
    assert forced.returncode == 0
    assert CHECK_FAIL in forced.stderr
    built = build_program(tmp_path / "package", tmp_path / "program")
    assert built.returncode != 0
    assert "undefined reference to `c10::detail::torchCheckFail(" in built.stdout + built.stderr


def test_a_torch_with_every_symbol_is_refused_when_the_wheel_requires_another(wheel: Path, tmp_path: Path) -> None:
    newer = make_environment(tmp_path / "newer", "2.5.1+cu124")
    done = link_wheel(wheel, "--python", newer.python, "--out", tmp_path / "package")
    assert done.returncode == 4
    assert "it requires torch<2.5,>=2.4 | torch 2.5.1+cu124" in done.stderr


def test_an_environment_without_torch_is_asked_for_one(
    wheel: Path, environment: TorchEnvironment, tmp_path: Path
) -> None:
    without = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(without)], check=True)
    done = link_wheel(wheel, "--python", without, "--out", tmp_path / "package")
    assert done.returncode == 3
    assert "no torch is known here" in done.stderr
    forced = link_wheel(wheel, "--python", without, "--out", tmp_path / "package", "--force")
    assert forced.returncode == 3
    assert "No torch was found to build with" in forced.stderr


@pytest.mark.parametrize("returns", ["torch.Tensor", "None"])
def test_a_return_type_that_is_not_known_is_not_guessed(
    environment: TorchEnvironment, tmp_path: Path, returns: str
) -> None:
    unclear = make_wheel(tmp_path, environment, returns=returns)
    done = link_wheel(unclear, "--python", environment.python, "--out", tmp_path / "package")
    assert done.returncode == 4
    assert "mha_fwd: nothing in the file says what it returns" in done.stderr
    assert not (tmp_path / "package").exists()


def test_a_damaged_wheel_is_refused_even_when_forced(
    wheel: Path, environment: TorchEnvironment, tmp_path: Path
) -> None:
    damaged = tmp_path / wheel.name
    damaged.write_bytes(wheel.read_bytes()[:-200])
    done = link_wheel(damaged, "--python", environment.python, "--out", tmp_path / "package", "--force")
    assert done.returncode == 6
    assert not (tmp_path / "package").exists()


def test_what_is_no_wheel_is_refused(environment: TorchEnvironment, tmp_path: Path) -> None:
    library = environment.torch / "lib" / "libc10.so"
    done = link_wheel(library, "--python", environment.python, "--out", tmp_path / "package")
    assert done.returncode == 2
    assert "is not a wheel" in done.stderr


def test_a_folder_of_somebody_elses_is_left_alone_and_an_own_one_is_written_again(
    wheel: Path, environment: TorchEnvironment, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    done = link_wheel(wheel, "--python", environment.python, "--out", other)
    assert done.returncode == 2
    assert [path.name for path in other.iterdir()] == ["notes.txt"]
    for _ in range(2):
        assert link_wheel(wheel, "--python", environment.python, "--out", tmp_path / "own").returncode == 0
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == [
        ".flashdepot-wheel.json",
        "include",
        "lib",
        "licenses",
    ]


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
