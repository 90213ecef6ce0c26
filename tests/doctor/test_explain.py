"""The causes that explain finds in a log, their order, and what it says of them."""

import ast
import io
from pathlib import Path

import pytest

import flashdepot
from doctor.logs import classes, first, look
from flashdepot.diagnose.explain import explain, explained
from flashdepot.diagnose.explain.machine import built_for
from flashdepot.errors import CompileError, MissingToolError
from flashdepot.model.host import CudaToolkit, Gpu, HostCompiler, HostRecord
from flashdepot.model.target import Architecture, Platform, Version

RUNTIME = Path(flashdepot.__file__).parent / "wheel" / "runtime"

HOST = HostRecord(
    platform=Platform("linux", "x86_64"),
    os_name="Debian 12",
    libc=Version("2.36"),
    cores=16,
    memory=30 * 10**9,
    driver=Version("570.86"),
    gpus=(Gpu("NVIDIA GeForce RTX 5090", Architecture(12, 0), 32 * 10**9),),
    toolkits=(CudaToolkit("/opt/cuda-12.4", Version("12.4"), "PATH"),),
    compilers=(HostCompiler("g++", "/usr/bin/g++-14", Version("14.2")),),
)


def test_causes_come_before_their_consequences() -> None:
    log = """
    urllib.error.HTTPError: HTTP Error 404: Not Found (flash_attn wheel)
    /usr/bin/ld: cannot find -lcudart: No such file or directory
    csrc/flash_attn/flash_api.cpp:9:10: fatal error: cutlass/numeric_types.h: No such file or directory
    RuntimeError: FlashAttention is only supported on CUDA 11.7 and above.
    cc1plus: fatal error: cusparse.h: No such file or directory
    OSError: [Errno 28] No space left on device
    """
    assert classes(log) == [
        "disk-full",
        "cuda-headers-missing",
        "nvcc-too-old",
        "cutlass-missing",
        "link-failed",
        "wheel-404-fallback",
    ]


def test_the_first_line_that_shows_a_failure_is_named() -> None:
    log = "fine\n" * 6 + "nvcc fatal   : Unsupported gpu architecture 'compute_120'\nninja: build stopped\n" * 2
    assert look(log).findings[0].line.number == 7


def test_a_log_that_no_rule_knows_is_unknown_and_shows_its_earliest_errors() -> None:
    report = look("start\nwidget.c:3: error: no widget\nwarning: ignore errors\nKeyError: 'x'\n0 errors\n")
    assert report.findings == ()
    assert [line.number for line in report.errors] == [2, 4]
    assert report.to_json()["status"] == "unknown"


def test_a_suggestion_is_made_only_when_nothing_is_certain() -> None:
    head = "Collecting flash_attn\n  \u00d7 Getting requirements to build wheel did not run successfully.\n"
    suggested = look(head).findings
    assert [(finding.id, finding.certain) for finding in suggested] == [("build-dep-missing", False)]
    assert classes(head + "OSError: CUDA_HOME environment variable is not set.") == ["nvcc-not-found"]


@pytest.mark.parametrize(
    ("symbol", "torch"),
    [
        ("_ZN3c104cuda9SetDeviceEi", "torch 2.1 to 2.2"),
        ("_ZN3c104cuda9SetDeviceEa", "torch 2.3 to 2.7"),
        ("_ZN3c104cuda9SetDeviceEab", "torch 2.8 or newer"),
        ("_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib", "torch 2.0 to 2.9"),
        ("_ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEENS2_8optionalINS2_10ScalarTypeEEE", "torch 2.1 or older"),
        ("_ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEESt8optionalINS2_10ScalarTypeEE", "torch 2.2 or newer"),
        ("_ZN3c105ErrorC2ENS_14SourceLocationESs", "a torch with the old ABI (_GLIBCXX_USE_CXX11_ABI=0)"),
    ],
)
def test_an_undefined_symbol_tells_which_torch_the_binary_was_built_for(symbol: str, torch: str) -> None:
    assert str(built_for(symbol)) == torch
    facts = look(f"ImportError: /x/flash_attn_2_cuda.so: undefined symbol: {symbol}").findings[0].facts
    assert any(torch in fact for fact in facts)


def test_a_symbol_that_the_named_torch_has_is_a_contradiction_and_is_said() -> None:
    error = "ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEab\n"
    assert "torch.__file__" in " ".join(look("torch==2.9.1\n" + error).findings[0].facts)
    assert "torch.__file__" not in " ".join(look("torch==2.5.1\n" + error).findings[0].facts)


