"""What an object file may hold, so that it makes no linker read another file.

Linkers obey what compilers write into objects: lld opens the library or linker script that a section of the type
``SHT_LLVM_DEPENDENT_LIBRARIES`` names, compiles bitcode with its ``.incbin``, and takes whatever is no object for a
script. So only sections that are known are let through. Types are those of ``elf.h`` and of LLVM's "Extensions" page,
directives those of Microsoft's page on ``.drectve``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from flashdepot.binary.elf import ElfFile
from flashdepot.binary.kind import FileKind, identify
from flashdepot.binary.pe import object_sections
from flashdepot.binary.window import Window, open_window
from flashdepot.errors import IntegrityError

_TYPES = frozenset({*range(1, 5), *range(7, 10), *range(14, 19), 0x6FFF4C03, 0x70000001, 0x70000003})
"""Code, data, symbols, relocations, notes, groups; LLVM's table of addresses; x86-64's unwinding, AArch64's attributes."""

_ELF_NAMES = re.compile(
    r"|\.(l?text|l?rodata|l?data|l?bss|tdata|tbss|rela?|(pre)?init_array|fini_array|ctors|dtors|eh_frame|gcc_except_table"
    r"|comment|note|group|(sh)?strtab|symtab|symtab_shndx|llvm_addrsig|nv_fatbin|nvFatBinSegment|ARM\.attributes)(\..*)?"
    r"|[A-Za-z_]\w*"
)
_COFF_NAMES = re.compile(
    r"\.(text|rdata|data|bss|xdata|pdata|tls|ctors|dtors|CRT|eh_frame|llvm_addrsig|drectve|nv_fatb\w*|nvFatBi\w*)([.$].*)?"
    r"|[A-Za-z_]\w*"
)
_DIRECTIVE = re.compile(r'[-/](exclude-symbols|export|aligncomm):[\w$?@.,"]+', re.IGNORECASE)
"""They say which symbols a DLL offers, and how a variable lies in memory."""


def require_plain(path: Path) -> None:
    """:raises IntegrityError: for a file that is no object, or one with something that linkers might obey."""
    with open_window(path) as window:
        if (found := next(_suspect(window), None)) is not None:
            raise IntegrityError(
                f"{path.name} has {found}, and an object of a kernel has none: linkers may read other files for it.",
                hint="Is this source what you think it is? A published version links: --upstream 2.8.3",
            )


def _suspect(window: Window) -> Iterator[str]:
    kind = identify(window)
    if kind is FileKind.ELF_OBJECT and (elf := ElfFile(window)).readable:
        for section in elf.sections:
            if section.kind not in _TYPES or _ELF_NAMES.fullmatch(section.name) is None:
                yield f"a section '{section.name}' of the type {section.kind:#x}"
    elif kind is FileKind.COFF_OBJECT:
        for name, body in object_sections(window):
            if _COFF_NAMES.fullmatch(name) is None:
                yield f"a section '{name}'"
            if name == ".drectve":
                words = body.take(0, body.size, "directives").decode("latin-1").split()
                yield from (f"the directive '{word}'" for word in words if _DIRECTIVE.fullmatch(word) is None)
    else:
        yield f"the form of a {kind.value}"
