"""All that reads what somebody else wrote: the fuzzers' targets, with small whole examples to begin from.

A reader answers, or raises what its callers catch: a ``FlashdepotError``, and ``ValueError`` where it says so.
"""

import contextlib
import io
import json
import struct
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import requests
import tomli_w
from msgspec.structs import replace
from requests.adapters import BaseAdapter
from urllib3 import HTTPResponse

from flashdepot.binary.coff import PeFile
from flashdepot.binary.elf import ElfFile, undefined_symbols
from flashdepot.binary.fatbin import read_fatbins
from flashdepot.binary.objects import defined_names, for_every_linker, require_plain, with_private_runtime
from flashdepot.binary.window import Window
from flashdepot.build.inputs import read_depfile
from flashdepot.catalog.load import Listing, decode, encode, load_catalog
from flashdepot.depot.actions import ACTION_SCHEMA, ActionRecord, Output, read_intent
from flashdepot.depot.libraries import manifest_text, read_artifact
from flashdepot.diagnose.check.subject import read_subject
from flashdepot.diagnose.explain import explain
from flashdepot.errors import FlashdepotError
from flashdepot.files.archive import unpack
from flashdepot.files.documents import parse_json, write_record
from flashdepot.host import saved_host
from flashdepot.link.vendor_folder import INDEX_NAME, VendoredTarget, index_text, read_index
from flashdepot.model.index_record import RECORD_NAME, IndexedWheel, IndexRecord
from flashdepot.model.manifest import Manifest
from flashdepot.model.remote import RemoteSettings
from flashdepot.model.wheel import WheelName
from flashdepot.net.index import PackageIndex
from flashdepot.net.transport import IndexSettings
from flashdepot.publish import read_matrix
from flashdepot.remotes.statements import Edition, IndexStatement, LibraryStatement, StateStatement, UnitStatement
from flashdepot.remotes.stores import open_store
from flashdepot.remotes.trust import Envelope, read_envelopes, write_envelopes
from flashdepot.remotes.user_settings import UserSettings
from flashdepot.resolve.lock import read_lock
from flashdepot.resolve.own_indexes import read_index_record
from flashdepot.resolve.project import read_project
from support import forge
from support.depots import make_manifest, make_record
from support.servers import Raw

HERE = Path(__file__).parent
KEY = f"ci:{'A' * 43}="
WHEEL = "flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"


