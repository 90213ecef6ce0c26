"""What a wheel requires, and the small wheels under other names, come with it: all of them or none."""

import json
import shutil
from pathlib import Path

import pytest

from flashdepot.errors import IntegrityError
from flashdepot.host.python_environment import probe_python
from flashdepot.install.installation import install_names
from flashdepot.wheel import NAMES
from support import forge
from support.tools import assert_ends
from support.venvs import TAG, Venv

MODULE = {"flash_attn_2_cuda.py": b""}


@pytest.fixture
def lacking(environment: Venv) -> Venv:
    """An environment with torch and without einops."""
    for path in environment.site.glob("einops*"):
        shutil.rmtree(path)
    return environment


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own settings, which name a folder that has einops and nothing else."""
    (tmp_path / "packages").mkdir()
    forge.wheel(tmp_path / "packages", {"einops/__init__.py": b""}, name="einops", version="0.8.1", tag="py3-none-any")
    (tmp_path / "uv.toml").write_text(
        f"no-index = true\nfind-links = [{str(tmp_path / 'packages')!r}]\nno-cache = true\n"
    )
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))


def wheel(folder: Path, code: bytes, *requires: str) -> str:
    return str(forge.wheel(folder, {"flash_attn/__init__.py": code, **MODULE}, tag=TAG, requires=requires))


def test_einops_is_installed_from_the_users_index(command, lacking, index, tmp_path) -> None:
    name = wheel(tmp_path, b"import einops\n", "torch", "einops", "triton; sys_platform == 'nowhere'")
    planned = command("--wheel", name, "--dry-run")
    assert "with einops, from your index" in planned.err
    done = command("--wheel", name, "--json")
    assert_ends(done, 0, "flash-attn requires einops: it comes from your index.")
    assert json.loads(done.out)["added"] == ["einops"]
    assert lacking.imports("einops")
    assert command("--wheel", name, "--json").code == 0, "it is there now"


def test_what_came_with_a_wheel_that_does_not_work_goes_with_it(command, lacking, index, tmp_path) -> None:
    before = lacking.contents()
    done = command("--wheel", wheel(tmp_path, b"import einops; 1 / 0\n", "torch", "einops"))
    assert_ends(done, 6, "ZeroDivisionError")
    assert lacking.contents() == before


ELSEWHERE = {
    "the index has none": (("torch", "nowhere"), 7, "did not install nowhere"),
    "another version is there": (("torch>=99",), 4, "requires torch>=99, and"),
}


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_requirement_that_cannot_be_met_is_named_and_nothing_changes(command, lacking, index, tmp_path, case) -> None:
    before = lacking.contents()
    requires, code, said = ELSEWHERE[case]
    done = command("--wheel", wheel(tmp_path, b"", *requires))
    assert_ends(done, code, said)
    assert lacking.contents() == before


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
def test_offline_the_command_is_given(command, lacking, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    done = command("--wheel", wheel(tmp_path, b"", "torch", "einops"))
    assert_ends(done, 7, f"uv pip install --python {lacking.python} einops")


def add_flash_attn(site: Path) -> None:
    """As much of our flash-attn as the wheels import."""
    files = {f"flash_attn_2_cuda/{name}.py": "def __getattr__(name): return print\n" for name in ("fa3", "fa4")}
    for name, text in {**files, "flash_attn/__init__.py": "", "flash_attn_2_cuda/__init__.py": ""}.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text)


def tree(site: Path) -> set[str]:
    return {path.relative_to(site).as_posix() for path in site.rglob("*.py") if "flash" in path.as_posix()}


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
def test_they_are_installed_imported_and_replaced_by_the_next(environment, installer, tmp_path) -> None:
    found = probe_python(environment.python)
    add_flash_attn(found.purelib)
    for number in (1, 2):
        names = install_names(list(NAMES.values()), found, tmp_path / str(number), pytest.fail)
        assert names == ("flash-attn-3", "flash-attn-4")
    assert {f for name in NAMES.values() for f in name.files} <= tree(found.purelib)
    assert len(list(found.purelib.glob("flash_attn_3-*.dist-info"))) == 1


@pytest.mark.parametrize("installer", ["uv"], indirect=True)
def test_one_that_does_not_import_leaves_none_of_them(environment, installer, tmp_path) -> None:
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
def test_a_file_of_another_distribution_is_not_overwritten(environment, installer, tmp_path) -> None:
    found = probe_python(environment.python)
    add_flash_attn(found.purelib)
    (found.purelib / "flash_attn" / "cute").mkdir()
    theirs = found.purelib / "flash_attn" / "cute" / "interface.py"
    theirs.write_text("theirs = 1\n")
    with pytest.raises(IntegrityError, match=r"interface\.py exists already and belongs to no distribution"):
        install_names([NAMES["flash-attn-4"]], found, tmp_path, pytest.fail)
    assert theirs.read_text() == "theirs = 1\n"
