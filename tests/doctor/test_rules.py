"""Each rule of explain answers to its own examples, and to the words of any program."""

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.logs import classes
from flashdepot.diagnose.explain.edits import Edits
from flashdepot.diagnose.explain.rules import SENTENCES, SYMPTOM, LogRule, load_rules
from flashdepot.diagnose.explain.values import fill

ROOT = Path(__file__).parents[2]
EXPLAIN = ROOT / "src/flashdepot/diagnose/explain"
VALUES = {
    name
    for module in ("cuda.py", "machine.py", "values.py")
    for name in re.findall(r'"(\w+)"', (EXPLAIN / module).read_text(encoding="utf-8"))
}
"""Every word that these modules may give a value of advice for a name."""
MINIMAL = {
    "id": "x",
    "title": "t",
    "rank": "link",
    "why": "w",
    "fix": ["f"],
    "patterns": ["m"],
    "source": "s",
}


def test_a_rule_is_named_as_its_file_and_has_messages() -> None:
    files = (EXPLAIN / "rules").glob("*.toml")
    with_messages = {rule for rule, _ in _messages()} - {"unknown"}
    assert {rule.id for rule in load_rules()} == {file.stem for file in files} == with_messages


def test_what_only_says_what_happened_says_what_may_be_behind_it() -> None:
    assert [rule.id for rule in load_rules() if rule.rank == SYMPTOM and not rule.or_else] == []


def test_what_a_rule_hides_is_a_rule() -> None:
    ids = {rule.id for rule in load_rules()}
    assert {other for rule in load_rules() for other in (*rule.hides, *rule.or_else)} <= ids


def test_an_edit_that_is_asked_for_is_there_and_no_other() -> None:
    asked = {command[1:].split()[0] for _, command in SENTENCES.rows["hints"] if command.startswith("@")}
    asked |= {name for file in EXPLAIN.glob("*.py") for name in re.findall(r'\.edit\("(\w+)', file.read_text("utf-8"))}
    of_rules = {text for rule in load_rules() for text in (*rule.fix, *rule.fix_windows, *rule.fix_amd)}
    asked |= {text[1:].split()[0] for text in of_rules if text.startswith("@")}
    methods = {name for kind in Edits.__mro__ if kind is not object for name, it in vars(kind).items() if callable(it)}
    assert asked == {name[1:] for name in methods if re.fullmatch("_[a-z]+(_builds)?", name)}


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.id)
def test_every_placeholder_comes_from_a_pattern_or_is_a_value(rule: LogRule) -> None:
    groups = {name for pattern in rule.patterns + rule.in_step + rule.likely + rule.details for name in pattern.groups}
    named = {
        name
        for text in (rule.why, *rule.fix, *rule.fix_windows, *rule.fix_amd)
        for name in re.findall(r"\{(\w+)\}", text)
    }
    assert named <= groups | VALUES


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"colour": "red"}, "unknown field `colour`"),
        ({"context": ["NVCC"]}, "$.context[0]"),
        ({"host": ["weather"]}, "$.host[0]"),
        ({"phases": ["lunch"]}, "$.phases[0]"),
        ({"patterns": ["@nothing@"]}, "@nothing@"),
        ({"rank": "later"}, "later"),
    ],
)
def test_a_rule_file_with_a_mistake_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        LogRule.from_toml({**MINIMAL, **change})


def test_a_placeholder_without_a_value_stays_readable() -> None:
    assert fill("CUDA_HOME={cuda_home} MAX_JOBS={jobs}", {"jobs": "3"}) == "CUDA_HOME=<cuda home> MAX_JOBS=3"


def test_the_page_of_failures_is_what_the_script_writes() -> None:
    page = runpy.run_path(str(ROOT / "scripts/write_failures.py"))["page"]()
    assert (ROOT / "docs/failures.md").read_text(encoding="utf-8") == page, "run scripts/write_failures.py"


def _messages() -> Iterator[tuple[str, str]]:
    text = Path(__file__).with_name("messages.txt").read_text(encoding="utf-8")
    for block in text.removeprefix("== ").split("\n== "):
        rule, _, logs = block.partition("\n")
        yield from ((rule, log) for log in logs.split("\n--\n"))


def test_every_message_is_given_its_class_first() -> None:
    named = [(rule, classes(log), log) for rule, log in _messages()]
    assert len(named) > 600
    first = [(rule, findings[0] if findings else "unknown", log) for rule, findings, log in named]
    assert [(rule, answer, log) for rule, answer, log in first if answer != rule] == []


def test_what_a_log_says_is_never_put_inside_the_quotes_of_a_command() -> None:
    # Values of a log are quoted when they are put in: between quotes, those would end there, and bare the value to a shell.
    inside = re.compile(r"""(?:^|\s)(?:'[^']*|"[^"]*)\{(?:name|library|header|file|path|folder|url|symbol|message)\}""")
    fixes = [fix for rule in load_rules() for fix in (*rule.fix, *rule.fix_windows, *rule.fix_amd)]
    assert [fix for fix in fixes if inside.search(fix.partition("   #")[0])] == []


MISSING = [
    "{} is not installed.",
    "{} was not found",
    "{} could not be found",
    "{} isn't available",
    "{} is required but not installed",
    "missing {}",
    "no {} found",
    "unable to locate {}",
    "couldn't find {}",
    "Please install {} first.",
    "please make sure {} is installed",
    "requires {}",
    "you need to install {}",
    "failed to find {} (see the log)",
]
LACKED = {
    "nvcc": "nvcc-not-found",
    "the CUDA toolkit": "nvcc-not-found",
    "flash_attn": "module-missing",
    "FlashAttention 2": "module-missing",
    "a C++ compiler": "host-compiler-missing",
    "cl.exe": "msvc-env-missing",
    "cmake": "build-tool-missing",
    "triton": "module-missing",
    "`deepspeed`": "module-missing",
    "NVIDIA GPU": "no-gpu-visible",
}
TOO_OLD = [
    "requires {} or newer",
    "not supported on GPUs older than {}",
    "only supported on {} and above",
    "{} or higher is required, got 7.5",
    "this kernel requires at least {}",
]
CODED = [
    "CUDA error {0}: {1}",
    "CUDA runtime error ({0}) : {1} at x.cu:7",
    "CUDA failure {0}: {1} ; GPU=0",
    "Test CUDA failure common.cu:963 '{1}'",
    "CUDA initialization failure with error {0}.",
    "cudaGetDeviceCount returned {0}",
    "HIP error code: {0}",
]


def _first(sentence: str) -> list[str]:
    log = f'  File "/env/site-packages/torch/x.py", line 3, in load\nRuntimeError: {sentence}\n'
    return classes(log)[:1]


@pytest.mark.parametrize(
    ("words", "rule", "sentences"),
    [
        *(((thing,), rule, MISSING) for thing, rule in LACKED.items()),
        *(((least,), "not-supported", TOO_OLD) for least in ("Ampere", "sm_80", "compute capability 8.0", "Hopper")),
        ((35, "CUDA driver version is insufficient for CUDA runtime version"), "driver-too-old", CODED),
        ((100, "no CUDA-capable device is detected"), "no-gpu-visible", CODED),
        ((2, "out of memory"), "gpu-memory-full", CODED),
        ((700, "an illegal memory access was encountered"), "illegal-memory-access", CODED),
        ((209, "no kernel image is available for execution on the device"), "no-kernel-image", CODED),
    ],
)
def test_a_cause_is_understood_in_any_sentence(words, rule, sentences) -> None:
    said = [sentence.format(*words) for sentence in sentences]
    assert [sentence for sentence in said if _first(sentence) != [rule]] == []
