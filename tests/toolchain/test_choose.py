import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.host.tools import identify_toolkit
from flashdepot.model.host import HostRecord
from flashdepot.model.request import AnyCuda, CudaChoice
from flashdepot.model.target import Architecture, Version
from flashdepot.resolve.project import library_request
from flashdepot.toolchain import choose, wheels
from flashdepot.toolchain.choose import Toolchain, asks_machine, choose_toolchain, foresee_toolchain
from flashdepot.toolchain.zig import Zig
from support.recipes import architectures
from support.toolkits import make_host, make_toolkit


@pytest.fixture
def provided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What PyPI would give, without PyPI."""
    root = tmp_path / "provided"
    make_toolkit(root, "13.0")
    monkeypatch.setattr(choose, "pinned_toolkit", lambda _: SimpleNamespace(provide=lambda *_: root))
    monkeypatch.setattr("flashdepot.toolchain.zig.provide_zig", lambda *_: Zig(tmp_path / "zig", "0.14.1"))
    return root


def cuda(option: str) -> CudaChoice:
    asked = library_request(cuda=option).cuda
    assert asked is not None
    return asked


def pick(option: str, host: HostRecord, arch: str = "80", driver: str | None = None) -> Toolchain:
    return choose_toolchain(
        cuda(option),
        host,
        architectures(arch),
        driver=Version(driver) if driver else None,
        folder=Path("/nowhere"),
        work=Path("/nowhere"),
        on_file=lambda _: None,
    )


@pytest.mark.parametrize("driver", [None, "580.65"])
def test_auto_is_the_nvcc_from_pypi_whatever_the_machine_has(tmp_path, provided, driver) -> None:
    chosen = pick("auto", make_host(make_toolkit(tmp_path / "cuda", "12.8"), gcc=()), "80,120", driver)
    assert chosen.nvcc.root == provided
    assert chosen.zig.version == "0.14.1"
    assert not asks_machine(AnyCuda.AUTO, make_host().platform, Version(driver) if driver else None)


def test_auto_takes_a_toolkit_of_the_machine_where_the_driver_is_too_old_for_the_provided_one(
    tmp_path, provided
) -> None:
    twelve, thirteen = make_toolkit(tmp_path / "12", "12.8"), make_toolkit(tmp_path / "13", "13.0")
    assert asks_machine(AnyCuda.AUTO, make_host().platform, Version("560.35"))
    assert pick("auto", make_host(thirteen, twelve), driver="560.35").nvcc.root == tmp_path / "12"


def test_auto_takes_cuda_12_of_nvidias_archives_where_only_the_driver_is_too_old(
    tmp_path, provided, monkeypatch
) -> None:
    monkeypatch.delenv("FLASHDEPOT_CUDA_ARCHIVES")
    host = make_host(make_toolkit(tmp_path / "13", "13.0"))
    foreseen = foresee_toolchain(AnyCuda.AUTO, host, architectures("90"), driver=Version("560.35"))
    assert (foreseen.toolkit, foreseen.release) == (None, "12.8.1")


@pytest.mark.parametrize(
    ("driver", "said", "unsaid"),
    [("560.35", ["CUDA 12", "--cuda DIR"], "older than"), ("470.82", ["older than 525"], "--cuda")],
)
def test_a_driver_that_is_too_old_is_to_be_updated_or_a_toolkit_of_cuda_12_to_be_named(
    tmp_path, provided, driver, said, unsaid
) -> None:
    text = rf"driver is {re.escape(driver)}; what nvcc 13\.0\.88 builds needs 580"
    with pytest.raises(IncompatibleError, match=text) as caught:
        pick("auto", make_host(make_toolkit(tmp_path / "13", "13.0")), driver=driver)
    assert all(words in caught.value.hint for words in ("Update the driver", *said))
    assert unsaid not in caught.value.hint


@pytest.mark.parametrize(
    ("release", "arch", "said"),
    [("11.8", "80", "older than CUDA 12.0"), ("12.4", "120", "cannot make sm_120")],
)
def test_a_toolkit_that_cannot_do_the_work_is_skipped_and_the_reason_said(
    tmp_path, provided, release, arch, said
) -> None:
    host = make_host(make_toolkit(tmp_path / "cuda", release))
    with pytest.raises(MissingToolError, match=said):
        foresee_toolchain(cuda(release), host, architectures(arch), driver=None)


def test_a_toolkit_without_headers_is_skipped(tmp_path, provided) -> None:
    make_toolkit(tmp_path / "cuda", "12.8")
    (tmp_path / "cuda/include/cuda_runtime.h").unlink()
    toolkit = identify_toolkit(tmp_path / "cuda/bin/nvcc", "PATH")
    assert toolkit
    with pytest.raises(MissingToolError, match=r"lacks include/cuda_runtime\.h"):
        pick("12.8", make_host(toolkit))


def test_a_version_is_the_provided_nvcc_or_a_toolkit_of_that_release(tmp_path, provided) -> None:
    new, old = make_toolkit(tmp_path / "13", "13.0"), make_toolkit(tmp_path / "12", "12.8")
    assert pick("12.8", make_host(new, old)).nvcc.version == Version("12.8.99")
    assert pick("13.0", make_host(new, old)).nvcc.root == provided
    assert pick("12", make_host(new, old)).nvcc.version == Version("12.8.99")


def test_a_version_that_is_nowhere_is_missing(tmp_path, provided) -> None:
    with pytest.raises(MissingToolError, match=r"no CUDA 12\.6 here.*has 13\.0\.99"):
        pick("12.6", make_host(make_toolkit(tmp_path / "13", "13.0")))


def test_a_folder_is_taken_as_it_is(tmp_path, provided) -> None:
    make_toolkit(tmp_path / "mine", "12.8")
    chosen = pick(str(tmp_path / "mine"), make_host())
    assert chosen.nvcc.root == tmp_path / "mine"
    assert chosen.named
    with pytest.raises(MissingToolError, match="holds no CUDA toolkit"):
        pick(str(tmp_path), make_host())


def test_an_architecture_that_a_named_nvcc_lacks_says_which_release_has_it(tmp_path) -> None:
    make_toolkit(tmp_path / "mine", "12.4")
    with pytest.raises(MissingToolError, match=r"sm_120 needs nvcc 12\.8 or newer"):
        pick(str(tmp_path / "mine"), make_host(), "120")


@pytest.mark.parametrize(("release", "preprocessing"), [("12.4", "0.11.0"), ("12.8", "0.11.0"), ("13.0", "0.14.1")])
def test_an_nvcc_that_cannot_read_the_newer_zigs_headers_preprocesses_with_an_older_one(
    tmp_path, monkeypatch, release, preprocessing
) -> None:
    monkeypatch.setattr(
        "flashdepot.toolchain.zig.provide_zig",
        lambda _platform, _folder, _on_file, version: Zig(tmp_path / version, version),
    )
    make_toolkit(tmp_path / "mine", release)
    chosen = pick(str(tmp_path / "mine"), make_host())
    assert chosen.host_side == "zig 0.14.1"
    assert chosen.preprocessing.preprocessor == tmp_path / preprocessing / "bin/clang++"


def test_a_word_that_is_not_a_cuda_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="expected 'auto', a version such as"):
        pick("newest", make_host())


@pytest.mark.parametrize("option", ["12.8", "/cuda"])
def test_on_windows_no_other_cuda_is_taken(option) -> None:
    with pytest.raises(MissingToolError, match="No device code is compiled on Windows") as caught:
        pick(option, make_host(platform="windows-x86_64"))
    assert "In WSL" in caught.value.hint
    assert "--target windows-x86_64" in caught.value.hint


def test_on_windows_the_host_side_is_compiled_around_device_code_that_a_remote_has() -> None:
    windows = make_host(platform="windows-x86_64")
    with pytest.raises(MissingToolError):
        choose.foresee_toolchain(AnyCuda.AUTO, windows, (), driver=None)
    foreseen = choose.foresee_toolchain(AnyCuda.AUTO, windows, (), driver=None, host_side=True)
    assert (foreseen.toolkit, foreseen.cuda) == (None, wheels.provided_version())


def test_pypi_serves_the_platforms_it_has_wheels_for() -> None:
    assert wheels.provides(make_host().platform)
    assert not wheels.provides(make_host(platform="darwin-arm64").platform)
    with pytest.raises(IncompatibleError, match="no nvcc for darwin-arm64"):
        wheels.pinned_toolkit(make_host(platform="darwin-arm64").platform)


def test_a_toolkit_of_another_machine_says_its_limits(tmp_path) -> None:
    make_toolkit(tmp_path / "cuda", "13.0")
    nvcc = choose.inspect(tmp_path / "cuda")
    assert nvcc.newest_gcc == 15
    assert Architecture(12, 1) in nvcc.codes
    assert nvcc.options == {"--objdir-as-tempdir"}
