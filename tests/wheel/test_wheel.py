"""The wheel file: what is in it, what it is called, and that its bytes follow from its content."""

import base64
import csv
import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from packaging.metadata import Metadata
from packaging.tags import parse_tag
from packaging.utils import parse_wheel_filename

from flashdepot.build.sbom import licence_expression
from flashdepot.depot import Depot
from flashdepot.errors import UsageError
from flashdepot.kernels.fa2 import published
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import (
    PROFILES,
    Selection,
    parse_dtypes,
    parse_features,
    parse_head_dims,
    parse_passes,
    select,
)
from flashdepot.model.target import Platform, Version
from flashdepot.resolve.own_wheel_name import (
    contents_words,
    dist_info,
    wheel_build,
    wheel_name,
    wheel_tag,
    wheel_version,
)
from flashdepot.upstream import SourceTree
from flashdepot.wheel.builder import RUNTIME, Wheel, build_jax_wheel, build_wheel, wheel_text
from support.recipes import architectures
from support.tools import flashdepot_here
from support.upstreams import LAYOUT
from support.wheels import PACKAGE, make_source, store_wheel_library


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    return make_source(tmp_path / "upstream")


@pytest.fixture
def depot(tmp_path: Path) -> Depot:
    return Depot(tmp_path / "depot")


@pytest.fixture
def manifest(depot: Depot, tree: SourceTree, tmp_path: Path) -> Manifest:
    return store_wheel_library(depot, tree, tmp_path / "files")


@pytest.fixture
def wheel(depot: Depot, tree: SourceTree, manifest: Manifest, tmp_path: Path) -> Wheel:
    return build_wheel(manifest, depot.libraries.materialise(manifest), {"fa2": tree}, tmp_path / "dist")


@pytest.fixture
def info(manifest: Manifest) -> str:
    return dist_info(manifest)


