"""Which architectures are asked for, and what nvcc makes of the words that actions have for it."""

import shlex
import subprocess

import pytest

from flashdepot.errors import IncompatibleError, MissingToolError
from flashdepot.facts.gpus import choose_architectures, choose_sass, driver_floor, known_architectures
from flashdepot.kernels import oldest_gpu
from flashdepot.model.host import Gpu
from flashdepot.model.recipe import filled_in
from flashdepot.model.request import Gpus
from flashdepot.model.target import Architecture, Version, spell
from flashdepot.toolchain.nvcc import HOST_FLAGS, inspect
from support.recipes import architectures
from support.toolkits import CODES, make_host


def gpu(capability: str) -> Gpu:
    return Gpu(f"GPU {capability}", Architecture.parse(capability), 80 * 10**9)


@pytest.mark.parametrize(
    ("gpus", "wanted", "note"),
    [("9.0 8.6 9.0", "86,90", ""), ("", "80", "No NVIDIA GPU was found"), ("7.5 8.9", "89", "GPU 7.5")],
)
def test_native_is_every_kind_of_gpu_that_is_present_and_says_what_it_leaves_out(gpus, wanted, note) -> None:
    host = make_host(gpus=tuple(map(gpu, gpus.split())))
    choice = choose_architectures(Gpus.NATIVE, host, oldest_gpu())
    assert spell(choice.wanted) == wanted
    assert note in choice.note


@pytest.mark.parametrize("option", ["75", "sm_70", "80,61"])
def test_an_architecture_older_than_ampere_is_refused_before_anything_is_compiled(option) -> None:
    with pytest.raises(IncompatibleError, match=r"cannot run FlashAttention-2.*8\.0 \(Ampere\)"):
        choose_architectures(architectures(option), make_host(), oldest_gpu())


def test_a_machine_with_old_gpus_only_is_refused() -> None:
    with pytest.raises(IncompatibleError, match=r"GPU 7\.5 \(7\.5\) cannot run"):
        choose_architectures(Gpus.NATIVE, make_host(gpus=(gpu("7.5"),)), oldest_gpu())


def test_universal_is_code_for_each_generation_of_gpus() -> None:
    assert spell(choose_architectures(Gpus.UNIVERSAL, make_host(), oldest_gpu()).wanted) == "80,86,89,90,100,120"


def sass(wanted: str, release: str) -> str:
    return spell(choose_sass(architectures(wanted), Version(release), architectures(CODES[release])))


@pytest.mark.parametrize(
    ("wanted", "release", "made"), [("80,89", "13.0", "80,89"), ("121", "12.8", "120"), ("103", "12.8", "100")]
)
def test_machine_code_is_made_for_what_was_named_or_by_an_older_nvcc_for_its_generation(wanted, release, made) -> None:
    assert sass(wanted, release) == made


@pytest.mark.parametrize(
    ("wanted", "said", "hint"),
    [
        ("95", r"nvcc 13\.0 cannot make sm_95: its newest is sm_121", "--arch list"),
        ("101", "sm_101", "needs nvcc 12.8 or newer up to 12.9: --cuda 12.9"),
    ],
)
def test_an_architecture_that_nvcc_does_not_know_any_more_or_yet_is_refused(wanted, said, hint) -> None:
    with pytest.raises(MissingToolError, match=said) as caught:
        sass(wanted, "13.0")
    assert hint in caught.value.hint


def test_the_table_agrees_with_what_each_release_lists() -> None:
    for release, codes in CODES.items():
        version = Version(release)
        known = {
            k.architecture
            for k in known_architectures()
            if k.first_cuda <= version and (k.last_cuda is None or version <= k.last_cuda)
        }
        listed = {a for a in architectures(codes) if a >= Architecture(7, 5)}
        assert listed == known, release


def test_driver_floors_are_those_of_minor_version_compatibility() -> None:
    assert driver_floor(12, "linux", compressed=False) == Version("525.60.13")
    assert driver_floor(12, "linux", compressed=True) == Version("550.54.14")
    drivers = ("525", "525.53", "525.60.13", "535")
    assert [d for d in drivers if Version(d).reaches(Version("525.60.13"))] == ["525", "525.60.13", "535"]
    assert driver_floor(13, "windows", compressed=True) == Version("580")
    with pytest.raises(IncompatibleError, match="CUDA 11 is not supported"):
        driver_floor(11, "linux", compressed=False)


@pytest.mark.nvcc
@pytest.mark.parametrize("folder", ["plain", "My Projects", "a,b", "Jürgen's \\ $HOME ключ"])
def test_nvcc_hands_on_the_path_of_the_package_whatever_is_in_it(folder, quick_library, real_depot, tmp_path) -> None:
    assert quick_library
    roots = sorted((real_depot / "toolchains").glob("cuda-13*"))
    if not roots:
        pytest.skip("needs the nvcc that flashdepot provides")
    nvcc = inspect(roots[0])
    native = tmp_path / folder
    (native / "device").mkdir(parents=True)
    (native / "device/prelude.h").write_text("")
    (tmp_path / "kernel.cu").write_text("__global__ void kernel() {}\n")
    words = [filled_in(word, {"native": str(native)}) for word in HOST_FLAGS]
    done = subprocess.run(
        [str(nvcc.program), "--dryrun", "-fatbin", "-arch=sm_80", *words, "kernel.cu", "-o", "kernel.fatbin"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    preprocessing = [line.removeprefix("#$ ") for line in done.stderr.splitlines() if "prelude.h" in line]
    assert preprocessing
    for line in preprocessing:
        assert str(native / "device/prelude.h") in shlex.split(line)
