"""Arguments that make no sense get a status and a text, and no byte is read or written that is not there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support import stub_library


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
