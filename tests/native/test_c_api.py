"""The C layer: a real library asked by ctypes, and its sources. No GPU is needed to learn what is wrong."""

import ctypes
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from support import stub_library
from support.fa_abi import Contents, Dtype, Feature, ForwardArgs, Info, Library, Pass, Status, forward_args
from support.stub_library import NATIVE, family_words, write_config
from support.tools import run_program


@pytest.fixture(scope="module")
def contents(library: Library) -> Contents:
    return library.contents()


def has_gpu() -> bool:
    program = shutil.which("nvidia-smi")
    return program is not None and subprocess.run([program, "-L"], capture_output=True, check=False).returncode == 0


def test_build_info_says_what_quick_holds(library, contents) -> None:
    assert contents.version == library.c.fa_version() == 10000
    assert contents.units == {(Pass.FWD, Dtype.BF16, 64, False), (Pass.FWD, Dtype.BF16, 64, True)}
    assert contents.features == Feature(0)
    assert contents.sass
    assert list(contents.head_dims) == sorted(contents.head_dims)
    assert contents.cuda >= 12000
    assert contents.upstream.startswith("2.")
    assert contents.flashdepot


def test_build_info_fills_as_much_as_the_caller_knows(library) -> None:
    class Longer(ctypes.Structure):
        _fields_ = [("known", Info), ("later", ctypes.c_uint64)]

    longer = Longer(later=7)
    longer.known.size = ctypes.sizeof(Longer)
    assert library.c.fa_build_info(ctypes.byref(longer.known)) == Status.OK
    assert (longer.known.version, longer.later) == (10000, 0)

    shorter = Info(size=Info.cuda.offset)
    shorter.cuda = 99
    assert library.c.fa_build_info(shorter) == Status.OK
    assert (shorter.version, shorter.cuda) == (10000, 99)


@pytest.mark.parametrize("size", [0, 7, 5000])
def test_build_info_refuses_a_size_that_cannot_be_one(library, size) -> None:
    assert library.c.fa_build_info(Info(size=size)) == Status.INVALID
    assert f"size is {size}" in library.last_error()


def test_every_status_has_its_name(library) -> None:
    names = [library.c.fa_status_string(status).decode() for status in Status]
    assert names == [f"FA_STATUS_{status.name}" for status in Status]
    assert library.c.fa_status_string(99) == b"unknown fa_status"


def test_null_arguments_are_refused(library) -> None:
    for function in ("fa_fwd", "fa_bwd", "fa_build_info"):
        assert getattr(library.c, function)(None) == Status.INVALID
        assert "is NULL" in library.last_error()
    assert library.c.fa_supports(-1, None, None) == Status.INVALID


@pytest.mark.parametrize("fields", [{"batch": 0}, {"seqlen_q": 0}])
def test_nothing_to_compute_is_done_at_once_and_needs_no_gpu(library, fields) -> None:
    args = forward_args(q__data=None, k__data=None, v__data=None, o__data=None, lse=None, **fields)
    assert library.fwd(args).status is Status.OK


class LongerArgs(ctypes.Structure):
    """The arguments of a caller that was compiled with a newer header."""

    _fields_ = [("known", ForwardArgs), ("later", ctypes.c_uint64)]


def longer_args(later: int) -> ForwardArgs:
    longer = LongerArgs(forward_args(seqlen_q=0), later)
    longer.known.size = ctypes.sizeof(LongerArgs)
    return longer.known


def test_a_newer_caller_that_sets_nothing_new_is_served(library) -> None:
    assert library.fwd(longer_args(later=0)).status is Status.OK


def test_a_newer_caller_that_sets_a_newer_field_is_refused(library) -> None:
    answer = library.fwd(longer_args(later=1))
    assert answer.status is Status.INVALID
    assert "size is 696" in answer.text
    assert "688 bytes of fa_fwd_args that this library (version 1.0) knows" in answer.text


