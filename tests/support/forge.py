"""Small binaries for the tests: made by gcc and ar, or byte by byte where the toolchain is not on every machine."""

import base64
import hashlib
import struct
import subprocess
import zipfile
from pathlib import Path

from support.tools import tool

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 4828304\n"
EXACT, FAMILY, LZ4, ZSTD = 0x100000, 0x200000, 0x2000, 0x8000
PTX, SASS = 1, 2


def entry(
    kind: int,
    number: int,
    flags: int = 0x11,
    payload: bytes = b"\x7fELF cubin......",
    header: int = 64,
    version: tuple[int, int] = (1, 8),
) -> bytes:
    """A fatbin entry for ``sm_<number>`` as nvcc 13.0 lays it out; ``version`` is that of PTX or of the ELF ABI."""
    fields = (kind, 0x0101, header, len(payload), 0, 0, version[1], version[0], number, 0, 0, flags, 0, 0)
    return struct.pack("<HHIQIIHHIIIQQQ", *fields).ljust(header, b"\0") + payload


def fatbin(*entries: bytes) -> bytes:
    """A container, padded to 8 bytes."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body + b"\0" * (-len(body) % 8)


def shared_library(folder: Path, source: str = "int f(void) { return 1; }", *flags: str, name: str = "lib.so") -> Path:
    """A shared library from C source."""
    return _compile(folder / name, source, "-shared", "-fPIC", *flags)


def object_file(folder: Path, source: str, name: str = "unit.o") -> Path:
    """An object from C source."""
    return _compile(folder / name, source, "-c", "-fPIC")


def library_with_gpu_code(folder: Path, *containers: bytes, name: str = "gpu.so", source: str = "") -> Path:
    """A shared library with a section ``.nv_fatbin`` of those containers."""
    blob = folder / f"{name}.fatbin"
    blob.write_bytes(b"".join(containers))
    section = f'__asm__(".section .nv_fatbin,\\"a\\"\\n.balign 8\\n.incbin \\"{blob}\\"\\n.text");'
    return shared_library(folder, section + source + "int g(void) { return 2; }", name=name)


def archive(folder: Path, *members: Path, name: str = "lib.a") -> Path:
    """A static library."""
    path = folder / name
    path.unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", str(path), *map(str, members)], check=True, capture_output=True)
    return path


def windows_object(folder: Path, gpu: bytes, name: str = "unit.obj") -> Path:
    """A COFF object with a section ``.nv_fatbin``, whose name is in the table of strings, and a ``.bss`` of no bytes."""
    begin = 20 + 2 * 40  # behind the header and the table of sections
    strings = struct.pack("<I", 4 + len(b".nv_fatbin\0")) + b".nv_fatbin\0"
    sections = struct.pack("<8sIIII16x", b"/4", 0, 0, len(gpu), begin) + struct.pack("<8sIIII16x", b".bss", 0, 0, 64, 0)
    path = folder / name
    path.write_bytes(struct.pack("<HHIIIHH", 0x8664, 2, 0, begin + len(gpu), 0, 0, 0) + sections + gpu + strings)
    return path


def windows_library(*, imports: dict[str, list[str]], gpu: bytes = b"", machine: int = 0x8664) -> bytes:
    """A PE32+ DLL with an import table and, when asked for, a section ``.nv_fatb``."""
    base, start = 0x1000, 0x400
    descriptors = 20 * (len(imports) + 1)
    blob = bytearray(descriptors)
    for index, (dll, names) in enumerate(imports.items()):
        hints = []
        for name in names:
            hints.append(base + len(blob))
            blob += b"\0\0" + name.encode() + b"\0"
        dll_at = base + len(blob)
        blob += dll.encode() + b"\0"
        blob += b"\0" * (-len(blob) % 8)
        table_at = base + len(blob)
        blob += struct.pack(f"<{len(hints) + 1}Q", *hints, 0)
        struct.pack_into("<IIIII", blob, 20 * index, table_at, 0, 0, dll_at, table_at)
    sections = [(b".idata", bytes(blob))] + ([(b".nv_fatb", gpu)] if gpu else [])
    optional = struct.pack("<H", 0x20B).ljust(108, b"\0") + struct.pack("<I", 16)
    optional += (b"\0" * 8 + struct.pack("<II", base, descriptors)).ljust(128, b"\0")
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", machine, len(sections), 0, 0, 0, len(optional), 0x2000) + optional
    body, address = b"", base
    for name, data in sections:
        head += struct.pack("<8sIIII12xI", name, len(data), address, len(data), start + len(body), 0x40000040)
        body += data
        address += (len(data) + 0xFFF) & ~0xFFF
    return head.ljust(start, b"\0") + body


def wheel(
    folder: Path,
    files: dict[str, bytes],
    *,
    name: str = "flash_attn",
    version: str = "2.8.3",
    tag: str = "cp311-cp311-linux_x86_64",
    metadata_version: str | None = None,
    recorded: dict[str, bytes] | None = None,
    requires: tuple[str, ...] = (),
    requires_python: str = "",
    wheel_version: str = "1.0",
    row: dict[str, str] | None = None,
) -> Path:
    """A wheel of those files; only in RECORD, ``recorded`` replaces what some of them hold, ``row`` their whole row."""
    info = f"{name}-{metadata_version or version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {metadata_version or version}\n"
    metadata += f"Requires-Python: {requires_python}\n" if requires_python else ""
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = files | {
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": f"Wheel-Version: {wheel_version}\nTag: {tag}\n".encode(),
    }
    rows = {path: f"{path},sha256={_digest(data)},{len(data)}" for path, data in (files | (recorded or {})).items()}
    lines = (rows | (row or {})).values()
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive_file:
        for member, data in files.items():
            archive_file.writestr(member, data)
        archive_file.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,"]) + "\n")
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _compile(path: Path, source: str, *flags: str) -> Path:
    subprocess.run([tool("gcc"), "-x", "c", "-", "-o", str(path), *flags], input=source, text=True, check=True)
    return path
