"""One bit of one file of a depot is flipped and the file's times are set back; nothing of it may be served or run.

FLASHDEPOT_FLIPS says how many bits (24 without it; with it a depot that a real nvcc filled gets half as many),
FLASHDEPOT_FLIP_SEED which ones.
"""

import hashlib
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from flashdepot.errors import FlashdepotError, NetworkError
from flashdepot.files.folders import contents
from support.depots import COMPILERS, flip_and_keep_times, make_own

FLIPS = int(os.environ.get("FLASHDEPOT_FLIPS", "24"))
SEED = int(os.environ.get("FLASHDEPOT_FLIP_SEED", "1"))


def flip_somewhere(root: Path, number: int, chance: random.Random) -> Path:
    """Flip a bit: every kind of file is hit as often as any other, whether there is one of it or a thousand."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            kinds.setdefault(path.relative_to(root).parts[0], []).append(path)
    for unused in ("quarantine", "tmp", "locks"):
        kinds.pop(unused, None)
    path = chance.choice(kinds[sorted(kinds)[number % len(kinds)]])
    if path.relative_to(root).parts[0] in COMPILERS:
        make_own(path)
    flip_and_keep_times(path, chance.randrange(path.stat().st_size), chance.randrange(8))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("seed", [SEED])
def test_no_flipped_bit_is_served_compiled_or_run(world, tmp_path, seed) -> None:
    right = contents(Path(world.get()["path"]))
    wheel = digest(Path(world.get("wheel", "--out", str(tmp_path / "dist"))["path"]))
    honest = world.used()
    chance, hits = random.Random(seed), Counter[str]()
    commands: list[Callable[[], bool]] = [
        lambda: contents(Path(world.get()["path"])) == right,
        lambda: contents(Path(world.get("build")["path"])) == right,
        lambda: contents(Path(world.get("get", "--out", str(tmp_path / "out"))["path"])) == right,
        lambda: digest(Path(world.get("wheel", "--out", str(tmp_path / "dist"))["path"])) == wheel,
    ]
    for number in range(FLIPS):
        flipped = flip_somewhere(world.root, number, chance).relative_to(world.root)
        hits[flipped.parts[0]] += 1
        if number % 4 == 3:  # else nothing is compiled again, because the library itself is right
            shutil.rmtree(world.root / "libraries", ignore_errors=True)
            shutil.rmtree(world.root / "artifacts", ignore_errors=True)
        assert chance.choice(commands)(), f"flip {number} of {flipped}"
        assert world.used() <= honest, f"flip {number} of {flipped}"
    assert {"blobs", "libraries", "artifacts", "toolchains", "upstreams"} <= hits.keys()


def test_what_verify_finds_is_put_right_by_the_next_command_that_needs_it(world, tmp_path) -> None:
    library = Path(world.get()["path"])
    right = contents(library)
    chance = random.Random(SEED)
    for number in range(12):
        flip_somewhere(world.root, number, chance)
    flip_and_keep_times(library / "lib/shared/libflashattention.so.1", 100, 0)
    with pytest.raises(FlashdepotError):
        world.run("depot", "verify")
    assert contents(Path(world.get("get", "--out", str(tmp_path / "out"))["path"])) == right
    shutil.rmtree(world.root / "libraries")
    shutil.rmtree(world.root / "artifacts")
    assert contents(Path(world.get("build")["path"])) == right
    world.run("depot", "verify")


def test_a_flipped_compiler_is_not_even_asked_its_version(world, tmp_path, monkeypatch) -> None:
    world.get()
    [nvcc] = world.root.glob("toolchains/cuda-*/bin/nvcc")
    ran = tmp_path / "ran"
    text = nvcc.read_text().replace("import hashlib\n", f"open({str(ran)!r}, 'w')\nimport hashlib\n", 1)
    before = nvcc.stat()
    nvcc.write_text(text[: before.st_size])
    os.utime(nvcc, ns=(before.st_atime_ns, before.st_mtime_ns))
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    with pytest.raises(NetworkError):
        world.get("build")
    assert not ran.exists()
    monkeypatch.delenv("FLASHDEPOT_OFFLINE")
    world.get("build")
    assert not ran.exists()
