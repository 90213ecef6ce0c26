"""What is a C layer of its own, and what is not."""

from __future__ import annotations

import io
import shutil
import tokenize
from pathlib import Path

import pytest

from flashdepot.kernels import c_layer


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a copy of the families, which a test may change, as a process that starts then has it."""
    families = tmp_path / "kernels"
    shutil.copytree(Path(c_layer.__file__).parent, families, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(c_layer, "__file__", str(families / "c_layer.py"))
    return families, c_layer.c_layer_digest.__wrapped__


def test_what_python_leaves_next_to_its_modules_is_no_other_c_layer(digest) -> None:
    families, now = digest
    before = now()
    for folder in (families, families / "fa4", families / "fa4" / "worker", families / "gone"):
        cached = folder / "__pycache__"
        cached.mkdir(parents=True)
        (cached / "variants.cpython-311.pyc").touch()
    assert now() == before


FA4 = Path(c_layer.__file__).parent / "fa4"


@pytest.mark.parametrize("name", [name for name in c_layer.choices(FA4) if name.endswith(".py")])
def test_a_number_sign_begins_a_comment_wherever_it_stands(name: str) -> None:
    text = (FA4 / name).read_text()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    assert text.count("#") == sum(token.string.count("#") for token in tokens if token.type == tokenize.COMMENT)
