"""The small wheels under other names: what is in them, and that programs find them and nothing breaks."""

import itertools
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename

from flashdepot.depot import Depot
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.resolve.lock import LockedName
from flashdepot.wheel import NAMES, build_names, parse_names, pin_names, require_names, write_kernels
from flashdepot.wheel.builder import Wheel, build_jax_wheel, build_wheel
from support.tools import run_program
from support.wheels import make_source, store_wheel_library

FOUND = """
import json, sys
sys.path.insert(0, sys.argv[1])
from importlib.metadata import packages_distributions
print(json.dumps(packages_distributions()))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wheel]:
    folder = tmp_path_factory.mktemp("dist")
    return dict(zip(NAMES, build_names(list(NAMES.values()), folder), strict=True))


@pytest.fixture(scope="module")
def over_a_library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Wheel, Wheel]:
    """The wheels for torch and for JAX over one library."""
    folder = tmp_path_factory.mktemp("ours")
    tree, depot = make_source(folder / "upstream"), Depot(folder / "depot")
    manifest = store_wheel_library(depot, tree, folder / "files")
    library = depot.libraries.materialise(manifest)
    return build_wheel(manifest, library, {"fa2": tree}, folder / "dist"), build_jax_wheel(
        manifest, library, folder / "dist"
    )


@pytest.fixture
def flash_attn(over_a_library: tuple[Wheel, Wheel]) -> Wheel:
    return over_a_library[0]


@pytest.fixture
def for_jax(over_a_library: tuple[Wheel, Wheel]) -> Wheel:
    return over_a_library[1]


def uv(word: str, *words: str, site: Path) -> None:
    command = ["uv", "pip", word, "--offline", "--python", str(site), *words]
    run_program(command)


def pip(word: str, *words: str, site: Path) -> None:
    yes = ("--yes",) if word == "uninstall" else ("--no-compile",)
    command = [sys.executable, "-m", "pip", "--python", str(site), "--isolated", "--disable-pip-version-check", word]
    run_program([*command, *yes, *words])


def files(wheel: Wheel) -> set[str]:
    with zipfile.ZipFile(wheel.path) as archive:
        return set(archive.namelist())


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_says_whose_it_is_and_what_it_needs(wheels, name) -> None:
    wheel = wheels[name]
    parsed, version, _, tags = parse_wheel_filename(wheel.path.name)
    assert (parsed, version.local.split(".")[0] if version.local else None) == (name, "flashdepot")
    assert {str(tag) for tag in tags} == {"py3-none-any"}
    with zipfile.ZipFile(wheel.path) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith("METADATA"))
        read = Metadata.from_email(archive.read(metadata), validate=True)
    assert "flash-attn" in [str(need) for need in read.requires_dist or []]
    assert "not made by the authors" in (read.summary or "")


def test_no_file_is_in_two_of_the_wheels(wheels, flash_attn, for_jax) -> None:
    for one, other in itertools.combinations([flash_attn, for_jax, *wheels.values()], 2):
        assert not files(one) & files(other)


def test_programs_find_each_module_under_the_distribution_that_they_look_for(wheels, flash_attn, tmp_path) -> None:
    for wheel in (flash_attn, *wheels.values()):
        with zipfile.ZipFile(wheel.path) as archive:
            archive.extractall(tmp_path)
    owners = json.loads(run_program([sys.executable, "-c", FOUND, str(tmp_path)]))
    assert owners["flash_attn_interface"] == owners["flash_attn_3"] == ["flash-attn-3"]
    assert {owner.replace("_", "-") for owner in owners["flash_attn"]} == {"flash-attn", "flash-attn-4"}
    assert all("top_level.txt" in " ".join(files(wheel)) for wheel in wheels.values()), "Python 3.10 asks for it"


@pytest.mark.parametrize("name", NAMES)
def test_without_flashdepots_flash_attn_the_error_says_what_to_install(wheels, name, tmp_path) -> None:
    with zipfile.ZipFile(wheels[name].path) as archive:
        archive.extractall(tmp_path)
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {NAMES[name].imported}"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert f"flashdepot install --source ours --names {name}" in done.stderr.splitlines()[-1]


@pytest.mark.needs("uv")
@pytest.mark.parametrize(
    ("installer", "order"),
    [
        *((uv, order) for order in itertools.permutations(range(4))),
        pytest.param(pip, (2, 0, 3, 1), marks=pytest.mark.slow),
    ],
)
def test_in_any_order_what_is_installed_and_uninstalled_leaves_the_others_whole(
    wheels, flash_attn, for_jax, tmp_path, installer, order
) -> None:
    distributions = ["flash-attn", *wheels, "flashdepot-jax"]
    come_and_go(installer, [flash_attn, *wheels.values(), for_jax], distributions, tmp_path, order)
    command = ["uv", "pip", "check", "--python", str(tmp_path / "env")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    missing = {
        line.split("`")[3].partition(">")[0] for line in checked.stderr.splitlines() if line.startswith("The package")
    }
    assert missing == {"torch", "einops", "jax"}, "of all that they need, only what was not installed here"


def come_and_go(
    installer: Callable[..., None], made: list[Wheel], distributions: list[str], tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Install wheels in an order, take each away in that order, and install them again; all files are right after each."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    site = tmp_path / "env"
    there = set[int]()

    def assert_whole() -> None:
        folders = (site / "lib").glob("python*/site-packages")  # pip removes an empty one
        left = {p.relative_to(folder).as_posix() for folder in folders for p in folder.rglob("*") if p.is_file()}
        left = {name for name in left if ".dist-info/" not in name and "__pycache__" not in name}
        assert left == {name for i in there for name in files(made[i]) if ".dist-info/" not in name}

    for index in order:
        installer("install", "--no-deps", "--no-index", str(made[index].path), site=site)
        there.add(index)
        assert_whole()
    for index in order:
        installer("uninstall", distributions[index], site=site)
        there.remove(index)
        assert_whole()
    installer("install", "--no-deps", "--no-index", *(str(made[index].path) for index in order), site=site)
    there.update(order)
    assert_whole()


def test_a_lock_pins_the_bytes_of_the_wheels_and_no_zlib_decides_them(wheels) -> None:
    pins = pin_names([*NAMES.values()])
    assert [(pin.distribution, pin.sha256) for pin in pins] == [(name, wheels[name].sha256) for name in NAMES]
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel.path) as archive:
            assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    assert require_names(pins) == [*NAMES.values()]


@pytest.mark.parametrize(
    "file", ["flash_attn_3-3.0.0+flashdepot.0.0.1-py3-none-any.whl", "", "other-1-py3-none-any.whl"]
)
def test_a_lock_of_another_flashdepots_wheels_is_refused(file) -> None:
    (pin,) = pin_names([NAMES["flash-attn-3"]])
    with pytest.raises(IntegrityError, match=r"The lock pins .* makes"):
        require_names([LockedName(file or pin.filename, "ab" * 32)])


def test_names_are_read_as_people_write_them() -> None:
    assert [name.distribution for name in parse_names("flash_attn_3, flash-attn-4,flash-attn-3")] == [*NAMES]
    assert parse_names("") == []


def test_an_unknown_name_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"there are flash-attn-3, flash-attn-4"):
        parse_names("flash-attn-5")


def test_a_kernel_of_hugging_face_is_a_module_of_the_wheels_with_what_its_loader_reads(tmp_path) -> None:
    folders = write_kernels(tmp_path)
    assert [folder.name for folder in folders] == ["flash-attn2", "flash-attn3", "flash-attn4"]
    for folder in folders:
        metadata = json.loads((folder / "build/torch-cuda/metadata.json").read_text())
        assert (metadata["name"], metadata["backend"]) == (folder.name, {"type": "cuda"})
        assert metadata["id"].isidentifier()
    texts = [(folder / "build/torch-cuda/__init__.py").read_text() for folder in folders]
    imported = {line.split()[1] for text in texts for line in text.splitlines() if line.startswith("from ")}
    assert imported == {"flash_attn", *(name.imported for name in NAMES.values())}


def test_a_kernels_folder_of_somebody_else_is_left_untouched(tmp_path) -> None:
    other = tmp_path / "flash-attn2/build/torch-cuda/__init__.py"
    other.mkdir(parents=True)
    with pytest.raises(UsageError, match="neither followed nor replaced"):
        write_kernels(tmp_path)
