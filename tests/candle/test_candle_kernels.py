"""candle's own kernels in an archive: which are compiled, which calls go to them, and what they refuse."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from ctypes import c_int32
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from candle_call import dense, packed
from candle_recorder import HERE, Recorded, compile_over_recorder

from flashdepot.api.acquire import Context, open_depot
from flashdepot.api.candle import added_kernels
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.events import Events
from flashdepot.link.candle_archive import made_archives
from flashdepot.link.candle_project import missing_kernels
from flashdepot.link.candle_versions import (
    CRATE_V3,
    CandleKernel,
    choose_kernels,
    default_cargo_home,
    find_crate,
    line_of,
    table_header,
)
from flashdepot.link.library import LinkableLibrary, read_library
from flashdepot.model.selection import Feature
from flashdepot.toolchain import wheels
from support.fa_abi import Status
from support.tools import run_program

REAL = find_crate("0.11.1", default_cargo_home())
NAMES = ("splitkv_hdim256_bf16", "splitkv_hdim256_bf16_causal", "splitkv_hdim64_fp16", "hdim512_bf16")


def kernel(name: str) -> CandleKernel:
    found = CandleKernel.parse(f"flash_fwd_{name}_sm80")
    assert found is not None
    return found


@pytest.fixture
def crate(tmp_path: Path) -> Path:
    """A crate with kernels that flash-attention has, and some that it has not."""
    kernels = tmp_path / "crate" / "kernels"
    kernels.mkdir(parents=True)
    for name in (*NAMES, "hdim64_fp16", "hdim256_bf16_causal"):
        (kernels / f"flash_fwd_{name}_sm80.cu").touch()
    (kernels / "flash_api.cu").touch()
    return kernels.parent


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ("all", set(NAMES)),
        ("splitkv_hdim256_bf16*", set(NAMES[:2])),
        ("hdim512_bf16, splitkv_hdim64_fp16", {NAMES[3], NAMES[2]}),
        ("*_causal", {NAMES[1]}),
    ],
)
def test_names_choose_among_what_flash_attention_has_not(crate, words, chosen) -> None:
    assert {kernel.name for kernel in choose_kernels(crate, words, line_of("0.11.1"), "0.11.1")} == chosen


def test_a_name_that_no_kernel_has_is_answered_with_those_that_there_are(crate) -> None:
    with pytest.raises(UsageError, match="'hdim64_fp16' is not one of candle's kernels") as refused:
        choose_kernels(crate, "hdim64_fp16", line_of("0.11.1"), "0.11.1")
    assert all(name in refused.value.message for name in NAMES)


def test_a_candle_whose_calls_need_none_hears_so(crate) -> None:
    with pytest.raises(IncompatibleError, match=r"0\.9\.2 has no kernels that its calls here would need"):
        choose_kernels(crate, "all", line_of("0.9.2"), "0.9.2")
    with pytest.raises(IncompatibleError, match=r"candle-flash-attn-v3 0\.11\.1 has no kernels"):
        choose_kernels(crate, "all", line_of("0.11.1", CRATE_V3), "0.11.1")


@pytest.mark.skipif(REAL is None, reason="Cargo has not unpacked candle-flash-attn 0.11.1 here")
def test_the_published_crate_has_the_kernels_that_its_calls_are_sent_to() -> None:
    assert REAL is not None
    names = [kernel.name for kernel in choose_kernels(REAL, "all", line_of("0.11.1"), "0.11.1")]
    assert len(names) == 20
    assert {"hdim512_fp16", "splitkv_hdim64_bf16", "splitkv_hdim512_fp16_causal"} <= set(names)
    assert (REAL / "kernels/flash_fwd_hdim512_fp16_sm80.cu").is_file()


@pytest.fixture(scope="module")
def library_with(tmp_path_factory: pytest.TempPathFactory) -> Callable[[frozenset[Feature]], Path]:
    """run_mha of 45 arguments over the recorder, with candle's kernels of NAMES and some features."""

    def compiled(features: frozenset[Feature]) -> Path:
        folder = tmp_path_factory.mktemp("candles")
        (folder / "candle_kernels.h").write_text(table_header([kernel(name) for name in NAMES], features))
        words = ["-DFLASHDEPOT_CANDLE_KERNELS", f"-I{folder}", str(HERE / "candles_own.c")]
        return compile_over_recorder(45, folder / "librecorded.so", *words, with_candles=True)

    return compiled