def read(wheel: Wheel) -> Mapping[str, bytes]:
    with zipfile.ZipFile(wheel.path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_name_is_one_that_installers_read(wheel, manifest) -> None:
    name, version, build, tags = parse_wheel_filename(wheel.path.name)
    assert (name, str(version)) == ("flash-attn", "9.9.9+cu130.quick.sm80.sm90")
    assert "".join(map(str, build)) == wheel_build(manifest)
    assert tags == parse_tag(wheel.tag)
    assert {tag.interpreter for tag in tags} == {"py3"}


def test_upstreams_package_is_there_without_cute_and_nothing_else_of_its_tree(info, wheel) -> None:
    files = read(wheel)
    packaged = {name for name in PACKAGE if name.endswith(".py") and "bits" not in name and "cute" not in name}
    assert {name for name in files if name.startswith("flash_attn/")} == packaged
    for name in packaged - {"flash_attn/flash_attn_interface.py"}:
        assert files[name] == PACKAGE[name].encode()
    assert {name.partition("/")[0] for name in files} == {"flash_attn", "flash_attn_2_cuda", info}


def test_upstreams_interface_has_two_lines_more_that_say_whose_they_are(wheel) -> None:
    name = "flash_attn/flash_attn_interface.py"
    text = read(wheel)[name].decode()
    assert text.startswith(PACKAGE[name])
    lines = text.removeprefix(PACKAGE[name]).splitlines()
    assert lines[1].startswith("# Added by flashdepot: ")
    assert lines[2:] == ["from flash_attn_2_cuda import eager as _eager", "_eager.shorten(globals())"]


def test_the_module_is_the_runtime_with_the_library_next_to_it(wheel, manifest) -> None:
    files = read(wheel)
    modules = {f"flash_attn_2_cuda/{path.name}": path.read_bytes() for path in RUNTIME.glob("*.py")}
    library = "flash_attn_2_cuda/lib/libflashattention.so.1"
    assert {name for name in files if name.startswith("flash_attn_2_cuda/")} == {*modules, library}
    assert all(files[name] == data for name, data in modules.items())
    (stored,) = (file for file in manifest.files if file.path == "lib/shared/libflashattention.so.1")
    assert hashlib.sha256(files[library]).hexdigest() == stored.digest


def test_record_lists_every_file_with_its_digest_and_size(info, wheel) -> None:
    files = read(wheel)
    rows = list(csv.reader(io.StringIO(files[f"{info}/RECORD"].decode())))
    assert [row[0] for row in rows] == list(files)
    assert rows.pop() == [f"{info}/RECORD", "", ""]
    for name, digest, size in rows:
        expected = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={expected}", len(files[name]))


def test_the_metadata_is_upstreams_and_valid(info, wheel, manifest) -> None:
    files = read(wheel)
    metadata = Metadata.from_email(files[f"{info}/METADATA"], validate=True)
    assert (metadata.name, str(metadata.version)) == ("flash_attn", wheel.version)
    assert [str(r) for r in metadata.requires_dist or []] == ["torch", "einops"]
    assert str(metadata.requires_python) == ">=3.9"
    assert metadata.description == PACKAGE["README.md"]
    assert metadata.license_expression == licence_expression(manifest)
    licences = [f"{info}/licenses/{name}" for name in metadata.license_files or []]
    assert [files[name] for name in licences] == [b"BSD, NVIDIA\n", b"BSD, Tri Dao\n", b"Tri Dao\n"]
    assert f"Build: {wheel.path.name.split('-')[2]}\n" in files[f"{info}/WHEEL"].decode()
    assert f"Tag: {wheel.tag}\n" in files[f"{info}/WHEEL"].decode()
    assert "Root-Is-Purelib: false\n" in files[f"{info}/WHEEL"].decode()


def test_the_wheel_says_of_which_recipe_it_is_and_how_it_was_made(info, wheel, manifest) -> None:
    origin = json.loads(read(wheel)[f"{info}/flashdepot.json"])
    made = {"recipe_key", "selection", "upstreams", "toolchain", "front_end", "flags", "actions", "c_layer"}
    assert {key: origin[key] for key in made} == {key: manifest.to_json()[key] for key in made}
    assert "created" not in origin


def test_the_wheel_has_a_bill_of_materials_where_pep_770_wants_it(info, wheel) -> None:
    text = read(wheel)[f"{info}/sboms/flash_attn.cdx.json"].decode()
    component = json.loads(text)["metadata"]["component"]
    assert (component["name"], component["version"]) == ("flash-attn", wheel.version)


def test_the_same_recipe_gives_the_same_bytes_at_another_time_and_place(
    wheel, depot, manifest, tmp_path, monkeypatch
) -> None:
    later = time.time() + 10**6
    tree = make_source(tmp_path / "elsewhere")
    for path in tree.root.rglob("*"):
        path.chmod(0o700)
        os.utime(path, (later, later))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    again = build_wheel(manifest, depot.libraries.materialise(manifest), {"fa2": tree}, tmp_path / "other")
    assert again.path.read_bytes() == wheel.path.read_bytes()
    with zipfile.ZipFile(wheel.path) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert again.sha256 == wheel.sha256 == hashlib.sha256(wheel.path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("platform", "libc", "tag"),
    [
        ("linux-x86_64", "2.35", "py3-none-manylinux_2_35_x86_64"),
        ("linux-aarch64", "2.28", "py3-none-manylinux_2_28_aarch64"),
        ("linux-x86_64", "2.17", "py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64"),
        ("linux-x86_64", None, "py3-none-linux_x86_64"),
        ("windows-x86_64", None, "py3-none-win_amd64"),
    ],
)
def test_the_tag_follows_from_platform_and_libc(manifest, platform, libc, tag) -> None:
    floor = Version(libc) if libc else None
    changed = replace(manifest, platform=Platform.parse(platform), libc_floor=floor)
    assert wheel_tag(changed) == tag
    written = [line.removeprefix("Tag: ") for line in wheel_text(changed).splitlines() if line.startswith("Tag: ")]
    assert {tag for line in written for tag in parse_tag(line)} == parse_tag(tag), "of two names, each has a line"
    assert len(written) == tag.count(".") + 1


@pytest.mark.parametrize(
    ("upstream", "sass", "version"),
    [
        ("2.8.3.post2", "90", "2.8.3.post2+cu130.quick.sm90"),
        ("2.8.3", "80,90,100,120", "2.8.3+cu130.quick.sm80.sm90.sm100.sm120"),
        ("2.9.0.dev1+mine", "90a", "2.9.0.dev1+mine.cu130.quick.sm90a"),
    ],
)
def test_the_local_version_names_cuda_contents_and_architectures(manifest, upstream, sass, version) -> None:
    changed = replace(
        manifest, upstreams={"fa2": replace(manifest.upstream, version=upstream)}, sass=architectures(sass)
    )
    assert wheel_version(changed) == version


ALL = published()["2.8.3"].identified.units


def selection_of(profile: str, **changes: object) -> Selection:
    return select(replace(PROFILES[profile], **changes), ALL)


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        *((selection_of(name), name) for name in PROFILES),
        (selection_of("full", passes=parse_passes("fwd,bwd"), features=parse_features("none")),
         "fwd bwd nodropout noalibi nosoftcap nolocal nounevenk"),
        (selection_of("full", passes=parse_passes("fwd"), dtypes=parse_dtypes("fp16")), "fwd fp16"),
        (selection_of("training", head_dims=parse_head_dims("64,128")), "training hd64 hd128"),
        (selection_of("inference", head_dims=parse_head_dims("128")), "inference hd128"),
        (selection_of("quick", head_dims=parse_head_dims("128")), "fwd bf16 nodropout noalibi nosoftcap nolocal nounevenk hd128"),
    ],
)  # fmt: skip
def test_what_is_in_it_is_named_as_people_ask_for_it(selection, words) -> None:
    assert " ".join(contents_words(selection)) == words


