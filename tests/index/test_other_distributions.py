"""Wheels of an index that are not flash-attn's: the small ones of FlashAttention-3 and -4, and flashdepot-jax."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from flashdepot.errors import IncompatibleError, IntegrityError, UsageError
from flashdepot.model.index_record import RECORD_NAME, IndexRecord
from flashdepot.model.manifest import Manifest
from flashdepot.wheel import NAMES, build_names
from flashdepot.wheel.builder import Wheel, build_jax_wheel
from index.test_installers import INSTALLERS
from support.tools import posix, run_program
from support.wheels import WheelMaker

LATER = 1_790_100_000


def for_jax(maker: WheelMaker, wheel: Wheel) -> Path:
    """The wheel for JAX over the library that is in a wheel."""
    with zipfile.ZipFile(wheel.path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/flashdepot.json"))
        manifest = Manifest.from_json(json.loads(archive.read(name)))
    return build_jax_wheel(manifest, maker.depot.libraries.materialise(manifest), maker.folder / "dist").path


def files(public: Path, project: str, subindex: str = "simple") -> dict[str, dict[str, object]]:
    document = json.loads((public / subindex / project / "index.json").read_bytes())
    assert document["name"] == project
    return {file["filename"]: file for file in document["files"]}


@pytest.mark.slow
@posix("wheel here: the one that is made is for Linux")
@pytest.mark.parametrize("command", INSTALLERS)
def test_pip_and_uv_install_every_distribution_from_one_address(command, maker, publish, address, tmp_path) -> None:
    wheel = maker.make()
    publish(wheel.path, for_jax(maker, wheel), names=[*NAMES.values()])
    wanted = ["flash-attn", "flash-attn-3", "flash-attn-4", "flashdepot-jax"]
    words = [*command, "--no-deps", "--target", "to", "--index-url", f"{address}simple/", *wanted]
    run_program(words, cwd=tmp_path)
    to = tmp_path / "to"
    for file in ("flash_attn/__init__.py", "flash_attn_interface.py", "flash_attn/cute/interface.py"):
        assert (to / file).is_file()
    assert (to / "flashdepot_jax/lib/libflashattention.so.1").is_file()


def test_every_subindex_has_the_names_and_the_record_reads_back(maker, publish, public) -> None:
    site = publish(maker.make().path, maker.make("90").path, names=[*NAMES.values()])
    assert len(site.subindexes) == 3
    for subindex in site.subindexes:
        projects = json.loads((public / subindex.name / "index.json").read_bytes())["projects"]
        assert [project["name"] for project in projects] == ["flash-attn", "flash-attn-3", "flash-attn-4"]
        (file,) = files(public, "flash-attn-3", subindex.name).values()
        assert file["yanked"] is False
    assert IndexRecord.from_json(json.loads((public / RECORD_NAME).read_bytes())) == site.record
    assert {file.distribution for file in site.record.names} == {*NAMES}


def test_what_was_there_stays_and_what_somebody_removed_goes(maker, publish, public) -> None:
    publish(maker.make().path, names=[*NAMES.values()])
    site = publish(maker.make("90").path, when=LATER)
    assert [file.uploaded[:10] for file in site.record.names] == ["2026-09-21"] * 2
    (public / "files" / site.record.names[0].filename).unlink()
    site = publish(maker.make("80").path, when=LATER)
    assert [file.distribution for file in site.record.names] == ["flash-attn-4"]
    assert not (public / "simple" / "flash-attn-3").exists()


def test_of_wheels_for_jax_the_one_that_serves_most_is_taken(maker, publish, public) -> None:
    every = [maker.make("80,90,120"), maker.make("90")]
    whole, part = (for_jax(maker, wheel) for wheel in every)
    publish(*(wheel.path for wheel in every), whole, part)
    found = files(public, "flashdepot-jax")
    assert {name: bool(file["yanked"]) for name, file in found.items()} == {whole.name: False, part.name: True}
    taken = files(public, "flashdepot-jax", "cu130-full-hd64-sm90")
    assert [*taken] == [part.name]


def test_a_wheel_of_such_a_name_that_is_not_ours_or_is_damaged_is_refused(maker, publish, tmp_path) -> None:
    ours = build_names([NAMES["flash-attn-3"]], tmp_path)[0].path
    other = tmp_path / "flash_attn_3-3.0.0-py3-none-any.whl"
    shutil.copy(ours, other)
    with pytest.raises(UsageError, match="is not a wheel that this flashdepot makes"):
        publish(maker.make().path, other)
    data = ours.read_bytes()
    ours.write_bytes(data.replace(b"noqa: F401", b"noqa: F402", 1))
    with pytest.raises(IntegrityError, match="is cut off or damaged"):
        publish(maker.make().path, ours)


def test_names_without_a_flash_attn_are_no_index(publish) -> None:
    with pytest.raises(IncompatibleError, match="no wheel for the index"):
        publish(*[], names=[*NAMES.values()])
