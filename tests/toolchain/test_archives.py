import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.errors import FlashdepotError, IntegrityError, MissingToolError, NetworkError
from flashdepot.model.target import Platform, Version
from flashdepot.toolchain.archives import BASE, provide_release, release_of
from flashdepot.toolchain.choose import choose_toolchain, foresee_toolchain
from flashdepot.toolchain.nvcc import inspect
from flashdepot.toolchain.zig import Zig
from support.recipes import architectures
from support.servers import FileServer, serve_files
from support.toolkits import make_host, make_toolkit

LINUX = Platform("linux", "x86_64")
MANIFEST = "/cuda/redist/redistrib_12.8.1.json"
OF_COMPONENT = {"cuda_cudart": "include/cuda_runtime.h", "cuda_cccl": "include/cuda_fp16.h"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server of the layout of NVIDIA's, with a release whose nvcc answers as that of 12.8."""
    make_toolkit(tmp_path / "toolkit", "12.8")
    with serve_files() as server:
        monkeypatch.setenv(BASE, f"{server.url}/cuda/redist/")
        publish(server, tmp_path / "toolkit")
        yield server


def publish(server: FileServer, toolkit: Path) -> None:
    """Put a toolkit's folder on the server, as a manifest and an archive a component, and another system's archive."""
    manifest: dict[str, object] = {"release_label": "12.8.1", "release_product": "cuda"}
    for component in ("cuda_nvcc", "cuda_cudart", "cuda_cccl"):
        own = OF_COMPONENT.get(component)
        files = [p for p in sorted(toolkit.rglob("*")) if p.is_file()]
        names = [p.relative_to(toolkit).as_posix() for p in files]
        members = [name for name in names if (name == own if own else name not in OF_COMPONENT.values())]
        data = archive_of(f"{component}-linux-x86_64-12.8.90-archive", toolkit, members)
        row = add(server, f"{component}/linux-x86_64/{component}-linux-x86_64-12.8.90-archive.tar.xz", data)
        manifest[component] = {"name": component, "version": "12.8.90", "linux-x86_64": row, "windows-x86_64": {}}
    manifest["libcublas"] = {"name": "not wanted", "linux-x86_64": {"relative_path": "../../etc/passwd"}}
    server.files[MANIFEST] = json.dumps(manifest).encode()


def archive_of(top: str, toolkit: Path, names: list[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as file:
        for name in names:
            file.add(toolkit / name, f"{top}/{name}")
        link = tarfile.TarInfo(f"{top}/lib/libcudart.so")
        link.type, link.linkname = tarfile.SYMTYPE, "libcudart.so.12"
        file.addfile(link)
    return buffer.getvalue()


def add(server: FileServer, path: str, data: bytes) -> dict[str, str]:
    server.files[f"/cuda/redist/{path}"] = data
    return {"relative_path": path, "sha256": hashlib.sha256(data).hexdigest(), "md5": "", "size": str(len(data))}


def change(server: FileServer, component: str, **fields: object) -> None:
    manifest = json.loads(server.files[MANIFEST])
    manifest[component]["linux-x86_64"].update(fields)
    server.files[MANIFEST] = json.dumps(manifest).encode()


def provide(folder: Path, fetched: list[str] | None = None) -> Path:
    def on_file(name: str) -> None:
        (fetched if fetched is not None else []).append(name)

    return provide_release("12.8.1", LINUX, folder / "toolchains", on_file)


def test_the_archives_of_a_release_become_one_toolkit(server, tmp_path) -> None:
    fetched: list[str] = []
    nvcc = inspect(provide(tmp_path, fetched))
    assert nvcc.version == Version("12.8.99")
    assert nvcc.missing == ()
    assert [name.partition("-")[0] for name in fetched] == ["cuda_nvcc", "cuda_cudart", "cuda_cccl"]
    assert [path.name for path in (tmp_path / "toolchains").iterdir()] == [nvcc.root.name]
    assert not list(nvcc.root.rglob("libcudart*"))


def test_what_is_there_is_used_without_network_and_what_is_damaged_is_fetched_again(
    server, tmp_path, monkeypatch
) -> None:
    root = provide(tmp_path)
    asked = len(server.seen)
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    assert provide(tmp_path) == root
    (root / "bin/nvcc").write_text("another program")
    with pytest.raises(NetworkError, match="--offline or FLASHDEPOT_OFFLINE forbids it"):
        provide(tmp_path)
    monkeypatch.delenv("FLASHDEPOT_OFFLINE")
    assert len(server.seen) == asked
    assert "another program" not in (provide(tmp_path) / "bin/nvcc").read_text()


def test_offline_with_nothing_there_says_that_the_network_is_needed(server, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    with pytest.raises(NetworkError, match=r"redistrib_12\.8\.1\.json needs the network"):
        provide(tmp_path)
    assert not server.seen


def test_an_archive_with_other_bytes_is_refused_and_nothing_is_kept(server, tmp_path) -> None:
    change(server, "cuda_cudart", sha256="0" * 64)
    with pytest.raises(IntegrityError, match=r"cuda_cudart.* is not the expected file"):
        provide(tmp_path)
    assert not [p for p in (tmp_path / "toolchains").iterdir() if not p.name.startswith(".")]


@pytest.mark.parametrize(
    ("component", "fields", "said"),
    [
        ("cuda_nvcc", {"relative_path": "../../../etc/passwd.tar.xz"}, "relative_path"),
        ("cuda_nvcc", {"relative_path": "https://elsewhere/x.tar.xz"}, "relative_path"),
        ("cuda_nvcc", {"sha256": "short"}, "sha256"),
        ("cuda_nvcc", {"size": str(1 << 40)}, "size"),
        ("cuda_nvcc", {"size": 12}, "size"),
    ],
)
def test_an_invalid_manifest_is_refused_with_the_reason(server, tmp_path, component, fields, said) -> None:
    change(server, component, **fields)
    with pytest.raises(IntegrityError, match=f"not the manifest of a CUDA release.*{said}"):
        provide(tmp_path)
    assert [path for path, _ in server.seen] == [MANIFEST]


@pytest.mark.parametrize("body", [b"<html>sign in</html>", b"[]", b"{}"])
def test_an_answer_that_is_not_a_manifest_is_refused(server, tmp_path, body) -> None:
    server.files[MANIFEST] = body
    with pytest.raises(FlashdepotError, match=r"redistrib_12\.8\.1\.json|has no cuda_nvcc"):
        provide(tmp_path)


def test_a_release_that_the_server_does_not_have_names_the_ways_out(server, tmp_path) -> None:
    with pytest.raises(NetworkError) as caught:
        provide_release("12.9.1", LINUX, tmp_path / "toolchains", lambda _: None)
    assert "redistrib_12.9.1.json" in caught.value.message
    assert f"{BASE}=URL" in caught.value.hint
    assert "--cuda DIR" in caught.value.hint


@pytest.mark.parametrize(
    ("asked", "label"),
    [("12.8", "12.8.1"), ("12.8.0", "12.8.0"), ("12", "12.9.1"), ("12.6", "12.6.3"), ("11.8", None), ("12.7", None)],
)
def test_a_version_means_its_newest_release(server, asked, label) -> None:
    assert release_of(Version(asked), LINUX) == label


@pytest.mark.parametrize("platform", ["windows-x86_64", "macos-arm64"])
def test_other_platforms_have_no_archives(server, platform) -> None:
    assert release_of(Version("12.8"), Platform.parse(platform)) is None


def test_a_version_that_the_machine_lacks_comes_from_the_archives(server, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("flashdepot.toolchain.zig.provide_zig", lambda *_: Zig(tmp_path / "zig", "0.14.1"))
    chosen = choose_toolchain(
        Version("12.8"),
        make_host(driver="560.35"),
        architectures("90"),
        driver=Version("560.35"),
        folder=tmp_path / "toolchains",
        work=tmp_path,
        on_file=lambda _: None,
    )
    assert chosen.nvcc.version == Version("12.8.99")
    assert chosen.reason == "CUDA 12.8.1 from NVIDIA's archives"
    assert not chosen.named


def test_what_a_release_cannot_make_is_said_before_anything_is_fetched(server) -> None:
    with pytest.raises(MissingToolError, match=r"CUDA 12\.4\.1 cannot make sm_120.*sm_120 needs nvcc 12\.8"):
        foresee_toolchain(Version("12.4"), make_host(), architectures("120"), driver=None)
    assert not server.seen


def test_nothing_is_fetched_from_the_archives_where_they_are_switched_off(monkeypatch) -> None:
    monkeypatch.setenv(BASE, "")
    with pytest.raises(MissingToolError, match=r"no CUDA 12\.8 here"):
        foresee_toolchain(Version("12.8"), make_host(), architectures("80"), driver=None)
