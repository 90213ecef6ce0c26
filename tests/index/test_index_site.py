"""The files of an index: what is in them, and that nothing is lost, half-written or touched."""

import hashlib
import json
import os
import re
import zipfile
from pathlib import Path
from urllib.parse import unquote

import pypi_simple
import pytest

from flashdepot import api
from flashdepot.depot import Depot
from flashdepot.errors import IncompatibleError, IntegrityError, UsageError
from flashdepot.model.index_record import RECORD_NAME, IndexRecord
from support.depots import store_library
from support.tools import assert_ends, contents, flashdepot_here, unchanged

LATER = 1_790_100_000


def project(public: Path, subindex: str = "simple") -> dict[str, dict[str, object]]:
    document = json.loads((public / subindex / "flash-attn" / "index.json").read_bytes())
    return {file["filename"]: file for file in document["files"]}


def offered(public: Path, subindex: str = "simple") -> set[str]:
    return {name for name, file in project(public, subindex).items() if not file["yanked"]}


def test_every_file_has_its_digest_size_time_and_metadata(maker, publish, public) -> None:
    wheel = maker.make()
    publish(wheel.path)
    (file,) = project(public).values()
    path = public / "simple" / "flash-attn" / unquote(str(file["url"]))
    assert path.read_bytes() == wheel.path.read_bytes()
    assert file["hashes"] == {"sha256": wheel.sha256}
    assert (file["size"], file["upload-time"]) == (wheel.size, "2026-09-21T14:13:20.000000Z")
    sidecar = path.with_name(f"{path.name}.metadata").read_bytes()
    assert file["core-metadata"] == file["dist-info-metadata"] == {"sha256": hashlib.sha256(sidecar).hexdigest()}
    with zipfile.ZipFile(path) as archive:
        (metadata,) = (archive.read(name) for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    assert sidecar == metadata


def test_html_and_json_say_the_same_and_are_what_other_programs_read(maker, publish, public) -> None:
    publish(*(maker.make(sass).path for sass in ("80,90", "90", "80")))
    folder = public / "simple" / "flash-attn"
    address = "https://example.org/simple/flash-attn/"
    html = pypi_simple.ProjectPage.from_html("flash-attn", (folder / "index.html").read_text(), address)
    document = pypi_simple.ProjectPage.from_json_data(json.loads((folder / "index.json").read_bytes()), address)
    assert html.repository_version == document.repository_version == "1.4"

    def facts(page: pypi_simple.ProjectPage) -> list[tuple[object, ...]]:
        return [
            (p.filename, p.url, p.digests, p.is_yanked, p.yanked_reason, p.requires_python, p.metadata_digests)
            for p in page.packages
            if p.filename.endswith(".whl")
        ]

    assert facts(html) == facts(document)
    assert len(facts(html)) == 3


def test_of_a_version_and_system_only_the_wheel_that_serves_most_is_taken_by_those_who_pin_none(
    maker, publish, public
) -> None:
    everybody = maker.make("80,90,120").path.name
    windows = maker.make("90", platform="windows-x86_64").path.name
    publish(*(maker.folder / "dist").iterdir())
    others = [maker.make(*words).path for words in (["80"], ["90"])]
    quick = maker.make("90", profile="quick").path
    publish(*others, quick, when=LATER)
    plain = {name for name in offered(public) if name.endswith((everybody[-30:], "win_amd64.whl"))}
    assert plain == {everybody, windows}
    assert offered(public, "cu130-quick-sm90") == {quick.name}
    assert offered(public, "cu130-full-hd64-sm90") == {others[1].name, windows}
    assert everybody in str(project(public)[quick.name]["yanked"])


def test_a_rebuilt_wheel_takes_the_place_of_the_one_before_which_stays_for_those_who_pinned_it(
    maker, publish, public
) -> None:
    builds = [maker.make(name=str(number)).path for number in range(6)]
    for number, build in enumerate(builds):
        publish(build, when=LATER + number)
        for subindex in ("simple", "cu130-full-hd64-sm80-sm90"):
            assert max(offered(public, subindex), key=lambda name: name.split("-")[2]) == build.name
    assert {*project(public)} == {build.name for build in builds}


def test_the_same_wheels_give_the_same_index_in_any_order_and_again(maker, publish, public, tmp_path) -> None:
    wheels = [maker.make(sass).path for sass in ("80,90", "90", "80")]
    publish(*wheels)
    there = contents(public)
    before = {path: path.stat().st_mtime_ns for path in public.rglob("*")}
    publish(*reversed(wheels), when=LATER)
    assert {path: path.stat().st_mtime_ns for path in public.rglob("*")} == before
    os.environ["SOURCE_DATE_EPOCH"] = "1790000000"
    api.index(tmp_path / "other", wheels[::-1], depot=maker.depot)
    assert contents(tmp_path / "other") == there


def test_what_is_published_later_leaves_the_time_of_the_earlier_as_it_was(maker, publish, public) -> None:
    first = maker.make().path
    publish(first)
    site = publish(second := maker.make("80,90,120").path, when=LATER)
    times = {name: str(file["upload-time"])[:10] for name, file in project(public).items()}
    assert times[first.name] == "2026-09-21"
    assert times[second.name] == "2026-09-22"
    assert second.name in site.added
    assert first.name not in site.added


def test_a_file_of_somebody_else_in_the_folder_is_neither_replaced_nor_lost(maker, publish, public) -> None:
    publish(maker.make().path)
    (public / "robots.txt").write_text("User-agent: *\n")
    (public / "index.html").write_text("my own page\n")
    with unchanged(public), pytest.raises(UsageError, match=r"index\.html is not a file that flashdepot wrote"):
        publish(maker.make("90").path)


def test_a_folder_with_other_things_is_not_taken_for_an_index(maker, publish, public) -> None:
    public.mkdir()
    (public / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        publish(maker.make().path)
    assert [path.name for path in public.iterdir()] == ["thesis.tex"]


def test_other_bytes_under_a_published_name_are_refused(maker, publish, public) -> None:
    wheel = maker.make().path
    publish(wheel)
    other = wheel.with_name("other") / wheel.name
    other.parent.mkdir()
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(other, "w") as target:
        for info in source.infolist():
            target.writestr(info.filename, source.read(info))
    with unchanged(public), pytest.raises(UsageError, match="has other bytes than"):
        publish(other)


def test_a_published_wheel_that_was_changed_is_named_and_one_that_was_removed_leaves(maker, publish, public) -> None:
    first, second = maker.make().path, maker.make("90").path
    publish(first, second)
    place = public / "files" / first.name
    place.write_bytes(place.read_bytes()[:-1] + b"X")
    with pytest.raises(IntegrityError, match="is not the file that was published"):
        publish(second)
    place.unlink()
    publish(second)
    assert {*project(public)} == {second.name}
    assert not (public / "cu130-full-hd64-sm80-sm90").exists()


@pytest.mark.parametrize("change", ["renamed", "foreign", "damaged"])
def test_what_is_not_a_wheel_by_flashdepot_is_refused(maker, publish, public, change, tmp_path) -> None:
    wheel = maker.make().path
    bad = tmp_path / (wheel.name.replace("sm80.sm90", "sm80.sm90.sm120") if change == "renamed" else wheel.name)
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(bad, "w") as target:
        for info in source.infolist():
            data = source.read(info)
            if change == "damaged" and ".so." in info.filename:
                data = data[:-1] + b"?"
            if change != "foreign" or not info.filename.endswith("flashdepot.json"):
                target.writestr(
                    info.filename.replace("sm80.sm90", "sm80.sm90.sm120") if change == "renamed" else info.filename,
                    data,
                )
    with pytest.raises((UsageError, IntegrityError)):
        publish(bad)
    assert not public.exists()


def test_an_index_of_nothing_is_not_written(publish, public) -> None:
    with pytest.raises(IncompatibleError, match="There is no wheel"):
        publish()
    assert not public.exists()


def test_a_library_whose_source_cannot_be_fetched_is_why_there_is_no_index(public, tmp_path) -> None:
    store_library(Depot(tmp_path / "depot"), tmp_path / "files")
    done = flashdepot_here("--offline", "index", str(public), "--depot", str(tmp_path / "depot"))
    assert_ends(done, 7, "is left out: Fetching", "error: Fetching", "--offline")
    assert not public.exists()


def test_a_damaged_record_is_named_and_nothing_is_changed(maker, publish, public) -> None:
    publish(wheel := maker.make().path)
    (public / RECORD_NAME).write_text("{}")
    with unchanged(public), pytest.raises(IntegrityError, match=re.escape(RECORD_NAME)):
        publish(wheel)


def test_the_record_says_of_each_wheel_what_decides_whether_it_fits(maker, publish, public) -> None:
    wheel = maker.make("90", cuda="12.8").path
    site = publish(wheel, url="https://wheels.example.org/fa")
    found = IndexRecord.from_json(json.loads((public / RECORD_NAME).read_bytes()))
    assert found == site.record
    assert found.url == "https://wheels.example.org/fa/"
    (row,) = found.wheels
    assert (str(row.cuda), str(row.driver_floor), str(row.libc_floor)) == ("12.8", "525.60.13", "2.17")
    assert [str(code) for code in row.sass] == ["90"]
    assert row.units == {*map(str, next(maker.depot.artifacts.manifests()).selection.units)}


def test_an_address_that_no_command_should_hold_is_refused(maker, publish, public) -> None:
    with pytest.raises(UsageError, match="is not the address"):
        publish(maker.make().path, url="https://example.org/$(id)")
    assert not public.exists()


def test_the_command_takes_files_and_says_what_it_did(maker, public) -> None:
    wheel = maker.make().path
    command = ("index", public, wheel, "--depot", maker.depot.root)
    done = flashdepot_here(*command, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["path"], document["added"]) == (str(public), [wheel.name])
    assert document["indexes"]["simple"] == {"wheels": 1, "taken": [wheel.name]}
    done = flashdepot_here("index", public, wheel.parent, "--depot", maker.depot.root)  # a folder of wheels is they
    assert (done.stdout, "1 wheel, " in done.stderr, "0 new" in done.stderr) == (f"{public}\n", True, True)
    assert flashdepot_here("index", public, maker.depot.root, "--depot", maker.depot.root).returncode == 2