@pytest.fixture(scope="module")
def whole(library_with: Callable[[frozenset[Feature]], Path]) -> ctypes.CDLL:
    return ctypes.CDLL(str(library_with(frozenset(Feature))))


def paged(**changes: Any) -> dict[str, object]:
    return packed(**{"block_table": 0x70000, "block_table_stride": 10, "page_size": 32, "d": 256, **changes})


def ask(library: ctypes.CDLL, call: dict[str, object]) -> tuple[int, int, str, str]:
    """The status, how often candle's own was called, what the library was asked, and the error."""
    mha, counter = Recorded(library, 45), c_int32.in_dll(library, "candle_calls")
    mha.reset()
    counter.value = 0
    return mha(call), counter.value, " ".join(mha.calls()), mha.error


@pytest.mark.parametrize(
    "call",
    [
        paged(is_causal=1, right=0),
        paged(page_size=96),
        paged(page_size=512, prefix_ranges=0x80000, prefix_count=3, left=200, right=0),
        paged(d=96, softcap=9.0, alibi=0x90000),
        paged(d=40, is_bf16=0),
        dense(d=512),
        dense(d=264),
        packed(d=512),
    ],
)
def test_what_flash_attention_cannot_do_goes_to_candle(whole, call) -> None:
    if call["d"] == 96:
        call = {**call, "d": 256}  # the kernels for 128 are not among those that were compiled
    status, candles, asked, error = ask(whole, call)
    assert (status, candles, asked) == (Status.OK, 1, ""), error


@pytest.mark.parametrize(
    "call",
    [
        dense(),
        packed(d=256),
        paged(page_size=256, d=256),
        paged(page_size=512, d=64),
        paged(page_size=48),  # candle's kernels read multiples of 32 rows
        paged(d=128),  # whose kernel is not in the archive
    ],
)
def test_what_flash_attention_can_do_goes_to_the_library(whole, call) -> None:
    status, candles, asked, _ = ask(whole, call)
    assert (status, candles) == (Status.OK, 0)
    assert "fa_fwd(" in asked


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (dense(d=520), "d is 520; allowed: multiples of 8 up to 512"),
        (dense(d=512, left=5), "head dim 512 is without windows other than causal in candle itself"),
        (dense(d=512, softcap=9.0), "head dim 512 is without softcap in candle itself"),
        (dense(d=512, alibi=0x90000), "head dim 512 is without ALiBi in candle itself"),
        (dense(d=512, h_k=3), "h is 4 and h_k 3; allowed: multiples of h_k"),
        (dense(d=512, is_bf16=0), "candle's kernel hdim512_fp16 is not in this archive"),
        (dense(d=512, scale=0.0), "softmax_scale is 0"),
        (paged(page_size=48, d=512), "page_block_size is 48; candle's kernels read pages of multiples of 32 rows"),
        (paged(d=512), "candle's kernel splitkv_hdim512_bf16 is not in this archive"),
        (dense(d=512, block_table=0x70000, page_size=32), "block_table is set and cu_seqlens_q is NULL"),
        (packed(prefix_ranges=0x80000, prefix_count=1), "mm_prefix_ranges is set and block_table is NULL"),
    ],
)
def test_what_no_kernel_there_can_do_is_refused_before_any_is_launched(whole, call, said) -> None:
    status, candles, asked, error = ask(whole, call)
    assert status in {Status.INVALID, Status.UNSUPPORTED}
    assert (candles, "fa_fwd" in asked) == (0, False)
    assert said in error


