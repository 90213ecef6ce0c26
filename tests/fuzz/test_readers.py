"""Every reader is given broken input: it answers, or refuses as it says. A fixed number of tries, the same each time.

``FLASHDEPOT_FUZZ_EXAMPLES`` tries more; ``tests/fuzz/with_atheris.py`` searches, led by coverage.
"""

from __future__ import annotations

import base64
import os
import random
import sys
from pathlib import Path

import pytest

from fuzz.mutate import mutated
from fuzz.readers import READERS, Reader

TRIES = int(os.environ.get("FLASHDEPOT_FUZZ_EXAMPLES", "25"))
FOUND = Path(__file__).parent / "found"

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the seeds are made with gcc and ar"),
    pytest.mark.filterwarnings("ignore::pypi_simple.UnexpectedRepoVersionWarning"),  # as the program itself has it
]


@pytest.fixture(params=READERS.values(), ids=lambda reader: reader.name)
def reader(request: pytest.FixtureRequest) -> Reader:
    return request.param  # type: ignore[no-any-return]


def test_what_is_whole_is_read(reader: Reader, tmp_path: Path) -> None:
    """Otherwise the others would only test the first line of the reader."""
    for number, seed in enumerate(reader.seeds()):
        folder = tmp_path / str(number)
        folder.mkdir()
        reader.read(seed, folder)


def test_what_is_broken_is_read_or_refused(reader: Reader) -> None:
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