def differing(manifest: Manifest) -> dict[str, Manifest]:
    """Manifests of different contents: the first ones by what was asked for, then by how it was built."""
    full, tools = selection_of("full"), manifest.toolchain
    fewer = [selection_of("full", head_dims=frozenset(dims)) for dims in ({32, 64, 256}, {32, 96, 256})]
    holes = [replace(full, units=full.units - {unit}) for unit in sorted(full.units)[:2]]
    fa4 = replace(full, units=frozenset(replace(unit, family="fa4") for unit in full.units))
    both = replace(full, units=full.units | fa4.units)
    selections = [selection_of("inference"), selection_of("full", passes=parse_passes("fwd,bwd")), full, *fewer, *holes]
    return {
        "as it is": manifest,
        **{f"selection {i}": replace(manifest, selection=s) for i, s in enumerate([*selections, fa4, both])},
        "another architecture": replace(manifest, sass=architectures("80,120")),
        "another CUDA": replace(manifest, toolchain=replace(tools, cuda=Version("13.1"))),
    }


def test_what_was_asked_for_differs_in_the_version(manifest) -> None:
    versions = {why: wheel_version(changed) for why, changed in differing(manifest).items()}
    assert len({*versions.values()}) == len(versions), versions


def test_wheels_with_different_contents_never_have_one_name(manifest) -> None:
    nvcc, *others = manifest.toolchain.tools
    rebuilt = {
        "another nvcc": replace(
            manifest, toolchain=replace(manifest.toolchain, tools=(replace(nvcc, digest="9" * 64), *others))
        ),
        "another C layer": replace(manifest, c_layer="9" * 64),
        "other bytes": replace(manifest, files=(replace(manifest.files[0], digest="9" * 64), *manifest.files[1:])),
        "another flashdepot": replace(manifest, flashdepot="99.0"),
    }
    names = {why: wheel_name(changed) for why, changed in {**differing(manifest), **rebuilt}.items()}
    assert len({*names.values()}) == len(names), names
    assert {wheel_version(changed) for changed in rebuilt.values()} == {wheel_version(manifest)}


@pytest.mark.parametrize("upstream", published())
def test_all_that_a_version_has_is_called_full(upstream) -> None:
    whole = select(PROFILES["full"], published()[upstream].identified.units)
    assert next(contents_words(whole)) == "full"
    assert not [word for word in contents_words(whole) if word.startswith("x")]


def test_a_source_without_a_version_makes_no_wheel(manifest) -> None:
    with pytest.raises(UsageError, match="calls its version 'unknown'"):
        wheel_version(replace(manifest, upstreams={"fa2": replace(manifest.upstream, version="unknown")}))


def test_kernels_of_one_state_of_the_source_and_python_of_another_make_no_wheel(
    depot, tree, manifest, tmp_path
) -> None:
    """A commit that changes only Python: the wheel would say that all of it is the earlier one."""
    (tree.root / "flash_attn" / "flash_attn_interface.py").write_text("flash_attn_func = None\n")
    changed = SourceTree.read(LAYOUT, tree.root)
    with pytest.raises(UsageError, match="must have both from one source"):
        build_wheel(manifest, depot.libraries.materialise(manifest), {"fa2": changed}, tmp_path)
    assert not list(tmp_path.glob("*.whl"))


def test_the_command_writes_the_wheel_of_a_stored_library(depot, tree, manifest, tmp_path) -> None:
    words = ("--profile", "quick", "--arch", "80", "--upstream", tree.root, "--depot", depot.root, "--out", "dist")
    done = flashdepot_here("wheel", "--json", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    path = Path(document["path"])
    assert path.parent == tmp_path / "dist"
    assert document["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (document["status"], document["recipe_key"]) == ("hit", manifest.recipe_key)
    assert path.name.endswith(f"-{document['tag']}.whl")


def test_the_wheel_for_jax_holds_the_library_and_asks_for_jax_only(depot, manifest, wheel, tmp_path) -> None:
    made = build_jax_wheel(manifest, depot.libraries.materialise(manifest), tmp_path / "dist")
    name, version, _, tags = parse_wheel_filename(made.path.name)
    assert (name, str(version), tags) == ("flashdepot-jax", wheel.version, parse_tag(wheel.tag))
    files, torchs = read(made), read(wheel)
    info = f"flashdepot_jax-{version}.dist-info"
    metadata = Metadata.from_email(files[f"{info}/METADATA"])
    assert [str(needed) for needed in metadata.requires_dist or ()] == ["jax>=0.4.35"]
    assert set(metadata.license_files or ()) == {
        n.removeprefix(f"{info}/licenses/") for n in files if "/licenses/" in n
    }
    shared = "lib/libflashattention.so.1"
    assert files[f"flashdepot_jax/{shared}"] == torchs[f"flash_attn_2_cuda/{shared}"]
    assert not any(b"import torch" in text for name, text in files.items() if name.endswith(".py"))
    assert (
        made.path.read_bytes()
        == build_jax_wheel(manifest, depot.libraries.materialise(manifest), tmp_path / "again").path.read_bytes()
    )
