"""Remotes that lie, lead astray, or hold what they should not: a build continues, and nothing gets where it must not."""

import contextlib
import hashlib
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.errors import FlashdepotError, IntegrityError, NetworkError
from flashdepot.events import Events
from flashdepot.model.remote import RemoteSettings
from flashdepot.net.download import Remote
from flashdepot.net.fetch import fetch, fetch_url
from flashdepot.remotes import push as pushing
from flashdepot.remotes.bucket import confined
from flashdepot.remotes.statements import blob_place
from flashdepot.remotes.stores import open_store
from flashdepot.resolve.own_indexes import read_index_record
from support.servers import Raw, RemoteServer


@pytest.fixture
def raw() -> Iterator[Raw]:
    with contextlib.closing(Raw()) as running:
        yield running


def ok(*headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode("latin-1") + body


def to(place: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")


HOSTILE = {
    "length-of-5000-digits": ok(f"Content-Length: {'9' * 5000}", body=b"x"),
    "length-below-zero": ok("Content-Length: -5", body=b"x"),
    "length-in-other-digits": ok("Content-Length: \xb2\xb3", body=b"x"),
    "two-lengths": ok("Content-Length: 1", "Content-Length: 2", body=b"xx"),
    "chunk-of-5000-digits": ok("Transfer-Encoding: chunked", body=b"f" * 5000 + b"\r\nxx\r\n"),
    "chunk-that-is-none": ok("Transfer-Encoding: chunked", body=b"zz\r\nxx\r\n"),
    "to-half-an-address": to("http://[::1"),
    "to-a-letter-without-encoding": to("http://\xe9/"),
    "to-a-label-too-long": to(f"http://{'a' * 70}.example/"),
    "to-a-port-that-is-none": to("http://127.0.0.1:99999999/"),
    "to-an-empty-label": to("http://a..b/"),
    "to-nothing": to(""),
    "to-another-scheme": to("gopher://127.0.0.1/"),
    "to-this-machine": to("file:///etc/passwd"),
    "to-itself": to("/again"),
    "no-http": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
    "status-of-5000-digits": b"HTTP/1.1 " + b"2" * 5000 + b" OK\r\n\r\n",
    "a-header-without-end": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000,
    "headers-without-end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 5000,
    "zeros": bytes(4096),
    "retry-after-5000-digits": f"HTTP/1.1 503 No\r\nRetry-After: {'9' * 5000}\r\nContent-Length: 0\r\n\r\n".encode(),
    "retry-after-no-year": b"HTTP/1.1 503 No\r\nRetry-After: Mon, 99 Foo 99999999 99:99:99 +9999\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("answer", HOSTILE)
def test_whatever_a_remote_answers_is_a_miss_and_the_build_continues(answer, raw, reader) -> None:
    raw.reply = lambda _: HOSTILE[answer]
    team = RemoteSettings("team", raw.url, timeout=1.0)
    assert reader.fetch(team) is None
    assert reader.fetch_unit(team) is None
    assert raw.seen
    store = open_store(team)
    for ask in (lambda: store.size("x"), lambda: store.read("x", 9), lambda: store.digest("x", 9)):
        with contextlib.suppress(NetworkError, IntegrityError):
            ask()
    part = reader.folder / "part"
    part.parent.mkdir(exist_ok=True)
    for begun in (b"", b"abc"):
        part.write_bytes(begun)
        with contextlib.suppress(NetworkError, IntegrityError, FileNotFoundError):
            store.fetch("x", part, 9, lambda _: None)
    with contextlib.suppress(NetworkError):
        store.write("x", b"x")


@pytest.mark.parametrize("answer", HOSTILE)
def test_whatever_an_index_or_a_mirror_answers_is_an_error_of_the_network(answer, raw, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("flashdepot.net.errors.WAITS", ())
    raw.reply = lambda _: HOSTILE[answer]
    monkeypatch.setenv("PIP_INDEX_URL", f"{raw.url}/simple/")
    monkeypatch.setenv("PIP_TIMEOUT", "1")
    with pytest.raises((NetworkError, IntegrityError)):
        fetch("demo", "demo-1.0.tar.gz", "0" * 64, tmp_path / "demo-1.0.tar.gz")
    with pytest.raises((NetworkError, IntegrityError)):
        fetch_url(Remote(f"{raw.url}/x", "0" * 64, 9), tmp_path / "x", elsewhere="another")


DRIPS = {
    "a page": (ok("Content-Type: text/html"), b"<"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "nothing but patience": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a line": (b"HTTP/1.1 ", b"2"),
}


@pytest.mark.parametrize("what", DRIPS)
@pytest.mark.parametrize("place", ["a package index", "our index"])
def test_an_index_that_sends_without_end_is_left_after_some_time(what, place, raw, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PIP_TIMEOUT", "0.3")
    monkeypatch.setenv("PIP_INDEX_URL", f"{raw.url}/simple/")
    raw.reply, raw.drip = (lambda _: DRIPS[what][0]), DRIPS[what][1]
    ask = {
        "a package index": lambda: fetch("demo", "demo-1.0.tar.gz", "0" * 64, tmp_path / "demo-1.0.tar.gz"),
        "our index": lambda: read_index_record(f"{raw.url}/"),
    }[place]
    with pytest.raises(NetworkError, match=r"has not answered within 1\.2 s"):
        ask()


def test_a_server_that_asks_for_more_time_again_and_again_is_left(raw, tmp_path, monkeypatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("flashdepot.net.errors.time.sleep", slept.append)
    whole = b"x" * 50

    def reply(request: bytes) -> bytes:
        start = int(request.partition(b"bytes=")[2].partition(b"-")[0] or 0)
        if len(raw.seen) % 2:
            return b"HTTP/1.1 503 No\r\nRetry-After: 119\r\nContent-Length: 0\r\n\r\n"
        said = f"Content-Range: bytes {start}-{len(whole) - 1}/{len(whole)}\r\nContent-Length: {len(whole) - start}"
        status = "206 Partial" if start else "200 OK"
        return f'HTTP/1.1 {status}\r\nETag: "a"\r\n{said}\r\n\r\n'.encode() + whole[start : start + 1]

    raw.reply = reply
    with pytest.raises(NetworkError):
        fetch_url(Remote(f"{raw.url}/x", hashlib.sha256(whole).hexdigest(), 50), tmp_path / "x", elsewhere="another")
    assert 0 < sum(slept) <= 300


RANGES = {
    "ignored": lambda whole, _at: ok(f"Content-Length: {len(whole)}", body=whole),
    "ignored-without-a-length": lambda whole, _at: ok(body=whole),
    "refused": lambda _whole, _at: b"HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n",
    "not-understood": lambda _whole, _at: b"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n",
    "answered-from-elsewhere": lambda whole, at: (
        b"HTTP/1.1 206 P\r\n"
        + f"Content-Range: bytes {at + 7}-{len(whole) - 1}/{len(whole)}\r\nContent-Length: {len(whole) - at - 7}".encode()
        + b"\r\n\r\n"
        + whole[at + 7 :]
    ),
    "answered-from-the-beginning": lambda whole, _at: (
        b"HTTP/1.1 206 P\r\n"
        + f"Content-Range: bytes 0-{len(whole) - 1}/{len(whole)}\r\nContent-Length: {len(whole)}".encode()
        + b"\r\n\r\n"
        + whole
    ),
    "answered-without-saying-where": lambda whole, at: b"HTTP/1.1 206 Partial\r\n\r\n" + whole[at:],
}


@pytest.mark.parametrize("begun", [b"the beginn", b"something e", b"the beginning, and the re"])
@pytest.mark.parametrize("how", RANGES)
def test_a_download_that_continues_is_right_whatever_the_server_makes_of_ranges(how, begun, raw, tmp_path) -> None:
    whole = b"the beginning, and the rest"

    def reply(request: bytes) -> bytes:
        if b"range: bytes=" not in request.lower():
            return ok(f"Content-Length: {len(whole)}", body=whole)
        return RANGES[how](whole, int(request.lower().partition(b"range: bytes=")[2].partition(b"-")[0]))

    raw.reply = reply
    part, counted = tmp_path / "part", []
    part.write_bytes(begun)
    open_store(RemoteSettings("team", raw.url)).fetch("x", part, len(whole), counted.append)
    assert part.read_bytes() == whole
    assert sum(counted) == len(whole)


CLOUDS = [
    ("s3", {"AWS_ENDPOINT_URL": "https://minio.example:9000"}, False, "minio.example"),
    ("s3", {"AWS_ENDPOINT_URL": "http://127.0.0.1:8333"}, True, "127.0.0.1"),
    ("s3", {}, False, "amazonaws.com"),
    ("gs", {}, False, "googleapis.com"),
    ("az", {"AZURE_STORAGE_ENDPOINT": "http://localhost:10000/a"}, True, "localhost"),
    ("s3", {"OTHER": "http://plain.example"}, False, "amazonaws.com"),
]


@pytest.mark.parametrize(("cloud", "environment", "plain", "host"), CLOUDS)
def test_plain_http_is_spoken_with_a_bucket_only_where_its_endpoint_is_plain(cloud, environment, plain, host) -> None:
    options = confined(cloud, environment)
    assert options["allow_http"] == plain
    assert host in options["proxy_excludes"].split(",")
    assert "example" not in options["proxy_excludes"] or "minio" in options["proxy_excludes"]


def bucket(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> RemoteSettings:
    for name in [name for name in os.environ if name.upper().endswith("_PROXY")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "t0ken",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
    }.items():
        monkeypatch.setenv(name, value)
    return RemoteSettings("team", "s3://bucket/x", timeout=1.0)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_redirect_takes_a_session_token_of_a_bucket_to_another_server(code, raw, monkeypatch, tmp_path) -> None:
    pytest.importorskip("obstore")
    with contextlib.closing(Raw()) as thief:
        thief.reply = lambda _: ok("Content-Length: 4", body=b"evil")
        raw.reply = lambda _: to(f"http://localhost:{thief.port}/x").replace(b"302", str(code).encode(), 1)
        store = open_store(bucket(monkeypatch, raw.url))
        for ask in (
            lambda: store.read("x", 99),
            lambda: store.size("x"),
            lambda: store.write("x", b"mine"),
            lambda: store.fetch("x", tmp_path / "x", 4, lambda _: None),
        ):
            with pytest.raises(NetworkError):
                ask()
        assert any(b"t0ken" in request for request in raw.seen)
        assert not thief.seen


@pytest.mark.parametrize("method", ["read", "write"])
def test_credentials_of_a_web_server_go_to_no_other(method, raw) -> None:
    netrc = Path.home() / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret\n")
    netrc.chmod(0o600)
    with contextlib.closing(Raw()) as thief:
        thief.reply = lambda _: ok("Content-Length: 4", body=b"evil")
        raw.reply = lambda _: to(f"http://localhost:{thief.port}/x")
        store = open_store(RemoteSettings("team", raw.url))
        if method == "read":
            assert store.read("x", 99) == b"evil"
        else:
            with pytest.raises(NetworkError, match="cannot be written"):
                store.write("x", b"mine")
        assert any(b"authorization" in request.lower() for request in raw.seen)
        assert not any(b"authorization" in request.lower() or b"mine" in request for request in thief.seen)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 and its key."""
    path = tmp_path / "server.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=here "
    words += "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
    done = subprocess.run([*words.split(), "-keyout", path, "-out", f"{path}.crt"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("openssl makes no certificate here")
    path.write_bytes(path.read_bytes() + Path(f"{path}.crt").read_bytes())
    return path


@pytest.mark.parametrize("kind", ["web", "bucket"])
def test_no_redirect_leads_from_https_to_http(kind, certificate, raw, monkeypatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with contextlib.closing(Raw(lambda plain: context.wrap_socket(plain, server_side=True))) as honest:
        honest.reply = lambda _: to(f"http://127.0.0.1:{raw.port}/x")
        raw.reply = lambda _: ok("Content-Length: 4", body=b"evil")
        url = f"https://127.0.0.1:{honest.port}"
        monkeypatch.setenv("PIP_CERT", f"{certificate}.crt")
        if kind == "web":
            store = open_store(RemoteSettings("team", url))
        else:
            pytest.importorskip("obstore")
            store = open_store(bucket(monkeypatch, url))
            trusted = {"root_certificate": Path(f"{certificate}.crt").read_text()}
            monkeypatch.setattr("flashdepot.remotes.bucket.confined", lambda *words: {**confined(*words), **trusted})
            store = open_store(bucket(monkeypatch, url))
        with pytest.raises(NetworkError):
            store.read("x", 99)
        with pytest.raises(NetworkError):
            store.write("x", b"mine")
        assert honest.seen
        assert not raw.seen


def damage(server: RemoteServer, name: str) -> bytes:
    right = server.files[name]
    server.files[name] = bytes(byte ^ 1 for byte in right)
    return right


def test_push_verify_writes_again_what_has_other_bytes_of_the_right_size(pushed, maker, reader, team, server) -> None:
    before = dict(server.files)
    for name in server.blobs():
        damage(server, name)
    done = pushing.push(maker.remotes(team).all()[0], maker.depot, [pushed], Events(), verify=True)
    assert done.repaired == len(server.blobs())
    assert {name: data for name, data in server.files.items() if name in server.blobs()} == {
        name: before[name] for name in server.blobs()
    }
    assert reader.fetch(team) == pushed


def test_what_a_reader_got_wrong_is_said_with_what_repairs_it(pushed, reader, team, server) -> None:
    damage(server, blob_place(max(pushed.files, key=lambda file: file.size).digest))
    assert reader.fetch(team) is None
    assert "flashdepot depot push --verify" in reader.warnings[-1]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a right there")
@pytest.mark.parametrize("link", ["blobs", "blobs/sha256", "signed", "signed/libraries", "tmp", "to a folder above"])
def test_a_link_in_a_folder_remote_leads_no_push_out_of_it(link, maker, disk, tmp_path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place = disk / ("blobs" if link.startswith("to") else link)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(tmp_path if link.startswith("to") else outside)
    before = {path for path in tmp_path.rglob("*") if disk not in path.parents and maker.folder not in path.parents}
    maker.key()
    with pytest.raises(FlashdepotError, match="no link in a folder remote is followed"):
        maker.push(RemoteSettings("disk", disk.as_uri()), maker.store())
    after = {path for path in tmp_path.rglob("*") if disk not in path.parents and maker.folder not in path.parents}
    assert after - before <= {maker.folder}
    assert not list(outside.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links and FIFOs")
@pytest.mark.parametrize("kind", ["file", "fifo", "device", "folder"])
def test_a_link_in_place_of_a_file_of_a_folder_remote_is_not_read_and_is_replaced(
    kind, maker, reader, disk, tmp_path
) -> None:
    remote = RemoteSettings("disk", disk.as_uri(), timeout=2.0)
    reader.trust(maker.key())
    manifest = maker.store()
    maker.push(remote, manifest)
    name = max((path for path in (disk / "blobs").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    secret = tmp_path / "secret"
    name.replace(secret)
    if kind == "fifo":
        os.mkfifo(name)
    else:
        name.symlink_to({"file": secret, "device": Path("/dev/zero"), "folder": tmp_path}[kind])
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    assert reader.fetch(remote) is None
    assert reader.warnings
    maker.push(remote, manifest)
    assert not name.is_symlink()
    assert hashlib.sha256(secret.read_bytes()).hexdigest() == digest
    assert reader.fetch(remote) == manifest


def test_what_killed_pushes_began_to_write_does_not_stay_in_a_folder_remote(maker, disk) -> None:
    remote = RemoteSettings("disk", disk.as_uri())
    (disk / "tmp").mkdir()
    old, young = disk / "tmp" / "1-old", disk / "tmp" / "2-young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    maker.key()
    maker.push(remote, maker.store())
    assert [path.name for path in (disk / "tmp").iterdir()] == ["2-young"]


def test_a_folder_that_is_not_mounted_is_not_made(maker, tmp_path) -> None:
    maker.key()
    with pytest.raises(NetworkError, match="there is no folder"):
        maker.push(RemoteSettings("disk", (tmp_path / "gone").as_uri()), maker.store())
    assert not (tmp_path / "gone").exists()
