"""Compilers from wheels, and links that are made with them."""

import hashlib
import io
import os
import subprocess
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flashdepot.errors import CompileError, IncompatibleError, IntegrityError, MissingToolError, NetworkError
from flashdepot.events import OnFile
from flashdepot.files.folders import make_whole
from flashdepot.kernels.fa4.units import HOSTS, PYTHONS
from flashdepot.model.codec import digest_of
from flashdepot.model.target import Platform
from flashdepot.process.run import Finished
from flashdepot.toolchain import wheels, zig
from flashdepot.toolchain.linked import disk_full, require
from support.servers import IndexServer, serve_index

LINUX = Platform("linux", "x86_64")
ZIG = "0.14.1"
NVCC, RUNTIME, ZIG_WHEEL = (f"{name}-1-py3-none-manylinux2014_x86_64.whl" for name in ("nvcc", "runtime", "zig"))
CORE = "core-1-py3-none-any.whl"
LIBS = {tag: f"libs-1-{tag}-{tag}-manylinux_2_28_x86_64.whl" for tag in ("cp311", "cp312")}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexServer]:
    """An index with the wheels that are pinned: two of nvcc, three of CuTe DSL, one of zig."""
    with serve_index() as server:
        monkeypatch.setenv("PIP_INDEX_URL", server.url)

        def publish(name: str, *members: str) -> dict[str, str]:
            content = io.BytesIO()
            with zipfile.ZipFile(content, "w") as wheel:
                for member in (*members, f"{name}.dist-info/METADATA"):
                    wheel.writestr(member, f"{name} {member}")
            server.files[name] = content.getvalue()
            return {name: hashlib.sha256(content.getvalue()).hexdigest()}

        nvcc = publish(NVCC, "nvidia/cu13/bin/nvcc") | publish(RUNTIME, "nvidia/cu13/include/cuda_runtime.h")
        held = {"bin/nvcc": f"{NVCC} nvidia/cu13/bin/nvcc".encode()}
        held["include/cuda_runtime.h"] = f"{RUNTIME} nvidia/cu13/include/cuda_runtime.h".encode()
        tree = digest_of({name: hashlib.sha256(data).hexdigest() for name, data in held.items()})
        pinned = {"cuda": "13.0.88", "wheels": nvcc, "tree": {str(LINUX): tree}}
        monkeypatch.setattr(wheels, "_data", lambda: pinned)
        dsl = publish(CORE, "packages/core.py", "packages/tests/core.py")
        for name in LIBS.values():
            dsl |= publish(name, "packages/libs.py")
        monkeypatch.setattr(wheels, "_dsl_data", lambda: {"cute_dsl": "4.8.1", "wheels": dsl})
        inside = ("ziglang/zig", "ziglang/lib/compiler_rt.zig", "ziglang/lib/docs/index.html")
        pin = {"version": ZIG, "wheels": publish(ZIG_WHEEL, *inside)}
        monkeypatch.setattr(zig, "_data", lambda: {"zig": [pin]})
        yield server


Provide = Callable[[Path, OnFile], Path]
PROVIDED = {
    "nvcc": (lambda *to: wheels.pinned_toolkit(LINUX).provide(*to), [NVCC, RUNTIME]),
    "cute_dsl": (lambda *to: wheels.pinned_dsl(LINUX, "cp312").provide(*to), [CORE, LIBS["cp312"]]),
    "zig": (lambda *to: zig.pinned_zig(LINUX, ZIG).provide(*to), [ZIG_WHEEL]),
}


@pytest.fixture(params=PROVIDED.values(), ids=PROVIDED)
def provided(request: pytest.FixtureRequest) -> tuple[Provide, list[str]]:
    """How each is provided, and the wheels that it takes."""
    made: tuple[Provide, list[str]] = request.param
    return made