@dataclass(frozen=True)
class Reader:
    """One reader: what it reads to begin with, how it is called with bytes and a folder, and what it may raise."""

    name: str
    seeds: Callable[[], tuple[bytes, ...]]
    read: Callable[[bytes, Path], object]
    refusals: tuple[type[Exception], ...] = (FlashdepotError,)

    def __call__(self, data: bytes) -> None:
        """Read some bytes; :raises Exception: whatever it must not raise."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                self.read(data, Path(folder))
            except self.refusals:
                return


def _file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """A reader of a file of that name."""

    def read_file(data: bytes, folder: Path) -> object:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return read_file


@contextlib.contextmanager
def _new_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


GPU = forge.fatbin(forge.entry(forge.SASS, 80), forge.entry(forge.PTX, 90, forge.EXACT, header=80))


@cache
def elf_seeds() -> tuple[bytes, ...]:
    source = "extern int _ZN3c104cuda9SetDeviceEa(int); int h(void) { return _ZN3c104cuda9SetDeviceEa(1); }"
    with _new_folder() as folder:
        return (forge.library_with_gpu_code(folder, GPU, source=source).read_bytes(),)


@cache
def object_seeds() -> tuple[bytes, ...]:
    source = "extern int cudaFree(void*); int a_name_longer_than_sixteen(void) { return cudaFree(0); }"
    with _new_folder() as folder:
        return (forge.object_file(folder, source, "a_name_longer_than_sixteen.o").read_bytes(),)


def coff_seed() -> bytes:
    """An object for Windows of one section and one directive, with a name in the table of strings."""
    header = struct.pack("<HHIIIHH", 0x8664, 2, 0, 120, 0, 0, 0)
    sections = (b".text\0\0\0", 4, 100), (b".drectve", 16, 104)
    table = b"".join(struct.pack("<8sIIIIIIHHI", name, 0, 0, size, at, 0, 0, 0, 0, 0) for name, size, at in sections)
    return header + table + b"\x90" * 4 + b" -export:fa_fwd " + struct.pack("<I", 4)


@cache
def archive_seeds() -> tuple[bytes, ...]:
    with _new_folder() as folder:
        unit = folder / "a_name_longer_than_sixteen.o"
        unit.write_bytes(object_seeds()[0])
        return (forge.archive(folder, unit).read_bytes(),)


def pe_seeds() -> tuple[bytes, ...]:
    return (forge.windows_library(imports={"c10.dll": ["a", "b"], "KERNEL32.dll": ["c"]}, gpu=GPU),)


@cache
def wheel_seeds() -> tuple[bytes, ...]:
    with _new_folder() as folder:
        files = {"flash_attn/_C.so": elf_seeds()[0], "flash_attn/__init__.py": b"__version__ = '2.8.3'\n"}
        return (forge.wheel(folder, files).read_bytes(),)


@cache
def tar_seeds() -> tuple[bytes, ...]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, data in (("flash_attn-2.8.3/setup.py", b"x"), (f"flash_attn-2.8.3/{'long' * 40}", b"y" * 300)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return (buffer.getvalue(),)


def read_elf(data: bytes, folder: Path) -> object:
    if data[:4] == b"\x7fELF":
        elf = ElfFile(Window.of(data, "lib.so"))
        if elf.readable:
            _ = (list(elf.symbols()), elf.sections, elf.run_paths, elf.version_needs)
            _ = elf.version_definitions
    _file("library.so", undefined_symbols)(data, folder)
    return _file("library.so", read_subject)(data, folder)


def read_pe(data: bytes, folder: Path) -> object:
    if data[:2] == b"MZ":
        _ = PeFile(Window.of(data, "lib.dll")).exported
    return _file("library.dll", read_subject)(data, folder)


def read_object(data: bytes, folder: Path) -> object:
    with_private_runtime(data, "unit.o")
    _ = (defined_names(data, "unit.o"), for_every_linker(data, "unit.o"))
    return _file("unit.o", read_subject)(data, folder)


def vendor_seeds() -> tuple[bytes, ...]:
    return (index_text((), VendoredTarget.of(make_manifest(), "a" * 64)),)


def host_seeds() -> tuple[bytes, ...]:
    names = ("wsl2-ubuntu-rtx-4090.json", "windows-11-msvc-2022.json")
    return tuple((HERE.parent / "doctor" / "records" / name).read_bytes() for name in names)


def index_record_seeds() -> tuple[bytes, ...]:
    digests = dict.fromkeys(("sha256", "metadata_sha256", "manifest_sha256"), "a" * 64)
    wheel = IndexedWheel.of(
        make_manifest(), filename=WHEEL, version="2.8.3+cu130.full.sm90", size=7,
        uploaded="2026-11-22T01:00:00.000000Z", **digests,
    )  # fmt: skip
    return (json.dumps(IndexRecord((wheel,), "https://example.org/").to_json()).encode(),)


def lock_seeds() -> tuple[bytes, ...]:
    wheel = {
        "filename": WHEEL,
        "url": f"https://example.org/{WHEEL}",
        "sha256": "a" * 64,
        "size": 9,
        "source": "official",
    }
    made_for = {"python": "cp311", "platform": "linux-x86_64", "torch": "2.9.1", "cuda": "12.8"}
    return (tomli_w.dumps({"schema": 1, "wheel": wheel, "facts": made_for}).encode(),)


def project_seeds() -> tuple[bytes, ...]:
    project = {"upstream": "2.8.3", "profile": "quick", "arch": [80, 90], "cuda": "auto", "head-dims": "64,128"}
    return (tomli_w.dumps(project).encode(),)


def matrix_seeds() -> tuple[bytes, ...]:
    axes = {"profile": ["quick", "inference"], "arch": [[80, 90], "90"], "head-dims": 64, "target": "linux-x86_64"}
    others = {"out": "dist", "index": "public", "url": "https://wheels.example.org/", "remotes": ["team"]}
    more = {"exclude": [{"arch": "90"}], "include": [{"profile": "full", "arch": "universal"}]}
    return (tomli_w.dumps({**others, "matrix": axes, **more}).encode(),)


def catalog_seeds() -> tuple[bytes, ...]:
    catalog = load_catalog()
    return (encode([Listing(catalog.collections[0], catalog.wheels[:3])]),)


def log_seeds() -> tuple[bytes, ...]:
    return (
        b"ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationESs\n",
        b"\x1b[31m#15 12.3 nvcc fatal   : Unsupported gpu architecture 'compute_120'\x1b[0m\n",
        "/usr/bin/ld: cannot find -lcudart: No such file\r\nRuntimeError: Error compiling objects\n".encode("utf-16"),
    )


HTML = b'<html><body><a href="../../f/%s#sha256=%s" data-requires-python="&gt;=3.9">x</a></body></html>'
INDEX = (
    b'{"meta":{"api-version":"1.1"},"name":"flash-attn","files":[{"filename":"%s","url":"u","hashes":{"sha256":"%s"}}]}'
)


class _Page(BaseAdapter):
    """A server that answers everything with one page."""

    def __init__(self, data: bytes, kind: str) -> None:
        super().__init__()
        self._data, self._kind = data, kind

    def send(self, request: requests.PreparedRequest, *_: object, **__: object) -> requests.Response:
        raw = HTTPResponse(io.BytesIO(self._data), {"Content-Type": self._kind}, 200, preload_content=False)
        return requests.adapters.HTTPAdapter().build_response(request, raw)

    def close(self) -> None:
        """Nothing is open."""


def index_reader(kind: str) -> Callable[[bytes, Path], object]:
    def read(data: bytes, _folder: Path) -> object:
        with PackageIndex("http://index.invalid/simple", IndexSettings()) as index:
            index._client.s.mount("http://", _Page(data, kind))
            return index.packages("flash-attn")

    return read


@cache
def _raw_server() -> Raw:
    return Raw()


HTTP_SEEDS = (
    b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: "a"\r\n\r\nabcdefghi',
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n5;x=y\r\nefghi\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 2-8/9\r\nContent-Length: 7\r\n\r\ncdefghi",
    b"HTTP/1.0 200 OK\r\nRetry-After: Mon, 23 Nov 2026 19:00:00 GMT\r\nLocation: http://[::1]/\r\n\r\nabcdefghi",
)
HTTP_REFUSED = (
    b"HTTP/1.1 302 Found\r\nLocation: /x/../y?z#w\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 503 No\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=x\r\n\r\n",
)


def read_http_answer(data: bytes, folder: Path) -> None:
    """What a remote, or a mirror, makes of what a server answers: each is refused, or gives what was asked for."""
    server = _raw_server()
    server.reply = lambda _: data
    store = open_store(RemoteSettings("team", server.url))
    part = folder / "part"
    part.write_bytes(b"ab")
    store.fetch("x", part, 9, lambda _: None)
    store.size("x")
    for ask in (store.read, store.digest):
        with contextlib.suppress(FlashdepotError):
            ask("x", 9)
    with contextlib.suppress(FlashdepotError):
        store.write("x", b"y")


def read_http_refusal(data: bytes, folder: Path) -> None:
    """The same of answers that refuse."""
    with contextlib.suppress(FlashdepotError, FileNotFoundError):
        read_http_answer(data, folder)


def read_inside(read: Callable[[Any], object]) -> Callable[[bytes, Path], object]:
    """What stands inside a record, whose digest would keep every changed byte from its reader."""
    return lambda data, _folder: read(parse_json(data, "a record"))


def in_record(data: object) -> bytes:
    """A record around some data, as it is on the disk."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "record.json")
        write_record(path, data)
        return path.read_bytes()


