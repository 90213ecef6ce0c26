"""What is set here and made the tool do what failed is taken back first."""

import io
from pathlib import Path

import pytest

from doctor.logs import NO_ENVIRONMENT, carried
from flashdepot.diagnose.explain import Files, explain


@pytest.mark.parametrize(
    ("name", "value", "log"),
    [
        ("NVCC_PREPEND_FLAGS", "-ccbin /gone/bin/g++", "/gone/bin/g++: No such file or directory\n"),
        (
            "UV_OFFLINE",
            "1",
            "$ uv pip install x\nerror: x\nhint: Packages were unavailable because the network was disabled\n",
        ),
        ("OPENSSL_DIR", "/gone", "thread 'main' panicked at openssl-sys-0.9.118/build/main.rs:207:9:\n"),
    ],
)
def test_a_variable_that_made_the_tool_do_it_is_unset_first(tmp_path, monkeypatch, name, value, log) -> None:
    monkeypatch.setenv(name, value)
    report = explain(io.BytesIO(log.encode()), None, "", Files(here=True))
    fix = (report.findings[0].fix if report.findings else report.next_steps)[0]
    assert fix.startswith("unset ")
    assert name in fix.partition("   # ")[0]


def test_a_line_of_a_file_of_settings_that_is_at_fault_is_taken_out(tmp_path: Path) -> None:
    (tmp_path / "uv.toml").write_text("no-build = false\noffline = true\n")
    log = "error: x\nhint: Packages were unavailable because the network was disabled\n"
    assert carried(log, "uv pip install x", NO_ENVIRONMENT, tmp_path).startswith(
        "sed -i.bak 2d uv.toml   # offline = true"
    )


def test_a_variable_that_has_nothing_to_do_with_the_error_is_left_as_it_is(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CONDA_PKGS_DIRS", "/gone")
    assert "unset" not in carried(
        "SomeCondaError: the file is not one\n", "conda create -n a x", NO_ENVIRONMENT, tmp_path
    )


@pytest.mark.parametrize(
    ("name", "value", "command", "log", "said"),
    [
        ("UV_SYSTEM_PYTHON", "1", "uv pip install x", "error: The interpreter at `/usr` is externally managed\n\nhint: Virtual environments were not considered due to the `--system` flag\n", "unset UV_SYSTEM_PYTHON "),
        ("PIP_CERT", "/", "pip install x", "ERROR: Could not fetch URL https://x: SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))\n", "unset PIP_CERT "),
        ("UV_CACHE_DIR", "/full/uv", "uv pip install x", "error: Failed to download `x`\n  cause: failed to write to file `/full/uv/.tmp/x.so`: No space left on device (os error 28)\n", "export UV_CACHE_DIR=/"),
    ],
)  # fmt: skip
def test_what_is_set_here_and_made_the_tool_do_it_is_in_the_first_command(
    tmp_path, monkeypatch, name, value, command, log, said
) -> None:
    monkeypatch.setenv(name, value)
    assert carried(log, command, NO_ENVIRONMENT, tmp_path).startswith(said)


def test_a_cache_of_cmake_that_names_what_is_gone_is_removed(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build/CMakeCache.txt").write_text("CMAKE_CXX_COMPILER:FILEPATH=/gone/g++\n")
    log = "CMake Error:\n  The CMAKE_CXX_COMPILER:\n\n    /gone/g++\n\n  is not a full path to an existing compiler tool: '/gone/g++'\n"
    fix = carried(log, "cmake -S . -B build", NO_ENVIRONMENT, tmp_path)
    assert fix.startswith("rm -rf build/CMakeCache.txt build/CMakeFiles")


def test_a_toolchain_file_that_is_gone_is_taken_out_of_the_variable_and_of_the_cache(tmp_path, monkeypatch) -> None:
    (tmp_path / "CMakeCache.txt").write_text("CMAKE_TOOLCHAIN_FILE:FILEPATH=/gone/tc.cmake\n")
    monkeypatch.setenv("CMAKE_TOOLCHAIN_FILE", "/gone/tc.cmake")
    log = "CMake Error: Could not find toolchain file: /gone/tc.cmake\nCMake Error: CMAKE_CXX_COMPILER not set, after\n"
    fix = carried(log, "cmake -B .", NO_ENVIRONMENT, tmp_path)
    assert fix.startswith("unset CMAKE_TOOLCHAIN_FILE && rm -rf ./CMakeCache.txt ./CMakeFiles   # ")
