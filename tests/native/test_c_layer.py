"""The C layer: its objects need no C++ run time, and arguments that make no sense get a status and a text."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support import stub_library
from support.stub_library import NATIVE, family_words, run, write_config

OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")
SOURCES = [path for folder in ("src", "driver") for path in sorted((NATIVE / folder).rglob("*.cpp"))]
CXX = re.compile(r"_ZSt|_ZNSt|_ZNKSt|_Zn[wa]|_Zd[la]|__cxa_|__gxx_|_Unwind_|__dynamic_cast|__libc_single_threaded")
"""Names of libstdc++, libc++ and their ABI libraries: what throws, allocates, guards a static, or unwinds."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    write_config(folder)
    return folder


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(NATIVE)))
def test_an_object_refers_to_the_c_library_only(
    source: Path, config: Path, source_trees: dict[str, Path], cuda_include: Path, tmp_path: Path
) -> None:
    folders = [config, *(NATIVE / name for name in ("include", "src", "shim", "driver"))]
    output = tmp_path / "object.o"
    run(
        [
            *("g++", *OPTIONS, *(f"-I{folder}" for folder in folders), *family_words(source, source_trees)),
            *("-isystem", str(cuda_include), "-c", str(source), "-o", str(output)),
        ]
    )
    needed = {line.split()[-1] for line in run(["nm", "-u", str(output)]).splitlines()}
    assert not {name for name in needed if CXX.match(name)} - {"__cxa_atexit", "__cxa_finalize"}  # the C library's


@pytest.fixture(scope="module")
def program(upstream_tree: Path, cuda_include: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    options = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")
    return stub_library.build_program("random_calls.cpp", folder, upstream_tree, cuda_include, *options)


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_are_answered_and_no_sanitizer_complains(program: Path, seed: int) -> None:
    done = subprocess.run([str(program), str(seed), "20000"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:3000]) == (0, "")
    ok, invalid, unsupported, no_kernel, too_small, cuda, internal, unknown = map(int, done.stdout.split())
    assert min(ok, invalid, unsupported, no_kernel, too_small) > 20
    assert cuda == internal == unknown == 0