def action_seeds() -> tuple[bytes, ...]:
    return (json.dumps({**make_record().to_json(), "outputs": {"object": {"digest": "a" * 64, "size": 1}}}).encode(),)


RECORD_REFUSALS = (FlashdepotError, ValueError)


def made_record() -> ActionRecord:
    return replace(make_record(), outputs={"object": Output("c" * 64, 7)})


def read_unit_statement(data: bytes, _folder: Path) -> None:
    statement = UnitStatement.read(data)
    statement.inputs(b'["{upstream}/a.h"]', {}.get)
    statement.inputs(data, {}.get)


def envelope_seeds() -> tuple[bytes, ...]:
    payload = LibraryStatement.of(make_manifest()).payload()
    return (write_envelopes([Envelope(payload, (("a" * 64, "b" * 128),)), Envelope(b"{}")]),)


def remotes_seeds() -> tuple[bytes, ...]:
    row = {"name": "team", "url": "s3://bucket/prefix", "push": True, "builders": 2, "timeout": 1.5, "keys": [KEY]}
    return (tomli_w.dumps({"remote": [row, {"name": "disk", "url": "file:///mnt", "unsigned": True}]}).encode(),)


def keys_seeds() -> tuple[bytes, ...]:
    row = {"key": KEY, "remotes": ["team"], "expires": "2030-01-01", "revoked": "2029-01-01"}
    return (tomli_w.dumps({"key": [row]}).encode(),)


