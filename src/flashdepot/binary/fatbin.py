"""The GPU code in a file: NVIDIA fatbin containers, read without CUDA's tools.

NVIDIA does not document the format. The layout and the flags below were read from what nvcc 13.0 writes for known
``-gencode`` and ``--compress-mode`` options, and agree with ``cuobjdump`` on published wheels
(CUDA 12.1 to 13.0). Nothing is decompressed: the architecture is in each entry's header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum

import msgspec

from flashdepot.binary.window import Window
from flashdepot.model.target import Architecture

MAGIC = 0xBA55ED50
_MAGIC_BYTES = struct.pack("<I", MAGIC)
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, header size, bytes of all entries
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
# kind, version, header size, payload size (padded), compressed size, -, minor, major (PTX ISA or ELF ABI),
# architecture, name offset, name size, flags, -, decompressed size
_LZ4 = 0x2000
_ZSTD = 0x8000
_EXACT = 0x100000  # sm_90a
_FAMILY = 0x200000  # sm_100f
_ARCHITECTURES = range(10, 1000)


class CodeKind(Enum):
    """What an entry holds: machine code, PTX for the driver to compile, or something a driver does not load."""

    SASS = "SASS"
    PTX = "PTX"
    OTHER = "other"


_KINDS = {1: CodeKind.PTX, 2: CodeKind.SASS, 16: CodeKind.SASS}  # 16 is the newer form of a cubin (cuobjdump: ELF)


class GpuCode(msgspec.Struct, frozen=True):
    """One entry: its kind, architecture and compression (``""``, ``"LZ4"`` or ``"Zstandard"``).

    ``ptx`` is the version of PTX that it is written in, major and minor, ``None`` for machine code; ``elf_abi`` that of
    machine code's ELF format, 7 up to CUDA 12.9 and 8 from 13.0 on, 0 for PTX.
    """

    kind: CodeKind
    architecture: Architecture
    compression: str
    ptx: tuple[int, int] | None = None
    elf_abi: int = 0

    def runs_on(self, gpu: Architecture) -> bool:
        """Whether a GPU of that compute capability can use it.

        PTX is compiled by the driver for its own and every later capability, with the suffix ``a`` only for its own
        and with ``f`` for its own major version (CUDA C++ Programming Guide, "Compute Capabilities").
        """
        if self.kind is CodeKind.SASS or self.architecture.suffix:
            return self.kind is not CodeKind.OTHER and self.architecture.runs_on(gpu)
        oldest = (self.architecture.major, self.architecture.minor)
        return self.kind is CodeKind.PTX and oldest <= (gpu.major, gpu.minor)


def read_fatbins(section: Window) -> Iterator[frozenset[GpuCode]]:
    """Each container in a section, as the kinds of code in it; a container is what one ``.cu`` file became."""
    position = 0
    while (position := section.find(_MAGIC_BYTES, position)) >= 0:
        _, version, header, size = section.unpack(_CONTAINER, position, "fatbin header")
        if version != 1 or header < _CONTAINER.size:
            raise section.damaged(f"a fatbin header has version {version} and {header} bytes")
        entries = section.part(position + header, size, "fatbin")
        yield frozenset(_entries(entries))
        position += header + size


def _entries(window: Window) -> Iterator[GpuCode]:
    position = 0
    while position < window.size:
        fields = window.unpack(_ENTRY, position, "fatbin entry")
        kind, _, header, size = fields[:4]
        number, flags = fields[8], fields[11]
        if header < _ENTRY.size:
            raise window.damaged(f"a fatbin entry's header has {header} bytes")
        window.part(position + header, size, "GPU code")
        if number not in _ARCHITECTURES:
            raise window.damaged(f"a fatbin entry is for architecture {number}")
        suffix = "a" if flags & _EXACT else "f" if flags & _FAMILY else ""
        compression = "Zstandard" if flags & _ZSTD else "LZ4" if flags & _LZ4 else ""
        what = _KINDS.get(kind, CodeKind.OTHER)
        ptx = (fields[7], fields[6]) if what is CodeKind.PTX else None
        elf_abi = fields[6] if what is CodeKind.SASS else 0
        yield GpuCode(what, Architecture(*divmod(number, 10), suffix), compression, ptx, elf_abi)
        position += header + size
