"""What `check` says of the libraries that a compiled file needs, from what is known of it and of the place."""

import pytest
from msgspec.structs import replace

from flashdepot.binary.window import FileKind
from flashdepot.diagnose.check.judge import Outcome, judge_libraries
from flashdepot.diagnose.check.place import Place
from flashdepot.diagnose.check.subject import Binary
from flashdepot.model.target import Version
from flashdepot.resolve.facts import facts_of
from support.toolkits import make_host


@pytest.mark.parametrize(
    ("needed", "driver", "outcome"),
    [
        ("libc.so.6", None, None),
        ("ld-linux-x86-64.so.2", None, None),
        ("libc.musl-x86_64.so.1", None, None),
        ("KERNEL32.dll", None, None),
        ("libbundled.so.1", None, None),
        ("libcuda.so.1", None, Outcome.NOTE),
        ("libcuda.so.1", "580", Outcome.FITS),
        ("libc10.so", None, Outcome.NOTE),
        ("libcudart.so.12", None, Outcome.NOTE),
        ("libodd.so.1", None, Outcome.NOTE),
    ],
)
def test_a_library_is_judged_that_neither_the_system_nor_the_wheel_brings(needed, driver, outcome) -> None:
    host = replace(make_host(), driver=Version(driver) if driver else None)
    binary = Binary("_C.so", FileKind.ELF_SHARED, frozenset({"x86_64"}), needed=(needed,))
    place = Place(host, None, None, is_here=False, environment=facts_of(host))
    found = [(line.seen, line.outcome) for line in judge_libraries(binary, {"libbundled.so.1"}, place)]
    assert found == ([(needed, outcome)] if outcome else [])
