"""What we read of ``entry_points.txt`` is what pip and uv do with it: each accepted file is installed by both."""

import random
import shutil
import sys
from pathlib import Path

import pytest

from flashdepot.errors import IntegrityError
from flashdepot.install.present import declared_programs
from fuzz.test_readers import TRIES, mutated
from support import forge
from support.tools import posix, run_program

SEEDS = (
    b"[console_scripts]\nattend = flash_attn:main\nattend-2.x = flash_attn.cli:main\n\n[gui_scripts]\nview=a:b\n",
    b"# a comment\n[other.group]\nx = a.b\n[console_scripts]\r\nrun_it = flash_attn:main\r\n# end\n",
    b"[console_scripts]\n_a = m:o\nb = m:o.p  \n[gui_scripts]\n",
)
WORDS = (
    *(b"\n", b"\r", b"\r\n", b"\v", b"\f", b"\x1c", b"\x1e", b"\x85", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"),
    *(b"\t", b" ", b"=", b":", b"#", b";", b"[", b"]", b"\0", b"\xef\xbb\xbf", b"\xc2\xa0", b"../", b"%(x)s", b"${x}"),
    *(b"[console_scripts]\n", b"[gui_scripts]\n", b"[other]\n", b"new = m:o\n", b"A.b = m:o\n", b"x = m\n", b"DEFAULT"),
)


def variant(chance: random.Random) -> bytes:
    """One of the seeds, with words of the grammar and of its neighbours put in or taken out; now and then any bytes."""
    if chance.random() < 0.1:
        return mutated(SEEDS, chance)
    data = chance.choice(SEEDS)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) + 1)
        data = data[:at] + chance.choice(WORDS) + data[at + chance.choice((0, 0, 1, 2)) :]
    return data


def accepted(chance: random.Random, wanted: int) -> list[tuple[bytes, list[str]]]:
    """Files that we accept, with the programs that we read."""
    found: dict[bytes, list[str]] = {}
    while len(found) < wanted:
        data = variant(chance)
        try:
            found[data] = declared_programs(data, "a wheel")
        except IntegrityError:
            continue
    return list(found.items())


@posix("programs without .exe")
@pytest.mark.parametrize("name", ["uv", "pip"])
def test_pip_and_uv_write_the_programs_that_we_read(tmp_path, name) -> None:
    """All in one run of the installer: what it refused would end that with an error."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    start = [str(uv), "pip", "install", "--python", sys.executable, "--offline", "--no-cache", "--no-config"]
    if name == "pip":
        start = [sys.executable, "-m", "pip", "--isolated", "install", "--ignore-installed", "--no-compile"]
    elif uv is None:
        pytest.skip("needs uv, which is in the dependency group 'test'")
    files = accepted(random.Random("entry points"), TRIES)
    wheels = [
        forge.wheel(tmp_path, {f"fuzz_{n}-1.dist-info/entry_points.txt": data}, name=f"fuzz_{n}", version="1", tag="py3-none-any")
        for n, (data, _) in enumerate(files)
    ]  # fmt: skip
    prefix = tmp_path / "installed"
    run_program([*start, "--no-deps", "--no-index", "--prefix", prefix, *wheels])
    (site,) = prefix.glob("lib/python*/site-packages")
    for number, (data, programs) in enumerate(files):
        record = (site / f"fuzz_{number}-1.dist-info" / "RECORD").read_text().splitlines()
        written = {line.partition(",")[0] for line in record if not line.startswith("fuzz_")}
        assert written == {f"../../../bin/{program}" for program in programs}, data
    assert {path.name for path in (prefix / "bin").iterdir()} == {p for _, programs in files for p in programs}