READERS = {
    reader.name: reader
    for reader in (
        Reader("elf", elf_seeds, read_elf),
        Reader("object", object_seeds, read_object),
        Reader("object-sections", lambda: (*object_seeds(), coff_seed()), _file("unit.o", require_plain)),
        Reader("archive", archive_seeds, _file("library.a", read_subject)),
        Reader("pe", pe_seeds, read_pe),
        Reader("fatbin", lambda: (GPU,), lambda data, _: list(read_fatbins(Window.of(data, "section")))),
        Reader("wheel", wheel_seeds, _file(WHEEL, read_subject)),
        Reader("unpack-zip", wheel_seeds, lambda d, f: _file("a.zip", lambda p: unpack(p, f / "out"))(d, f)),
        Reader("unpack-tar", tar_seeds, lambda d, f: _file("a.tar.gz", lambda p: unpack(p, f / "out"))(d, f)),
        Reader("manifest", lambda: (manifest_text(make_manifest()),), read_inside(Manifest.from_json), RECORD_REFUSALS),
        Reader(
            "artifact",
            lambda: (in_record({"schema": 3, "manifest": make_manifest().to_json(), "created": 1.0}),),
            _file(f"{make_manifest().recipe_key}.json", read_artifact),
            RECORD_REFUSALS,
        ),
        Reader("action", action_seeds, read_inside(ActionRecord.from_json), RECORD_REFUSALS),
        Reader(
            "intent",
            lambda: (in_record({"schema": ACTION_SCHEMA, "intent_key": "b" * 64, "actions": ["a" * 64]}),),
            _file(f"{'b' * 64}.json", read_intent),
            RECORD_REFUSALS,
        ),
        Reader("matrix", matrix_seeds, _file("publish.toml", read_matrix)),
        Reader("project", project_seeds, _file("flashdepot.toml", read_project)),
        Reader("envelopes", envelope_seeds, lambda data, _: read_envelopes(data)),
        Reader("unit-statement", lambda: (UnitStatement.of(made_record())[0].payload(),), read_unit_statement),
        Reader(
            "library-statement",
            lambda: (LibraryStatement.of(make_manifest()).payload(),),
            lambda data, _: LibraryStatement.read(data),
        ),
        Reader(
            "state-statement",
            lambda: (StateStatement(7, date(2027, 1, 1), {"a" * 64: "b" * 64}).payload(),),
            lambda data, _: StateStatement.read(data),
        ),
        Reader(
            "index-statement",
            lambda: (IndexStatement(RECORD_NAME, "a" * 64, Edition(7, date(2027, 1, 1))).payload(),),
            lambda data, _: IndexStatement.read(data),
        ),
        Reader("remotes", remotes_seeds, _file("remotes.toml", lambda p: UserSettings(p.parent).remotes())),
        Reader("keys", keys_seeds, _file("keys.toml", lambda p: UserSettings(p.parent).trusted_keys())),
        Reader(
            "index-record",
            index_record_seeds,
            _file(RECORD_NAME, lambda path: read_index_record(f"{path.parent.as_uri()}/")),
        ),
        Reader("lock", lock_seeds, _file("flashdepot.lock", read_lock)),
        Reader("host-record", host_seeds, _file("host.json", saved_host)),
        Reader("vendor-index", vendor_seeds, _file(INDEX_NAME, lambda p: read_index(p.parent))),
        Reader("index-html", lambda: (HTML % (WHEEL.encode(), b"a" * 64),), index_reader("text/html")),
        Reader(
            "index-json",
            lambda: (INDEX % (WHEEL.encode(), b"a" * 64),),
            index_reader("application/vnd.pypi.simple.v1+json"),
        ),
        Reader("http-answer", lambda: HTTP_SEEDS, read_http_answer, (FlashdepotError, FileNotFoundError)),
        Reader("http-refusal", lambda: HTTP_REFUSED, read_http_refusal),
        Reader("catalog", catalog_seeds, lambda data, _: decode(data, name="catalog")),
        Reader("log", log_seeds, lambda data, _: explain(io.BytesIO(data))),
        Reader(
            "depfile",
            lambda: (b"out.o : a.cu \\\n  b\\ c.h d$$.h\n",),
            lambda data, folder: read_depfile(data.decode(errors="replace"), folder),
            RECORD_REFUSALS,
        ),
        Reader(
            "wheel-name", lambda: (WHEEL.encode(),), lambda d, _: WheelName.parse(d.decode("latin-1")), RECORD_REFUSALS
        ),
    )
}
