"""What CuTe DSL leaves of its host in an object, taken out: the same kernel has the same bytes on every system."""

import re
import struct
import zlib

_FATBIN = bytes.fromhex("50ed55ba01001000")
_FLAGS = 56  # the offset, from there, of flags that name the system which compiled it
_LINUX, _WINDOWS = 0x10, 0x40
_BUILD = re.compile(rb"(?<=Cuda compilation tools, release )(\d+\.\d+, V\d+\.\d+\.)(\d+)")


def without_host(made: bytes) -> bytes:
    """The object as if it came from Linux and from no certain build of ptxas, of which each system's wheel has its own.

    In an object for Windows a section's checksum, which lies among the symbols, changes with its bytes.
    """
    data = bytearray(_BUILD.sub(lambda found: found[1] + b"0" * len(found[2]), made))
    flags = data.index(_FATBIN) + _FLAGS
    data[flags] = data[flags] & ~_WINDOWS | _LINUX
    if made[:2] == b"\x64\x86":
        sections, symbols = struct.unpack_from("<2xH4xI", made)
        for number in range(sections):
            size, begin = struct.unpack_from("<II", made, 20 + 40 * number + 16)
            was, now = (_checksum(each[begin : begin + size]) for each in (made, data))
            if was != now:
                place = made.index(was, symbols)
                data[place : place + 4] = now
    return bytes(data)


def _checksum(section: bytes) -> bytes:
    """That of COFF, as LLVM writes it: a CRC-32 that begins with 0 and is not inverted."""
    return struct.pack("<I", ~zlib.crc32(section, 0xFFFFFFFF) & 0xFFFFFFFF)
