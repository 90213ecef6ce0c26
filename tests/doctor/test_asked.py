"""What somebody types without a log: `flashdepot explain "flash-attn hangs at building wheel"`."""

import io

import pytest

from flashdepot.cli.check_commands import describe_log
from flashdepot.diagnose.explain import LogReport, explain
from flashdepot.diagnose.explain.rules import PACKAGE, SENTENCES, LogRule, load_rules


def of(sentence: str) -> LogReport:
    return explain(io.BytesIO(sentence.encode()))


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("will flash attention ever run on my old V100?", "not-supported"),
        ("kann man flash-attn auf einer RTX 2080 Ti benutzen", "not-supported"),
        ("flash-attn on the GPUs of a MacBook", "not-supported"),
        ("installing flash-attn has taken four hours so far", "slow-build"),
        ("flash_attn 编译太慢了", "slow-build"),
        ("the server freezes whenever I compile flash-attn", "oom-killed"),
        ("compiling flash attention uses too much RAM", "oom-killed"),
        ("out of memory on a 24 GB card", "gpu-memory-full"),
        ("my 5090 does not work with flash attention", "no-kernel-image"),
        ("is there a wheel of flash-attn for torch 2.9 and Python 3.13?", "wheel-404-fallback"),
        ("xformers cannot be found, though pip says that it is there", "module-missing"),
        ("vLLM says that flash_attn is not installed", "module-missing"),
        ("pytorch was installed without CUDA", "torch-without-cuda"),
        ("my GPU is not detected in the container", "no-gpu-visible"),
        ("can flash-attn be used with CUDA 11.4?", "nvcc-too-old"),
        ("uv fails on flash-attn", "build-dep-missing"),
        ("bitsandbytes never works on this machine, only errors", "bitsandbytes-setup"),
        ("cudarc fails with the newest CUDA", "cudarc-cuda-unsupported"),
        ("nvcc takes the wrong gcc", "gnu-version-unsupported"),
        ("two servers, and NCCL hangs", "nccl-failed"),
    ],
)
def test_a_sentence_is_answered_by_what_it_is_about(sentence: str, expected: str) -> None:
    report = of(sentence)
    assert [cause.id for cause in (report.findings or report.possible)[:1]] == [expected]
    assert report.sentence


@pytest.mark.parametrize(
    "sentence",
    [
        "I get an error, please help",
        "how do I start?",
        "flash attention does not install here",
        "which GPU should I buy for my models?",
        "vllm was updated today",
    ],
)
def test_a_sentence_that_says_too_little_names_nothing(sentence: str) -> None:
    report = of(sentence)
    assert report.sentence
    assert report.possible == ()
    assert "flashdepot explain -" in " ".join(report.next_steps)


def test_words_may_stand_in_any_order() -> None:
    assert of("V100: flash attention?").possible[0].id == of("flash attention, on a V100").possible[0].id


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: flash attention on a V100 is very slow to build",
        "error: the build of flash-attn is slow on a V100",
        "$ pip install flash-attn   # slow on my V100",
        "flash attention is slow to build on a V100\n" * 5,
        "flash attention is slow to build on a V100, " * 20,
    ],
    ids=["exception", "error", "prompt", "lines", "long"],
)
def test_what_a_program_prints_and_a_longer_text_are_not_a_sentence(line: str) -> None:
    assert not of(line).sentence


def test_an_answer_is_never_certain_and_asks_for_the_log() -> None:
    report = of("will flash attention ever run on my old V100?")
    page = describe_log(report)
    assert report.status == "described"
    assert page.startswith("These are your own words")
    assert "THE_COMMAND 2>&1 | flashdepot explain -" in page
    assert "flashdepot install" not in page  # no wheel helps that GPU


def test_what_a_question_names_is_looked_up() -> None:
    steps = of("a flash-attn wheel for torch 2.9, Python 3.13 and Windows?").next_steps
    assert steps[0].startswith("flashdepot resolve --platform win_amd64 --torch 2.9 --python-tag cp313")


def test_the_package_that_a_sentence_names_is_the_one_of_the_advice() -> None:
    assert "sageattention" in " ".join(of("the sage attention that I installed is never found").possible[0].fix)


def test_each_notion_is_asked_for() -> None:
    asked = {word.lstrip("!") for rule in load_rules() for row in rule.asked for word in row.split()}
    within = {name for name in SENTENCES.notions if any(f"@{name}@" in text for text in SENTENCES.notions.values())}
    assert asked | within == {*SENTENCES.notions, PACKAGE}


def test_a_notion_that_is_not_there_is_refused() -> None:
    rule = {
        "id": "x",
        "title": "x",
        "rank": "link",
        "why": "x",
        "fix": ["x"],
        "source": "x",
        "asked": ["flash nothing"],
    }
    with pytest.raises(ValueError, match="nothing is not a notion"):
        LogRule.from_toml(rule)
