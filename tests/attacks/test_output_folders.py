"""Folders of the user's that were prepared so that writing into them harms files elsewhere, or takes a secret along."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from flashdepot.errors import IntegrityError, UsageError
from flashdepot.files.directory import open_plain, plain_path
from flashdepot.files.output_folder import OutputFolder
from flashdepot.files.user_files import OutputFile, require_safe
from support.programs import write_stand_in
from support.tools import assert_ends, contents, flashdepot_here, unchanged

TARGET = "linux-x86_64-cu13-sm80-90"
SECRET = b"-----BEGIN OPENSSH PRIVATE KEY-----\nnobody may see this\n"


Writer = Callable[[Path], CompletedProcess[str]]


@pytest.fixture(scope="module")
def crate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stand_in(tmp_path_factory.mktemp("candle") / "crate", "0.11.0")


@pytest.fixture(params=["get", "vendor", "cargo", "candle"])
def writer(request: pytest.FixtureRequest, quick_library: Path, real_depot: Path, crate: Path) -> Writer:
    """A command that writes many files into a folder."""
    library = ("--library", quick_library)
    words: dict[str, Callable[[Path], tuple[str | Path, ...]]] = {
        "get": lambda out: ("get", "--profile", "quick", "--arch", "80,90", "--depot", real_depot, "--out", out),
        "vendor": lambda out: ("vendor", out, *library),
        "cargo": lambda out: ("link", "cargo", out, *library),
        "candle": lambda out: (
            *("link", "candle", "--candle-version", "0.11.0", "--crate", crate, "--build-dir", out),
            *library,
        ),
    }
    return lambda out: flashdepot_here(*words[request.param](out))


@pytest.mark.nvcc
def test_a_link_in_place_of_any_folder_or_file_is_neither_followed_nor_replaced(writer, tmp_path) -> None:
    out, away, victim = tmp_path / "out", tmp_path / "away", tmp_path / "home"
    assert writer(out).returncode == 0
    shutil.copytree(out, victim, symlinks=True)
    places = [path.relative_to(out) for path in sorted(out.rglob("*")) if not path.is_symlink()]
    tops = {place for place in places if len(place.parts) == 1} | {min(p for p in places if len(p.parts) > 1)}
    assert len(tops) > 2
    for place in sorted(tops):
        changed = victim / place
        for path in [changed, *changed.rglob("*")]:
            if path.is_file() and not path.is_symlink():
                path.chmod(0o644)
                path.write_bytes(b"precious\n")
        before = contents(victim)
        (out / place).rename(away)
        (out / place).symlink_to(changed)

        done = writer(out)

        assert contents(victim) == before, place
        assert done.returncode == 2, (place, done)
        assert done.stderr.count(str(out / place)) == 1 or "Writing there could destroy" in done.stderr, (place, done)
        assert (out / place).is_symlink()
        (out / place).unlink()
        away.rename(out / place)
    assert writer(out).returncode == 0, "without the links the work continues"


@pytest.mark.nvcc
@pytest.mark.parametrize("writer", ["get", "cargo", "candle"], indirect=True)
def test_a_folder_that_holds_something_else_is_refused_and_left_untouched(writer, tmp_path) -> None:
    (tmp_path / "Cargo.toml").write_bytes(b"mine")
    done = writer(tmp_path)
    assert (done.returncode, str(tmp_path) in done.stderr) == (2, True)
    assert contents(tmp_path) == {"Cargo.toml": b"mine"}


@pytest.mark.nvcc
def test_a_file_that_was_changed_since_it_was_written_is_kept(writer, tmp_path) -> None:
    out = tmp_path / "out"
    assert writer(out).returncode == 0
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and not path.is_symlink()]
    mine = next(path for path in files if path.name.startswith(("LICENSE", "flash_attention")))
    mine.write_bytes(b"my own text\n")
    with unchanged(out):
        done = writer(out)
    assert_ends(done, 2, str(mine), "Move it away")
    mine.unlink()
    assert writer(out).returncode == 0


@pytest.mark.nvcc
@pytest.mark.parametrize("command", ["get", "vendor"])
def test_a_manifest_that_was_found_removes_nothing_behind_a_link(quick_library, real_depot, tmp_path, command) -> None:
    home, out = tmp_path / "ssh", tmp_path / "o"
    home.mkdir()
    (home / "authorized_keys").write_bytes(SECRET)
    folder = out / TARGET if command == "vendor" else out
    folder.mkdir(parents=True)
    (folder / "x").symlink_to(home)
    (folder / "lib").symlink_to(home)
    manifest = json.loads((quick_library / "manifest.json").read_text())
    known = {"digest": hashlib.sha256(SECRET).hexdigest(), "size": len(SECRET)}
    manifest["files"] += [{"path": f"{name}/authorized_keys", **known} for name in ("x", "lib")]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    get = ("get", "--profile", "quick", "--arch", "80,90", "--depot", real_depot, "--out", out)
    assert flashdepot_here(*(get if command == "get" else ("vendor", out, "--library", quick_library))).returncode == 2
    assert (home / "authorized_keys").read_bytes() == SECRET


@pytest.mark.nvcc
@pytest.mark.parametrize("place", ["notes.txt", "lib/notes.txt"])
def test_a_manifest_that_was_found_removes_no_file_that_it_does_not_know_by_its_bytes(
    quick_library, real_depot, tmp_path, place
) -> None:
    get = ("get", "--profile", "quick", "--arch", "80,90", "--depot", real_depot, "--out", tmp_path / "out")
    assert flashdepot_here(*get).returncode == 0
    mine = tmp_path / "out" / place
    mine.write_bytes(b"years of work")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    manifest["files"].append({"path": place, "digest": "0" * 64, "size": 13})
    (tmp_path / "out/manifest.json").write_text(json.dumps(manifest))
    flashdepot_here(*get)
    assert mine.read_bytes() == b"years of work"


@pytest.mark.nvcc
@pytest.mark.parametrize("name", [".gitattributes", "vendor.json"])
def test_a_secret_behind_a_link_is_not_copied_into_the_repository(quick_library, tmp_path, name) -> None:
    key, prebuilt = tmp_path / "id_ed25519", tmp_path / "project/prebuilt"
    key.write_bytes(SECRET)
    prebuilt.mkdir(parents=True)
    (prebuilt / name).symlink_to(key)
    done = flashdepot_here("vendor", "--library", quick_library, cwd=prebuilt.parent)
    assert_ends(done, 2, f"{prebuilt / name} is a symbolic link")
    assert key.read_bytes() == SECRET
    assert contents(prebuilt) == {name: str(key)}


@pytest.mark.nvcc
def test_a_named_pipe_does_not_keep_a_command_waiting(quick_library, tmp_path) -> None:
    os.mkfifo(tmp_path / ".gitattributes")
    done = flashdepot_here("vendor", tmp_path, "--library", quick_library)
    assert (done.returncode, "is not a regular file" in done.stderr) == (2, True)


@pytest.mark.nvcc
def test_sources_and_libraries_that_are_links_are_not_copied(quick_library, crate, tmp_path) -> None:
    key = tmp_path / "id_ed25519"
    key.write_bytes(SECRET)
    sources: Path = shutil.copytree(crate, tmp_path / "crate")
    (sources / "src/key.rs").symlink_to(key)
    asked = ("--candle-version", "0.11.0", "--crate", sources)
    candle = ("link", "candle", *asked, "--library", quick_library)
    assert flashdepot_here(*candle, "--build-dir", tmp_path / "candle").returncode == 0
    assert not [path for path, data in contents(tmp_path / "candle").items() if data == SECRET]

    library: Path = shutil.copytree(quick_library, tmp_path / "library", symlinks=True)
    licence = next(library.glob("share/licenses/*/LICENSE"))
    licence.parent.chmod(0o755)
    licence.unlink()
    licence.symlink_to(key)
    manifest = json.loads((library / "manifest.json").read_text())
    for file in manifest["files"]:
        if file["path"] == licence.relative_to(library).as_posix():
            file["digest"] = hashlib.sha256(SECRET).hexdigest()
    (library / "manifest.json").chmod(0o644)
    (library / "manifest.json").write_text(json.dumps(manifest))
    for words in (("vendor", tmp_path / "prebuilt"), ("link", "cargo", tmp_path / "sys")):
        assert flashdepot_here(*words, "--library", library).returncode != 0
        assert not (tmp_path / "sys").exists()
    assert not [path for path, data in contents(tmp_path / "prebuilt").items() if data == SECRET]


@pytest.mark.nvcc
@pytest.mark.parametrize("kind", ["link", "other wheel"])
def test_a_wheel_replaces_nothing_that_has_its_name(real_depot, tmp_path, kind) -> None:
    wheel = ("wheel", "--profile", "quick", "--arch", "80,90", "--depot", real_depot, "--out", tmp_path / "dist")
    made = Path(flashdepot_here(*wheel).stdout.strip())
    first = made.read_bytes()
    assert flashdepot_here(*wheel).returncode == 0, "the same bytes once more are no conflict"
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    made.unlink()
    if kind == "link":
        made.symlink_to(victim)
    else:
        made.write_bytes(first[:-1] + b"!")
    with unchanged(tmp_path):
        done = flashdepot_here(*wheel)
    assert_ends(done, 2, str(made))


@pytest.mark.nvcc
@pytest.mark.parametrize("out", ["/dev/null/x", "/dev/null", "loop/x", "loop"])
def test_a_path_that_no_folder_can_have_is_named(real_depot, tmp_path, out) -> None:
    (tmp_path / "loop").symlink_to("loop")
    words = ("--profile", "quick", "--arch", "80,90", "--depot", real_depot, "--out", tmp_path / out)
    for command in ("get", "wheel"):
        done = flashdepot_here(command, *words)
        assert done.returncode in {2, 3}
        assert str(tmp_path / out).partition("/x")[0] in done.stderr


def write(folder: Path, *files: OutputFile) -> None:
    OutputFolder(folder, "thing", ".flashdepot-thing.json", "--out DIR").write(files)


@pytest.mark.parametrize("place", ["a", "a/b", "a/b/c.txt"])
def test_no_link_is_followed(tmp_path, place) -> None:
    out, victim = tmp_path / "out", tmp_path / "victim"
    write(out, OutputFile.of("a/b/c.txt", b"old"))
    shutil.copytree(out, victim)
    (victim / "a/b/c.txt").write_bytes(b"precious")
    (out / place).rename(tmp_path / "away")
    (out / place).symlink_to(victim / place)
    with pytest.raises(UsageError, match="a symbolic link"):
        write(out, OutputFile.of("a/b/c.txt", b"new"))
    with pytest.raises(OSError):  # noqa: PT011  (which one differs by the place)
        open_plain(plain_path(out, "a/b/c.txt")).close()
    assert (victim / "a/b/c.txt").read_bytes() == b"precious"
    assert [path.name for path in out.iterdir() if path.name.startswith(".flashdepot-export")] == []


def test_a_killed_run_is_finished_by_the_next(tmp_path, monkeypatch) -> None:
    out = tmp_path / "out"
    names = ("a", "b/b", "c/c/c")
    move = Path.replace
    for stop in range(1, 6):
        old = [OutputFile.of(name, f"old {stop}".encode()) for name in (*names, "gone/gone")]
        write(out, *old)
        calls = 0

        def interrupted(self: Path, target: Path, last: int = stop) -> Path:
            nonlocal calls
            calls += 1
            if calls == last:
                raise KeyboardInterrupt
            return move(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", interrupted)
            with pytest.raises(KeyboardInterrupt):
                write(out, *(OutputFile.of(name, f"new {stop}".encode()) for name in names))
        assert (out / ".flashdepot-thing.json").exists() == (stop == 1), "half of it is not taken for whole"
        write(out, *(OutputFile.of(name, b"newest") for name in names))
        assert {(out / name).read_bytes() for name in names} == {b"newest"}
        assert not (out / "gone").exists()
        assert [path.name for path in out.iterdir() if path.name.startswith(".flashdepot-export")] == []


@pytest.mark.parametrize(
    "place",
    ["../x", "/x", "a/../../x", "", ".", "a//b", "C:/x", "a\\..\\x", "con", "lib/NUL.txt", ".git/hooks/pre-commit",
     ".GIT/config", "git~1/config", "a/x.", "a/\x1b[2J"],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_is_refused_on_every_system(tmp_path, place) -> None:
    with pytest.raises(IntegrityError):
        require_safe(place)
    with pytest.raises(IntegrityError):
        write(tmp_path / "out", OutputFile(place, "0" * 64, b"x"))
    assert not (tmp_path / "out").exists()
