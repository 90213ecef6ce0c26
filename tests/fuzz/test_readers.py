"""Every reader is given broken input: it answers, or refuses as it says. A fixed number of tries, the same each time.

``FLASHDEPOT_FUZZ_EXAMPLES`` tries more; ``python -m fuzz.with_atheris`` searches, led by coverage.
"""

import base64
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fuzz.readers import READERS, Reader

TRIES = int(os.environ.get("FLASHDEPOT_FUZZ_EXAMPLES", "60"))
FOUND = Path(__file__).parent / "found"

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the seeds are made with gcc and ar"),
    pytest.mark.filterwarnings("ignore::pypi_simple.UnexpectedRepoVersionWarning"),  # as the program itself has it
]


_NUMBERS = (0, 1, 7, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1)
_WORDS = (
    *(
        b"\x00",
        b"\xff\xfe",
        b"../",
        b"/",
        b"\\",
        b'"',
        b"{" * 5000,
        b"[" * 5000,
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"NaN",
    ),
    *(b"\xed\xa0\x80", b"\x1b[2J", b"\r\n", b"9" * 5000, b"''' ", b"#", b"<a>", b"&#x0;", b"\xe2\x80\xae", b"sha256="),
)


def mutated(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """One seed with one to six changes."""
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        _change(data, chance, seeds)
    return bytes(data)


def _change(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(6)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << chance.randrange(8)
    elif kind == 1:
        size = chance.choice((1, 2, 4, 8))
        value = chance.choice(_NUMBERS) if chance.random() < 0.7 else chance.getrandbits(64)
        at = chance.choice((at, at % 256, max(0, len(data) - 1 - at % 256)))  # headers are near the ends
        data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, chance.choice(("little", "big")))
    elif kind == 2:
        del data[at : at + chance.choice((1, 8, 100, len(data)))]
    elif kind == 3:
        data[at:at] = chance.choice(_WORDS)
    elif kind == 4:
        other = chance.choice(seeds)
        begin = chance.randrange(len(other) + 1)
        data[at:at] = other[begin : begin + chance.randrange(200)]
    else:
        data[at : at + chance.randrange(1, 30)] = chance.choice(_WORDS)


@pytest.fixture(params=READERS.values(), ids=lambda reader: reader.name)
def reader(request: pytest.FixtureRequest) -> Reader:
    return request.param  # type: ignore[no-any-return]


def test_what_is_whole_is_read(reader, tmp_path) -> None:
    """Otherwise the others would only test the first line of the reader."""
    for number, seed in enumerate(reader.seeds()):
        folder = tmp_path / str(number)
        folder.mkdir()
        reader.read(seed, folder)


def test_what_is_broken_is_read_or_refused(reader) -> None:
    chance = random.Random(reader.name)
    for _ in range(TRIES):
        data = mutated(reader.seeds(), chance)
        try:
            reader(data)
        except Exception as error:
            error.add_note(f"{reader.name}: {base64.b64encode(data[:2000]).decode()}")
            raise


def test_what_once_broke_a_reader_does_so_no_more() -> None:
    for found in sorted(FOUND.glob("*")):
        READERS[found.name.partition(".")[0]](base64.b64decode(found.read_text()))
