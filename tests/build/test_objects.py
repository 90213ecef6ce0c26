"""Objects that would end the program of anyone who links the library are not linked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flashdepot.binary.elf import undefined_symbols
from flashdepot.errors import FlashdepotError
from flashdepot.kernels.c_layer import NATIVE
from flashdepot.toolchain.targets import TARGETS
from support.programs import compile_c


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "name"),
    [("exit(1)", "exit"), ("abort()", "abort"), ("_exit(2)", "_exit"), ("assert(count)", "__assert_fail")],
)
def test_an_object_that_may_end_the_program_is_not_linked(tmp_path: Path, statement: str, name: str) -> None:
    source = tmp_path / "unit.c"
    source.write_text(
        "#include <assert.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        f"void fa_fwd(int count) {{ if (count > 3) {{ {statement}; }} }}\n"
    )
    compiled = compile_c(source, tmp_path / "unit.o", "-c", "-fPIC")
    assert name in undefined_symbols(compiled)
    zig: Any = None
    with pytest.raises(FlashdepotError, match=rf"unit\.o calls {name}, which ends the program"):
        TARGETS[0].system.link(TARGETS[0], zig, [compiled], NATIVE, tmp_path)
