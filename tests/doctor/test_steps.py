"""A log becomes the story of its commands before any rule is tried."""

from collections.abc import Sequence

import pytest

from doctor.logs import first, look
from flashdepot.model.host import Gpu
from flashdepot.model.target import Architecture
from support.toolkits import make_host

RTX_4090 = Gpu("NVIDIA GeForce RTX 4090", Architecture(8, 9), 24 * 10**9)

PIP = """\
$ pip install flash-attn==2.8.3
Collecting flash-attn==2.8.3
  Downloading flash_attn-2.8.3.tar.gz (8.4 MB)
  Getting requirements to build wheel ... error
  error: subprocess-exited-with-error
  ╰─> [17 lines of output]
      Traceback (most recent call last):
        File "/e/pip/_vendor/pyproject_hooks/_in_process/_in_process.py", line 389, in <module>
        File "/tmp/pip-build-env-abc/overlay/lib/python3.12/site-packages/setuptools/build_meta.py", line 317, in get
      ModuleNotFoundError: No module named 'torch'
      [end of output]
"""
RUN = """\
(base) me@host:~$ python train.py
Traceback (most recent call last):
  File "/home/me/train.py", line 3, in <module>
  File "/e/lib/python3.11/site-packages/transformers/utils.py", line 3, in load
    import flash_attn.cute
ModuleNotFoundError: No module named 'torch'
"""


def story(log: str) -> list[tuple[str, str, str]]:
    return [(step.phase, step.installer or step.tool, step.package) for step in look(log).steps]


@pytest.mark.parametrize(
    ("log", "last"),
    [
        (PIP, ("build", "pip", "flash-attn")),
        (RUN, ("import", "python", "transformers")),
        (
            "  \u00d7 Failed to build `flash-attn==2.8.3`\n  ╰─▶ Call to `setuptools` failed\n",
            ("build", "uv", "flash-attn"),
        ),
        ("  x Failed to build `flash-attn==2.8.3`\n  | x\n", ("build", "uv", "flash-attn")),
        ("Solving environment: failed\nLibMambaUnsatisfiableError: x\n", ("resolve", "conda", "")),
        (
            "   Compiling candle-flash-attn v0.9.1\nerror: linking with `cc` failed\n",
            ("link", "cargo", "candle-flash-attn"),
        ),
        (
            "error: failed to run custom build command for `candle-kernels v0.9.1`\n",
            ("build", "cargo", "candle-kernels"),
        ),
        ("-- The CUDA compiler identification is NVIDIA 12.8\n", ("build", "cmake", "")),
        ("/usr/bin/ld: cannot find -lcudart\n", ("link", "compiler", "")),
        ("#12 [4/7] RUN pip install vllm\n#12 1.5 Collecting vllm\n", ("resolve", "pip", "vllm")),
        ("2026-01-01T10:11:12.1234567Z Collecting vllm==0.9.0\n", ("resolve", "pip", "vllm")),
        ("!pip install -q unsloth\n", ("resolve", "pip", "unsloth")),
        ('PS C:\\src> python -c "import flash_attn"\n', ("import", "python", "")),
    ],
)
def test_each_tools_words_begin_a_step(log: str, last: tuple[str, str, str]) -> None:
    assert story(log)[-1] == last


def test_a_step_has_its_command_version_and_lines() -> None:
    step = look(PIP).steps[0]
    assert (step.command, step.version, step.first, step.last) == ("pip install flash-attn==2.8.3", "2.8.3", 1, 1)


def test_one_sentence_means_another_thing_in_another_phase() -> None:
    assert first(PIP).id == "build-dep-missing"
    assert first(RUN).id == "module-missing"


@pytest.mark.parametrize(
    ("sentence", "step", "answer"),
    [
        ("pip install flash-attn fails: No module named torch", ("resolve", "pip", "flash-attn"), "build-dep-missing"),
        ("pip install flash-attn stuck at Building wheels for collected packages", ("resolve", "pip", "flash-attn"), "slow-build"),
        ("ModuleNotFoundError: No module named 'torch' while pip install flash-attn", ("resolve", "pip", "flash-attn"), "build-dep-missing"),
        ("No module named 'torch' when installing flash-attn with uv", ("resolve", "uv", "flash-attn"), "build-dep-missing"),
        ("flash-attn build killed, ninja uses all RAM", None, "oom-killed"),
        ("candle-flash-attn takes 15 minutes to compile", None, "slow-build"),
        ("ImportError: needs flash_attn: pip install flash-attn", None, "module-missing"),
    ],
)  # fmt: skip
def test_a_person_s_one_sentence_is_a_story_too(sentence: str, step: tuple[str, str, str] | None, answer: str) -> None:
    assert story(sentence) == ([step] if step else [])
    assert look(sentence).findings[0].id == answer


