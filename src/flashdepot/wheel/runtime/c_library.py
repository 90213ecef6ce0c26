"""The C library beside this file, and its structs, for torch's module and for JAX's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from ctypes import CDLL
from pathlib import Path
from struct import Struct

FILE = Path(__file__).parent / "lib" / ("flashattention.dll" if sys.platform == "win32" else "libflashattention.so.1")


def open_library(advice: str) -> CDLL:
    """Load it.

    :raises ImportError: if it cannot be loaded, with ``advice`` on how to install the wheel again.
    """
    try:
        return CDLL(str(FILE))
    except OSError as error:
        raise ImportError(
            f"{FILE} cannot be loaded: {error}. The wheel was made for another system, or a file of it is damaged: "
            f"install it again{advice}",
            name=__package__,
            path=str(FILE),
        ) from error


def struct_of(fields: Sequence[tuple[str, str]]) -> Struct:
    """The packed bytes of a struct with some fields of layout.py.

    Native alignment puts the padding where the compiler does; "0Q" ends where the next struct would begin.
    """
    return Struct("@" + "".join(code for _, code in fields) + "0Q")