def test_wheels_are_fetched_once_and_a_damaged_folder_is_made_again(index, tmp_path, monkeypatch, provided) -> None:
    provide, names = provided
    fetched: list[str] = []
    root = provide(tmp_path / "toolchains", fetched.append)
    assert fetched == names
    assert [path.name for path in root.parent.iterdir()] == [root.name]
    assert not list(root.rglob("METADATA"))
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    assert provide(root.parent, fetched.append) == root
    assert fetched == names
    damaged = next(path for path in sorted(root.rglob("*")) if path.is_file() and not path.name.startswith("."))
    whole = damaged.read_bytes()
    damaged.write_bytes(b"half")
    with pytest.raises(NetworkError, match=f"{names[0]} needs the network, and --offline") as caught:
        provide(root.parent, lambda _: None)
    assert "Run it once with the network" in caught.value.hint
    monkeypatch.delenv("FLASHDEPOT_OFFLINE")
    provide(root.parent, lambda _: None)
    assert damaged.read_bytes() == whole


@pytest.mark.parametrize("damage", [lambda wheel: wheel[:-1] + b"?", lambda wheel: wheel[: len(wheel) // 2]])
def test_a_damaged_wheel_is_refused_and_nothing_of_it_is_kept(index, tmp_path, provided, damage) -> None:
    provide, (*_, name) = provided
    pinned = hashlib.sha256(index.files[name]).hexdigest()
    index.declared[name] = pinned
    index.files[name] = damage(index.files[name])
    with pytest.raises(IntegrityError) as caught:
        provide(tmp_path / "toolchains", lambda _: None)
    assert caught.value.exit_code == 6
    for said in (name, pinned, hashlib.sha256(index.files[name]).hexdigest()):
        assert said in caught.value.message
    assert list((tmp_path / "toolchains").iterdir()) == []


def test_several_at_once_end_with_one_whole_folder(index, tmp_path, provided) -> None:
    roots: list[Path] = []
    work = [
        threading.Thread(target=lambda: roots.append(provided[0](tmp_path / "toolchains", lambda _: None)))
        for _ in range(6)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert (len(roots), len(set(roots))) == (6, 1)
    assert [p.name for p in (tmp_path / "toolchains").iterdir()] == [roots[0].name]


def test_wheels_of_nvcc_become_one_toolkit_and_tell_how_far_they_are(index, tmp_path) -> None:
    heard: dict[str, tuple[int, int | None]] = {}

    def on_file(name: str) -> Any:
        return lambda done, whole: heard.update({name: (done, whole)})

    root = wheels.pinned_toolkit(LINUX).provide(tmp_path, on_file)
    assert (root / "bin/nvcc").read_text().startswith(f"{NVCC} ")
    assert (root / "include/cuda_runtime.h").is_file()
    assert heard == {name: (len(index.files[name]),) * 2 for name in (NVCC, RUNTIME)}


def test_each_toolkit_is_known_by_the_digest_that_it_was_provided_with() -> None:
    trees, known = wheels._data()["tree"], wheels.known_trees()
    for platform in (LINUX, Platform("linux", "aarch64")):
        assert known[wheels.pinned_toolkit(platform).folder] == trees[str(platform)]


def test_zig_can_be_run_and_brings_what_our_targets_read(index, tmp_path) -> None:
    made = zig.provide_zig(LINUX, tmp_path, lambda _: None, ZIG)
    if os.name == "posix":
        assert made.program.stat().st_mode & made.preprocessor.stat().st_mode & 0o100
    assert (made.lib / "compiler_rt.zig").is_file()
    assert not (made.lib / "docs").exists()


def test_what_is_kept_for_links_may_hold_notes_that_lead_nowhere(index, tmp_path) -> None:
    """zig notes what it linked as the text of a link; what an earlier release kept has one."""
    made = zig.provide_zig(LINUX, tmp_path, lambda _: None, ZIG)

    def kept(folder: Path) -> None:
        folder.mkdir()
        (folder / "lld.id").symlink_to("9f35673bbcac3a97f54a90a602d678b4")

    make_whole(made.root.with_name(f"{made.root.name}-for-x86_64-linux-gnu.2.17"), kept)
    (tmp_path / "work").mkdir()
    made.linker("x86_64-linux-gnu.2.17", tmp_path / "work")
    assert (tmp_path / "work" / "zig-cache" / "lld.id").is_symlink()


def test_each_python_has_a_cute_dsl_of_its_own_and_all_have_one_identity(index, tmp_path) -> None:
    before = wheels.dsl_identity()
    another = tmp_path / "cute-dsl-4.7.0-cp312-0123456789ab"
    (another / "packages").mkdir(parents=True)
    roots = [wheels.pinned_dsl(LINUX, python).provide(tmp_path, lambda _: None) for python in ("cp311", "cp312")]
    assert [(root / "packages/libs.py").read_text().split()[0] for root in roots] == [*LIBS.values()]
    assert sorted(p.name for p in roots[1].rglob("*.py")) == ["core.py", "libs.py"]
    assert roots[1].name.startswith("cute-dsl-4.8.1-cp312-")
    assert wheels.dsl_identity() == before
    assert (another / "packages").is_dir(), "another version is neither taken nor removed"


@pytest.mark.parametrize(
    ("platform", "python", "said"),
    [
        (Platform("windows", "x86_64"), "cp312", "linux-x86_64, and this is windows-x86_64"),
        (LINUX, "pypy311", "is for CPython 3.11 and 3.12; flashdepot runs in pypy311"),
    ],
)
def test_a_machine_that_cannot_run_cute_dsl_hears_what_can(index, platform, python, said) -> None:
    with pytest.raises(IncompatibleError, match=said) as error:
        wheels.pinned_dsl(platform, python)
    assert "--families fa2" in str(error.value.hint)


def test_every_project_of_cute_dsl_is_pinned_once_for_each_python_and_platform() -> None:
    every = wheels.pinned_wheels(wheels._dsl_data()["wheels"])
    projects = {wheel.name.canonical for wheel in every}
    assert "torch" not in projects
    for platform in HOSTS:
        for python in ("cp311", "cp312", "cp313", "cp314"):
            chosen = wheels.pinned_dsl(Platform.parse(platform), python).wheels
            assert Counter(wheel.name.canonical for wheel in chosen) == Counter(projects)
    pinned = {wheel.name.python for wheel in every if wheel.platform is not None}
    assert pinned == {f"cp{major}{minor}" for major, minor in PYTHONS}, "kernels/fa4/units.py names others"


@pytest.mark.parametrize(
    "said",
    [
        "/usr/bin/ld: final link failed: No space left on device",
        "ar: libflashattention.a: Disk quota exceeded",
    ],
)
def test_a_full_disk_is_not_blamed_on_the_objects(tmp_path, said) -> None:
    with pytest.raises(MissingToolError, match="filled up while it was linked"):
        require(Finished(("ld",), 1, "", said), tmp_path / "libflashattention.so.1")


def test_what_a_linker_refuses_is_still_said(tmp_path) -> None:
    with pytest.raises(CompileError, match="undefined reference"):
        require(Finished(("ld",), 1, "", "ld: error: undefined reference to `f'"), tmp_path / "lib.so")
    assert disk_full("lib.so", "linked", "Bus error", tmp_path) is None, "there is space here"


def test_a_linker_on_a_disk_that_is_full_says_so(small_disk) -> None:
    """With a real linker, which maps its output into memory on some systems, and is ended by a signal there."""
    source = small_disk / "big.c"
    source.write_text("char big[4000000] = {1};\n")
    command = ["gcc", "-shared", "-fPIC", "-o", str(small_disk / "lib.so"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    with pytest.raises(MissingToolError, match="filled up"):
        require(Finished(tuple(command), done.returncode, done.stdout, done.stderr), small_disk / "lib.so")