@pytest.mark.parametrize(
    ("sentence", "command"),
    [
        ("can I use flash attention on a T4 GPU?", "flashdepot resolve --gpu 7.5 "),
        ("pip install flash-attn on macOS", "flashdepot resolve --platform macosx_14_0_arm64 "),
        ("flash-attn for torch 2.9 and cp313-cp313", "flashdepot resolve --torch 2.9 --python-tag cp313 "),
        ("candle-flash-attn does not build", "flashdepot link candle --write --get "),
        ("flash attention on AMD MI300", "FLASH_ATTENTION_TRITON_AMD_ENABLE=TRUE pip install flash-attn "),
        ("flash attention is not there", "flashdepot install "),
    ],
)
def test_a_question_without_an_error_ends_in_the_command_that_answers_it(sentence: str, command: str) -> None:
    assert look(sentence).next_steps[0].startswith(command)


def test_a_machine_that_is_this_one_is_not_asked_for() -> None:
    log = "$ pip install flash-attn\nGPU: NVIDIA RTX 4090\nerror: something new\n"
    assert any("--gpu 8.9" in step for step in look(log).next_steps)
    assert not any("--gpu" in step for step in look(log, make_host(gpus=(RTX_4090,))).next_steps)


def test_lines_before_a_summary_are_of_its_step() -> None:
    log = "ModuleNotFoundError: No module named 'torch'\nhint: This error likely indicates that `flash-attn@2.7.3` depends\n"
    assert first(log).id == "build-dep-missing"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{'msg': 'Traceback:\\n  x\\n", "\\n'}"),
        ('{"logs": "start\\n  x\\n', '\\n"}'),
        ("<pre>start<br>", "</pre>"),
        ("> **", "**"),
    ],
)
def test_a_log_inside_something_else_is_read(before: str, after: str) -> None:
    report = look(f"first line\n{before}nvcc fatal   : Unsupported gpu architecture 'compute_120'{after}\n")
    assert [(finding.id, finding.line.number) for finding in report.findings] == [("unsupported-gpu-arch", 2)]


@pytest.mark.parametrize("quotes", ["''", '""', "``", "\u2018\u2019", "\u201c\u201d", "\u00ab\u00bb"])
def test_quotes_of_any_kind_are_the_same_sentence(quotes: str) -> None:
    assert (
        first(f"nvcc fatal   : Unsupported gpu architecture {quotes[0]}compute_120{quotes[1]}").id
        == "unsupported-gpu-arch"
    )


def test_lines_that_a_terminal_cut_are_whole_again() -> None:
    text = "x" * 70 + " nvcc fatal   : Unsupported gpu architecture 'compute_120' " + "y" * 140
    log = "\n".join(text[at : at + 80] for at in range(0, len(text), 80)) + "\nerror: next\n"
    report = look(log)
    assert [finding.id for finding in report.findings] == ["unsupported-gpu-arch"]
    assert report.errors[-1].number == log.count("\n")


@pytest.mark.parametrize(
    ("gpu", "named"), [("NVIDIA GeForce RTX 4090", []), ("Tesla T4", ["not-supported"]), ("", ["not-supported"])]
)
def test_what_the_log_says_of_its_gpu_rules_a_cause_out(gpu: str, named: Sequence[str]) -> None:
    log = f"| 0  {gpu}  Off |\nRuntimeError: FlashAttention only supports Ampere GPUs or newer.\n"
    assert [finding.id for finding in look(log).findings] == named


def test_facts_of_the_machine_are_data_and_fill_in_the_advice() -> None:
    log = (
        "PyTorch version: 2.8.0+cu128\nGPU 0: NVIDIA GeForce RTX 5090\nNvidia driver version: 570.86.15\n"
        "CUDA error: no kernel image is available for execution on the device (flash_attn)\n"
    )
    report = look(log)
    machine = report.to_json()["machine"]
    assert (machine["gpus"], machine["torch"], machine["driver"]) == (
        ["NVIDIA GeForce RTX 5090"],
        "2.8.0+cu128",
        "570.86.15",
    )
    assert any("TORCH_CUDA_ARCH_LIST=12.0" in command for command in report.findings[0].fix)


def test_flashdepots_own_command_comes_first_and_hours_of_compiling_last() -> None:
    fix = first("ImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi").fix
    assert fix[0].startswith("flashdepot install ")
    assert "FORCE_BUILD" in fix[-1]


def test_a_gpu_that_flashdepot_does_not_serve_gets_no_command_of_flashdepot() -> None:
    log = "GPU 0: Tesla V100-SXM2\nImportError: /x/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"
    assert not any("flashdepot" in command for command in first(log).fix)


def test_a_build_by_cargo_gets_no_command_of_pip() -> None:
    log = "   Compiling candle-flash-attn v0.9.1\nnvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"
    fix = first(log).fix
    assert fix[0].startswith("flashdepot link candle ")
    assert not any(command.startswith(("pip ", "python ")) for command in fix)


