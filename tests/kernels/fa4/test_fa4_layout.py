from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.files.directory import PlainFiles
from flashdepot.kernels.fa4.sources import KERNELS, Fa4Layout
from flashdepot.toolchain.cute_dsl import provided_version

METADATA = "Metadata-Version: 2.4\nVersion: 4.0.0b99\nRequires-Dist: nvidia-cutlass-dsl{}\nRequires-Dist: torch\n"
PROJECT = """[project]
dependencies = [
    "nvidia-cutlass-dsl{}",
    "torch",
]
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "cute"
    folder.mkdir()
    (folder / KERNELS).write_text("")
    return folder


@pytest.mark.parametrize(("file", "text"), [("PKG-INFO", METADATA), ("pyproject.toml", PROJECT)])
@pytest.mark.parametrize(
    ("wanted", "fits"),
    [(">=4.6.2", True), ("", True), (f"=={provided_version()}", True), (">=5", False), ("<4.8,>=4.6", False)],
)
def test_a_source_for_another_version_of_the_dsl_is_refused(
    source: Path, file: str, text: str, wanted: str, fits: bool
) -> None:
    (source / file).write_text(text.format(wanted))
    if fits:
        Fa4Layout().require_complete(PlainFiles(source))
        return
    with pytest.raises(IncompatibleError) as error:
        Fa4Layout().require_complete(PlainFiles(source))
    assert str(error.value) == (
        f"{source} is written for CuTe DSL {wanted}, and flashdepot compiles FlashAttention-4 with CuTe DSL "
        f"{provided_version()}."
    )
    assert "pip install --upgrade flashdepot" in str(error.value.hint)


def test_a_folder_without_the_kernels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"it has no {KERNELS}"):
        Fa4Layout().require_complete(PlainFiles(tmp_path))