def test_a_feature_that_the_kernels_were_compiled_without_is_refused(library_with) -> None:
    bare = ctypes.CDLL(str(library_with(frozenset())))
    assert ask(bare, paged(is_causal=1, right=0))[:2] == (Status.OK, 1)
    for changes, name in (
        ({"left": 64, "right": 0}, "windows other than causal"),
        ({"softcap": 9.0}, "softcap"),
        ({"alibi": 0x90000}, "ALiBi"),
        ({"d": 248}, "head dims below its own"),
    ):
        status, candles, _, error = ask(bare, paged(**changes, prefix_ranges=0x80000, prefix_count=1))
        assert (status, candles) == (Status.UNSUPPORTED, 0)
        assert f"without {name}, as the library here" in error


def test_a_launch_that_fails_is_reported_and_the_output_is_nan(whole, capfd) -> None:
    status, candles, asked, error = ask(whole, paged(stream=7))
    assert (status, candles) == (Status.CUDA, 1)
    assert "cudaMemsetAsync(7," in asked
    assert error.startswith("a launch of candle's own kernel answered with error 98")
    assert "the output was filled with NaN" in capfd.readouterr().err


@pytest.mark.nvcc
def test_a_note_tells_which_of_candles_kernels_are_in_the_archive(quick_library) -> None:
    manifest = read_library(quick_library).manifest
    assert "candle's own" not in missing_kernels(manifest, 37)
    assert missing_kernels(manifest, 45).endswith("need kernels of candle's own: --candle-kernels all")
    assert "kernels of candle's own serve what they can: hdim512_bf16." in missing_kernels(
        manifest, 45, [kernel("hdim512_bf16")]
    )


@pytest.fixture
def stand_in(quick_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, LinkableLibrary]:
    """A crate with one small kernel, which needs no CUTLASS, and a real library."""
    monkeypatch.setattr(wheels, "CUTLASS", SimpleNamespace(provide=lambda *_: tmp_path))
    shutil.copytree(HERE / "stand_in_kernels", tmp_path / "crate" / "kernels")
    return tmp_path / "crate", read_library(quick_library)


@pytest.mark.nvcc
def test_a_kernel_is_compiled_once_and_launched_by_the_archive(stand_in, real_depot, tmp_path) -> None:
    crate, library = stand_in
    kernels = choose_kernels(crate, "all", line_of("0.11.1"), "0.11.1")
    for name, events in (("first", Events()), ("second", _NothingLeft())):
        with (
            added_kernels(kernels, crate, library, Context(open_depot(real_depot), events=events)) as added,
            made_archives(library, 45, _no_zig, added=added) as (archive,),
        ):
            content = archive.content
            assert not isinstance(content, bytes)
            shutil.copy(content(), tmp_path / f"{name}.a")
    assert (tmp_path / "first.a").read_bytes() == (tmp_path / "second.a").read_bytes()
    listed = run_program(["nm", "-g", str(tmp_path / "first.a")])
    offered = {line.split()[-1] for line in listed.splitlines() if line[17:18] in {"T", "R", "D", "B"}}
    ours = {"fa_candle_arguments_45", "fa_candle_last_error", "fa_candle_last_status"}
    assert offered == {"run_mha", "run_mha_v3", *ours}

    program = [str(tmp_path / "program")]
    words = [str(HERE / "stand_in_kernels/main.c"), str(tmp_path / "first.a"), "-ldl", "-lpthread", "-lm"]
    subprocess.run(["gcc", *words, "-o", *program], check=True)
    for is_bf16, said in (
        ("1", "FA_STATUS_CUDA: a launch of candle's own kernel answered with error"),
        ("0", "FA_STATUS_UNSUPPORTED: head dim 256 fp16 causal forward is not in this library"),  # which copies pages
    ):
        env = {"CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([*program, is_bf16], capture_output=True, text=True, check=False, env=env)
        assert f"run_mha (flashdepot): {said}" in done.stderr


class _NothingLeft(Events):
    def note(self, text: str) -> None:
        assert "compile" not in text, "all of it is in the depot"


def _no_zig() -> Any:
    raise AssertionError("this machine's own tools make an archive for it")