def test_an_error_that_a_logger_prints_is_shown_by_its_reason_and_not_by_its_frames() -> None:
    logged = [
        "Traceback (most recent call last):",
        '  File "/env/core.py", line 9, in run',
        "    engine.start()",
        "OddError: no",
    ]
    report = look("".join(f"ERROR 04-07 10:56:15 [core.py:390] {line}\n" for line in logged))
    assert [line.text for line in report.errors] == ["OddError: no"]


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("a.cpp:3: f: Assertion `n > 0' failed.", "Aborted (core dumped)"),
        ("ValueError: no", "Killed"),
        ("dyld: Library not loaded: libpython3.12.dylib", "(signal: 6, SIGABRT: process abort signal)"),
        ("RuntimeError: no", "gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms"),
    ],
)
def test_how_a_process_ended_is_not_a_cause_behind_the_line_in_which_it_gives_up(reason: str, end: str) -> None:
    assert classes(f"torch nvcc -c a.cu\n{end}\n") != []
    assert classes(f"torch nvcc -c a.cu\n{reason}\n{end}\n") == []


def test_a_fault_is_named_whatever_was_raised_before() -> None:
    assert classes("ValueError: no\nSegmentation fault (core dumped)\n") == ["process-crashed"]


def test_a_download_that_timed_out_is_named_whatever_was_raised_before() -> None:
    log = "KeyError: 'x'\ntorch: HTTPSConnectionPool(host='files', port=443): Read timed out.\n"
    assert classes(log) == ["download-failed"]


