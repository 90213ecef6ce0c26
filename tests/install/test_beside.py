"""The small wheels under other names in a real environment: all of them or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot.errors import IntegrityError
from flashdepot.host.python_environment import probe_python
from flashdepot.install.installation import install_names
from flashdepot.wheel import NAMES
from support.venvs import Venv


def add_flash_attn(site: Path) -> None:
    """As much of our flash-attn as the wheels import."""
    files = {f"flash_attn_2_cuda/{name}.py": "def __getattr__(name): return print\n" for name in ("fa3", "fa4")}
    for name, text in {**files, "flash_attn/__init__.py": "", "flash_attn_2_cuda/__init__.py": ""}.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text)


def tree(site: Path) -> set[str]:
    return {path.relative_to(site).as_posix() for path in site.rglob("*.py") if "flash" in path.as_posix()}


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
def test_they_are_installed_imported_and_replaced_by_the_next(
    environment: Venv, installer: str, tmp_path: Path
) -> None:
    found = probe_python(environment.python)
    add_flash_attn(found.purelib)
    for number in (1, 2):
        names = install_names(list(NAMES.values()), found, tmp_path / str(number), pytest.fail)
        assert names == ("flash-attn-3", "flash-attn-4")
    assert {f for name in NAMES.values() for f in name.files} <= tree(found.purelib)
    assert len(list(found.purelib.glob("flash_attn_3-*.dist-info"))) == 1


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
def test_one_that_does_not_import_leaves_none_of_them(environment: Venv, installer: str, tmp_path: Path) -> None:
    found = probe_python(environment.python)
    add_flash_attn(found.purelib)
    (found.purelib / "flash_attn_2_cuda" / "fa4.py").unlink()
    before = tree(found.purelib)
    with pytest.raises(
        IntegrityError, match=r"'import flash_attn\.cute' fails there: ImportError: .+--names flash-attn-4"
    ):
        install_names(list(NAMES.values()), found, tmp_path, pytest.fail)
    assert tree(found.purelib) == before


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
def test_a_file_of_another_distribution_is_not_overwritten(environment: Venv, installer: str, tmp_path: Path) -> None:
    found = probe_python(environment.python)
    add_flash_attn(found.purelib)
    (found.purelib / "flash_attn" / "cute").mkdir()
    theirs = found.purelib / "flash_attn" / "cute" / "interface.py"
    theirs.write_text("theirs = 1\n")
    with pytest.raises(IntegrityError, match=r"interface\.py is there already, a file of no distribution"):
        install_names([NAMES["flash-attn-4"]], found, tmp_path, pytest.fail)
    assert theirs.read_text() == "theirs = 1\n"