def test_a_build_by_cargo_that_lacks_nvcc_is_given_it_from_the_depot() -> None:
    log = (
        "   Compiling candle-core v0.9.1\nerror: failed to run custom build command for `cudarc v0.19.10`\n  --- stderr\n"
        "  thread 'main' panicked at build.rs:81:18:\n  Failed to execute `nvcc`: Os { code: 2, kind: NotFound }\n"
    )
    command = first(log).fix[0].partition("$(")[2].partition(")")[0]
    assert command == "flashdepot link candle --write --get --toolkit"


def test_what_is_concluded_from_something_absent_is_only_possible() -> None:
    report = look("ModuleNotFoundError: No module named 'flash_attn_2_cuda'")
    assert not report.certain
    assert report.to_json()["status"] == "possible"
    assert [cause.id for cause in report.possible][:2] == ["module-missing", "python-api-drift"]
    assert len({fix for _, fix in report.each_possible()}) == len(report.possible)
    assert report.next_steps


def test_seconds_of_installing_come_before_another_build_of_flash_attn() -> None:
    steps = look("Building wheel for flash-attn\nERROR: Could not build wheels for flash-attn\n").next_steps
    commands = [step for step in steps if step.startswith(("flashdepot ", "MAX_JOBS"))]
    assert commands[0].startswith("flashdepot install ")
    assert any(command.startswith("MAX_JOBS=1 pip install -v flash-attn") for command in commands)


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("RuntimeError: Engine core initialization failed. See root cause above. flash_attn", "worker's own"),
        ("error: subprocess-exited-with-error", "lines of output"),
        ("ninja: build stopped: subcommand failed.", "FAILED:"),
        ("error: could not compile `candle-flash-attn` (lib) due to 1 previous error", "--- stderr"),
    ],
)
def test_a_line_that_only_sums_up_says_where_the_deciding_one_stands(line: str, where: str) -> None:
    assert where in look(line).next_steps[0]


def test_an_index_that_had_nothing_may_not_have_answered() -> None:
    log = "ERROR: Could not find a version that satisfies the requirement flash-attn (from versions: {})\n"
    assert first(log.format("2.5.0, 2.8.3")).certain
    unsure = look(log.format("none")).to_json()
    possible = [cause["class"] for cause in unsure["possible"]]
    assert (unsure["status"], possible[:2]) == ("possible", ["version-not-published", "download-failed"])


@pytest.mark.parametrize(
    ("log", "status", "answer"),
    [
        (  # a thread is about its title, and a later post about another failure
            (
                "# ModuleNotFoundError: No module named 'fused_layer_norm_cuda'\nIt works with apex built from source.\n\n"
                "Now another one:\nRuntimeError: FlashAttention only supports Ampere GPUs or newer.\n"
            ),
            "possible",
            "module-missing",
        ),
        (  # a cited title of another thread
            (
                "I have this:\nImportError: cannot import name 'LlavaLlamaForCausalLM' from 'llava.model' #1101\n"
                "FAILED: fwd.o\nnvcc fatal   : Unsupported gpu architecture 'compute_120'\n"
            ),
            "explained",
            "unsupported-gpu-arch",
        ),
        (  # a program that is missed and runs later
            "pyenv: uv: command not found\n$ pip install uv\n$ uv sync\nResolved 246 packages in 0.61ms\n",
            "unknown",
            "",
        ),
        (  # installed or run? the log does not say
            "Even so `pip install flash_attn` complains:\n\n    ModuleNotFoundError: No module named 'torch'\n",
            "possible",
            "build-dep-missing",
        ),
    ],
)
def test_a_log_of_several_passages_says_which_one_counts(log: str, status: str, answer: str) -> None:
    report = look(log)
    assert (report.status, [cause.id for cause in report.findings][:1]) == (status, [answer] if answer else [])


def test_no_stranger_s_package_is_installed_that_has_the_name_of_the_user_s_own_project() -> None:
    log = "error: Failed to build `serve @ file:///home/me/serve`\n  cause: Failed to parse entry: `einops`\n"
    report = look(log)
    said = [*report.next_steps, *(command for cause in report.findings for command in cause.fix)]
    assert said
    assert not [command for command in said if "install" in command and "serve" in command]


@pytest.mark.parametrize(
    ("log", "named"),
    [
        ("-- The CXX compiler identification is GNU 12\nfatal: not a git repository: '/a'\n-- Configuring done (0.1s)\n", []),
        ("-- The CXX compiler identification is GNU 12\nfatal: not a git repository: '/a'\n-- Configuring incomplete\n", ["git-failed"]),
        ("$ pip install flash-attn\nBuilding wheel for flash-attn (setup.py): still running...\nSuccessfully installed flash-attn\n", []),
        ("$ pip install flash-attn\nBuilding wheel for flash-attn (setup.py): still running...\n", ["slow-build"]),
    ],
)  # fmt: skip
def test_a_tool_that_reached_its_goal_did_without_what_it_complained_of(log: str, named: Sequence[str]) -> None:
    assert [cause.id for cause in look(log).findings] == named
