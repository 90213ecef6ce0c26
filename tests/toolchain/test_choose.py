from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.model.architecture import Architecture, parse_list
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Version
from flashdepot.resolve.words import library_request
from flashdepot.toolchain import choose, wheels
from flashdepot.toolchain.choose import Toolchain, choose_toolchain
from support.fake_cuda import make_host, make_toolkit


@pytest.fixture
def provided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What PyPI would give, without PyPI."""
    root = tmp_path / "provided"
    make_toolkit(root, "13.0")
    monkeypatch.setattr(choose, "provide", lambda *_: root)
    return root


def pick(option: str, host: HostRecord, arch: str = "80", driver: str | None = None) -> Toolchain:
    asked = library_request(cuda=option).cuda
    assert asked is not None
    return choose_toolchain(
        asked,
        host,
        parse_list(arch),
        driver=Version(driver) if driver else None,
        folder=Path("/nowhere"),
        on_file=lambda _: None,
    )


def test_auto_takes_the_hosts_own_nvcc_when_it_can_do_the_work(tmp_path: Path, provided: Path) -> None:
    toolkit = make_toolkit(tmp_path / "cuda", "12.8")
    chosen = pick("auto", make_host(toolkit), "80,120")
    assert chosen.nvcc.root == tmp_path / "cuda"
    assert chosen.nvcc.version == Version("12.8.99")
    assert "found by PATH" in chosen.reason


def test_auto_takes_the_first_toolkit_that_knows_the_architecture(tmp_path: Path, provided: Path) -> None:
    old, new = make_toolkit(tmp_path / "old", "12.4"), make_toolkit(tmp_path / "new", "12.8")
    assert pick("auto", make_host(old, new), "120").nvcc.root == tmp_path / "new"


@pytest.mark.parametrize(
    ("release", "arch", "said"),
    [("11.8", "80", "older than CUDA 12.0"), ("12.4", "120", "cannot make sm_120")],
)
def test_auto_provides_nvcc_when_the_hosts_cannot_and_says_why(
    tmp_path: Path, provided: Path, release: str, arch: str, said: str
) -> None:
    chosen = pick("auto", make_host(make_toolkit(tmp_path / "cuda", release)), arch)
    assert chosen.nvcc.root == provided
    assert said in chosen.reason


def test_a_toolkit_without_the_static_runtime_is_passed_over(tmp_path: Path, provided: Path) -> None:
    toolkit = make_toolkit(tmp_path / "cuda", "13.0")
    (tmp_path / "cuda/lib64/libcudart_static.a").unlink()
    chosen = pick("auto", make_host(toolkit))
    assert chosen.nvcc.root == provided
    assert "libcudart_static.a" in chosen.reason


def test_a_toolkit_without_headers_is_passed_over(tmp_path: Path, provided: Path) -> None:
    toolkit = make_toolkit(tmp_path / "cuda", "13.0")
    (tmp_path / "cuda/include/cuda_runtime.h").unlink()
    assert "lacks include/cuda_runtime.h" in pick("auto", make_host(toolkit)).reason


def test_auto_never_builds_what_the_driver_cannot_run(tmp_path: Path, provided: Path) -> None:
    twelve, thirteen = make_toolkit(tmp_path / "12", "12.8"), make_toolkit(tmp_path / "13", "13.0")
    assert pick("auto", make_host(thirteen, twelve), driver="560.35").nvcc.root == tmp_path / "12"
    with pytest.raises(IncompatibleError, match=r"driver is 560\.35; what nvcc 13\.0\.88 builds needs 580") as caught:
        pick("auto", make_host(thirteen), driver="560.35")
    assert "Update the driver" in caught.value.hint


def test_a_version_takes_a_toolkit_of_that_release(tmp_path: Path, provided: Path) -> None:
    new, old = make_toolkit(tmp_path / "13", "13.0"), make_toolkit(tmp_path / "12", "12.8")
    assert pick("12.8", make_host(new, old)).nvcc.version == Version("12.8.99")
    assert pick("13.0", make_host(old)).nvcc.root == provided
    assert pick("12", make_host(new, old)).nvcc.version == Version("12.8.99")


def test_a_version_that_is_nowhere_is_missing(tmp_path: Path, provided: Path) -> None:
    with pytest.raises(MissingToolError, match=r"no CUDA 12\.6 here.*has 13\.0\.99"):
        pick("12.6", make_host(make_toolkit(tmp_path / "13", "13.0")))


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    make_toolkit(tmp_path / "mine", "12.8")
    assert pick(str(tmp_path / "mine"), make_host()).nvcc.root == tmp_path / "mine"
    with pytest.raises(MissingToolError, match="holds no CUDA toolkit"):
        pick(str(tmp_path), make_host())


def test_an_architecture_that_a_named_nvcc_lacks_says_which_release_has_it(tmp_path: Path) -> None:
    make_toolkit(tmp_path / "mine", "12.4")
    with pytest.raises(MissingToolError, match=r"sm_120 needs nvcc 12\.8 or newer"):
        pick(str(tmp_path / "mine"), make_host(), "120")


def test_a_word_that_is_no_cuda_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="expected 'auto', a version such as"):
        pick("newest", make_host())


def test_no_compiler_is_said_before_anything_is_fetched() -> None:
    with pytest.raises(MissingToolError, match=r"No C\+\+ compiler was found") as caught:
        pick("auto", make_host(gcc=()))
    assert "apt-get install g++" in caught.value.hint


def test_a_compiler_too_new_for_nvcc_is_passed_over_for_an_older_one(tmp_path: Path) -> None:
    toolkit = make_toolkit(tmp_path / "cuda", "12.4")
    assert pick("auto", make_host(toolkit, gcc=("15.1.0", "13.2.0"))).cxx.version == Version("13.2.0")


@pytest.mark.parametrize(
    ("os_name", "said"),
    [("Ubuntu 26.04 LTS", "apt-get install g++-13"), ("Fedora Linux 44", "dnf install gcc-toolset-13")],
)
def test_only_a_compiler_too_new_says_which_to_install(tmp_path: Path, os_name: str, said: str) -> None:
    toolkit = make_toolkit(tmp_path / "cuda", "12.4")
    with pytest.raises(MissingToolError, match=r"accepts GCC up to 13.*has g\+\+ 16\.1\.0") as caught:
        pick("auto", make_host(toolkit, gcc=("16.1.0",), os_name=os_name))
    assert said in caught.value.hint


def test_pypi_serves_the_platforms_it_has_wheels_for() -> None:
    assert wheels.provides(make_host().platform)
    assert not wheels.provides(make_host(platform="darwin-arm64").platform)
    with pytest.raises(IncompatibleError, match="no nvcc for darwin-arm64"):
        wheels.provide(make_host(platform="darwin-arm64").platform, Path("/nowhere"), lambda _: None)


def test_a_toolkit_of_another_machine_says_its_limits(tmp_path: Path) -> None:
    make_toolkit(tmp_path / "cuda", "13.0")
    nvcc = choose.inspect(tmp_path / "cuda")
    assert nvcc.newest_gcc == 15
    assert Architecture(12, 1) in nvcc.codes
    assert nvcc.options == {"--objdir-as-tempdir"}