def test_names_are_shown_mangled_where_there_is_no_demangler(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> None:
        raise MissingToolError("no C++ library")

    monkeypatch.setattr("flashdepot.binary.elf._demangler", nowhere)
    facts = look("x.so: undefined symbol: _ZN3c104cuda9SetDeviceEa").findings[0].facts
    assert facts[0] == "missing: _ZN3c104cuda9SetDeviceEa"


def test_advice_is_for_the_machine_of_the_host_record() -> None:
    no_kernel = look("CUDA error: no kernel image is available for execution on the device", HOST).findings[0]
    assert "RTX 5090, compute capability 12.0" in no_kernel.facts[0]
    assert any("TORCH_CUDA_ARCH_LIST=12.0" in command for command in no_kernel.fix)
    memory = look("nvcc -c flash_fwd.cu\nnvcc error   : 'cicc' died due to signal 9", HOST).findings[0]
    assert memory.fix[1].startswith("flashdepot build --jobs 4 ")
    assert "MAX_JOBS=4 " in memory.fix[2]
    assert memory.facts == ("this machine: 30.0 GB usable, 16 cores",)
    compiler = look("host_config.h:143:2: error: #error -- unsupported GNU version!", HOST).findings[0]
    assert any("/usr/bin/g++-14" in fact for fact in compiler.facts)
    assert any("nvcc 12.4"[5:] in fact for fact in compiler.facts)


def test_a_line_after_a_warning_is_not_skipped() -> None:
    log = "UserWarning: No module named 'foo', optional (torch)\n" * 3 + "ModuleNotFoundError: No module named 'bar'\n"
    cause = explain(io.BytesIO(log.encode())).findings[0]
    assert (cause.id, cause.line.number) == ("module-missing", 4)


def test_what_only_says_what_happened_is_named_where_nothing_else_is() -> None:
    error = "src/csrc/op.cu(12): error: identifier kFoo is unknown (torch)\n"
    assert classes(error) == ["compile-failed"]
    assert classes(error + "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n") == ["oom-killed"]


def test_a_failed_build_says_what_its_log_shows_and_where_the_log_is(tmp_path: Path) -> None:
    log = tmp_path / "unit.log"
    log.write_text("host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 13")
    error = explained(CompileError("unit: the compiler ended with status 1", log=log), HOST)
    assert error.message == "unit: the compiler ended with status 1"
    assert "gnu-version-unsupported" in error.hint
    assert "/usr/bin/g++-14" in error.hint
    assert "sudo apt install g++-12" in error.hint
    assert str(log) in error.hint
    assert error.exit_code == 5


@pytest.mark.parametrize("text", ["", "widget.cu(3): error: no widget\n"])
def test_a_log_that_no_rule_knows_leaves_the_error_as_it_was(tmp_path: Path, text: str) -> None:
    log = tmp_path / "unit.log"
    log.write_text(text)
    error = CompileError("unit: failed", hint="flashdepot explain unit.log", log=log)
    assert explained(error, HOST) is error


def test_an_error_whose_output_was_not_kept_stays() -> None:
    error = CompileError("libflashattention.so cannot be linked")
    assert explained(error, HOST) is error


def test_what_stands_before_the_first_step_is_of_the_only_installer_s_work() -> None:
    said = "It tells me ModuleNotFoundError: No module named 'torch'\n"
    assert classes(said + "$ pip install flash-attn\nCollecting flash-attn\n")[:1] == ["build-dep-missing"]
    ran = "$ python train.py\nTraceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nKeyError: 'x'\n"
    assert "build-dep-missing" not in classes(said + "$ pip install flash-attn\n" + ran)


def test_what_stands_in_no_step_can_be_of_one_of_the_logs_steps_only() -> None:
    title = "# Connection reset by peer (torch)\n"
    assert classes(title) == classes(title + "\nCollecting torch\n") == ["download-failed"]
    assert classes(title + "\nTraceback (most recent call last):\n  File 'a.py'\nRuntimeError: spam\n") == []


def test_any_module_that_a_build_does_not_find_is_named_and_none_that_a_program_lacks() -> None:
    error = "      ModuleNotFoundError: No module named 'spam_build.tools'\n"
    built = "$ pip install spam\n  Building wheel for spam (pyproject.toml): started\n" + error
    assert first(built).id == "build-dep-missing"
    assert "python -m pip install THE_DISTRIBUTION" in first(built).fix  # anybody may have taken the module's name
    ran = '$ python train.py\nTraceback (most recent call last):\n  File "train.py", line 1, in f\n' + error
    assert "build-dep-missing" not in classes(ran)


def test_a_backend_that_is_not_there_is_named_by_its_own_package() -> None:
    log = "$ pip install ./spam\nERROR: Exception:\npip._vendor.pyproject_hooks._impl.BackendUnavailable\n"
    cause = first(log + "Traceback:\nModuleNotFoundError: No module named 'hatchling'\n")
    assert (cause.id, cause.fix[0]) == ("build-dep-missing", "python -m pip install hatchling")


def test_git_needs_no_word_of_the_field_in_its_own_step() -> None:
    error = "error: pathspec 'v9' did not match any file(s) known to git\n"
    assert classes("$ git checkout v9\n" + error) == ["git-failed"]
    assert classes(error) == []


def test_what_happened_is_never_certain_to_be_why() -> None:
    assert not first("src/csrc/op.cu(12): error: identifier kFoo is unknown (torch)").certain


@pytest.mark.parametrize("line", ["nvcc: exit code 137", "nvcc 已退出: 代码为 137", "nvcc, código de salida 137"])
def test_a_process_that_was_killed_is_known_in_any_language(line: str) -> None:
    assert classes(line)[:1] == ["oom-killed"]


def test_a_name_that_an_import_should_have_given_is_never_certain() -> None:
    cause = first("  File attention.py, line 9\nNameError: name 'flash_attn_func' is not defined")
    assert (cause.id, cause.certain) == ("optional-import-failed", False)


def test_what_takes_a_match_back_stands_near_it() -> None:
    error = "the detected CUDA version (12.2) mismatches the version that was used to compile PyTorch"
    assert classes(f"nvcc: compiler driver. {'x' * 500} {error}")[:1] == ["cuda-torch-mismatch"]


def test_what_our_own_library_refuses_is_known() -> None:
    """Every text with which its Python side refuses a call, with a word in place of each value."""
    texts = [
        "".join(part.value if isinstance(part, ast.Constant) else "q" for part in getattr(said, "values", [said]))
        for file in sorted(RUNTIME.glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        if getattr(node.exc.func, "id", "") == "RuntimeError"
        for said in node.exc.args[:1]
        if isinstance(said, (ast.Constant, ast.JoinedStr))
    ]
    assert len(texts) > 20
    assert not [text for text in texts if not classes(f"RuntimeError: {text}")]


def test_no_gpu_is_seen_because_torch_is_a_build_for_the_cpu() -> None:
    report = look(
        "$ python train.py\nUnsloth 2025.3. Torch: 2.8.0+cpu. CUDA Toolkit: None.\nTraceback (most recent call last):\n"
        '  File "train.py", line 1, in <module>\nNotImplementedError: No NVIDIA GPU found? Only GPUs are supported\n'
    )
    assert next(cause.id for cause in (*report.findings, *report.possible)) == "torch-without-cuda"