def test_an_older_caller_reads_as_zeros_beyond_its_end(library) -> None:
    args = forward_args(seqlen_q=0, size=ForwardArgs.alibi_slopes.offset)
    args.alibi_slopes = 0x60001  # beyond the end of this caller's struct
    args.cu_seqlens_q = 0x60000
    assert library.fwd(args).status is Status.OK
    assert "dtype is 0" in library.fwd(forward_args(size=ForwardArgs.dtype.offset)).text


def test_the_error_text_belongs_to_the_thread(library) -> None:
    seen: list[str] = []

    def other() -> None:
        seen.append(library.last_error())
        seen.append(library.fwd(forward_args(batch=-3)).text)

    assert "batch is -2" in library.fwd(forward_args(batch=-2)).text
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen[0] == ""
    assert "batch is -3" in seen[1]
    assert "batch is -2" in library.last_error()


def test_a_success_leaves_the_error_text_untouched(library) -> None:
    library.fwd(forward_args(batch=-2))
    assert library.fwd(forward_args(batch=0)).status is Status.OK
    assert "batch is -2" in library.last_error()


@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_the_answer_says_so(library) -> None:
    args = forward_args()
    for answer in (library.fwd(args), library.supports(0, args), library.fwd_workspace(args)[0]):
        assert answer.status is Status.CUDA
        assert "cudaErrorInsufficientDriver" in answer.text or "cudaErrorNoDevice" in answer.text
        assert "nvidia-smi" in answer.text


def test_the_shared_library_exports_the_api_and_nothing_else(quick_library) -> None:
    command = ["nm", "-D", "--defined-only", str(quick_library / "lib" / "shared" / "libflashattention.so")]
    listed = run_program(command)
    names = {line.split()[-1] for line in listed.splitlines()} - {"FA_1"}  # some linkers list the version itself
    assert {name.partition("@@")[2] for name in names} == {"FA_1"}
    assert {name.partition("@@")[0] for name in names} == {
        "fa_build_info",
        "fa_bwd",
        "fa_bwd_supports",
        "fa_bwd_workspace",
        "fa_combine",
        "fa_fwd",
        "fa_fwd_workspace",
        "fa_last_error",
        "fa_preload",
        "fa_status_string",
        "fa_supports",
        "fa_version",
        "fa_xla_call",
    }


OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti")
SOURCES = [path for folder in ("src", "driver") for path in sorted((NATIVE / folder).rglob("*.cpp"))]
CXX = re.compile(r"_ZSt|_ZNSt|_ZNKSt|_Zn[wa]|_Zd[la]|__cxa_|__gxx_|_Unwind_|__dynamic_cast|__libc_single_threaded")
"""Names of libstdc++, libc++ and their ABI libraries: what throws, allocates, guards a static, or unwinds."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("config")
    write_config(folder)
    return folder


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(NATIVE)))
def test_an_object_refers_to_the_c_library_only(source, config, source_trees, cuda_include, tmp_path) -> None:
    folders = [config, *(NATIVE / name for name in ("include", "src", "shim", "driver"))]
    output = tmp_path / "object.o"
    run_program(
        [
            *("g++", *OPTIONS, *(f"-I{folder}" for folder in folders), *family_words(source, source_trees)),
            *("-isystem", str(cuda_include), "-c", str(source), "-o", str(output)),
        ]
    )
    needed = {line.split()[-1] for line in run_program(["nm", "-u", str(output)]).splitlines()}
    assert not {name for name in needed if CXX.match(name)} - {"__cxa_atexit", "__cxa_finalize"}  # the C library's


@pytest.fixture(scope="module")
def program(upstream_tree: Path, cuda_include: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized")
    options = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")
    return stub_library.build_program("random_calls.cpp", folder, upstream_tree, cuda_include, *options)


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_are_answered_and_no_sanitizer_complains(program, seed) -> None:
    done = subprocess.run([str(program), str(seed), "20000"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:3000]) == (0, "")
    ok, invalid, unsupported, no_kernel, too_small, cuda, internal, unknown = map(int, done.stdout.split())
    assert min(ok, invalid, unsupported, no_kernel, too_small) > 20
    assert cuda == internal == unknown == 0
