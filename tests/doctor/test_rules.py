"""Each rule answers to its own examples, to messages of many tools, and advises what helped where people reported it."""

from __future__ import annotations

import io
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashdepot.diagnose.explain import explain
from flashdepot.diagnose.explain.machine import named
from flashdepot.diagnose.explain.report import fill
from flashdepot.diagnose.explain.rules import LogRule, load_rules

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    pytest.param(rule, log, shows, id=rule.id)
    for rule in load_rules()
    for shows, logs in ((True, rule.shown_by), (False, rule.not_shown_by))
    for log in logs
]
MINIMAL = {
    "id": "x",
    "title": "t",
    "rank": "link",
    "why": "w",
    "fix": ["f"],
    "patterns": ["m"],
    "source": "s",
    "phases": ["link"],
    "shown_by": [],
    "not_shown_by": [],
}


@pytest.mark.parametrize(("rule", "log", "shows"), EXAMPLES)
def test_a_rule_answers_to_its_examples_and_to_nothing_that_only_looks_alike(
    rule: LogRule, log: str, *, shows: bool
) -> None:
    found = [finding.id for finding in explain(io.BytesIO(log.encode())).findings]
    if shows:
        assert found[:1] == [rule.id]
    else:
        assert rule.id not in found


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.id)
def test_a_rule_is_named_as_its_file_and_has_examples_of_both_kinds(rule: LogRule) -> None:
    folder = ROOT / "src/flashdepot/diagnose/explain/rules"
    assert (folder / f"{rule.id}.toml").is_file()
    assert rule.phases
    assert rule.shown_by
    assert rule.not_shown_by


def test_what_a_rule_hides_is_a_rule() -> None:
    ids = {rule.id for rule in load_rules()}
    assert {other for rule in load_rules() for other in (*rule.hides, *rule.or_else)} <= ids


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.id)
def test_every_placeholder_comes_from_a_pattern_or_from_the_host(rule: LogRule) -> None:
    groups = {name for pattern in rule.patterns + rule.in_step + rule.likely + rule.details for name in pattern.groups}
    host = {
        "jobs",
        "gpu",
        "gpu_arch",
        "gpu_capability",
        "cuda_home",
        "compiler",
        "driver",
        "package",
        "rebuild",
        "install",
        "module",
    }
    named = {
        name
        for text in (rule.why, *rule.fix, *rule.fix_windows, *rule.fix_amd)
        for name in re.findall(r"\{(\w+)\}", text)
    }
    assert named <= groups | host


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"colour": "red"}, "unknown field `colour`"),
        ({"context": ["NVCC"]}, "$.context[0]"),
        ({"host": ["weather"]}, "$.host[0]"),
        ({"phases": ["lunch"]}, "$.phases[0]"),
        ({"patterns": ["("]}, "missing )"),
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
    named = [(rule, explain(io.BytesIO(log.encode())).findings, log) for rule, log in _messages()]
    assert len(named) > 600
    first = [(rule, findings[0].id if findings else "unknown", log) for rule, findings, log in named]
    assert [(rule, answer, log) for rule, answer, log in first if answer != rule] == []


def test_what_a_log_says_is_never_put_inside_the_quotes_of_a_command() -> None:
    # Values of a log are quoted when they are put in: between quotes, those would end there, and bare the value to a shell.
    inside = re.compile(r"""(?:^|\s)(?:'[^']*|"[^"]*)\{(?:name|library|header|file|symbol|message)\}""")
    fixes = [fix for rule in load_rules() for fix in (*rule.fix, *rule.fix_windows, *rule.fix_amd)]
    assert [fix for fix in fixes if inside.search(fix.partition("   #")[0])] == []


NAMES = {
    "abi-undefined-symbol": ["torch.__file__", "FLASH_ATTENTION_FORCE_BUILD=TRUE", "pip cache remove", "cxx11abi"],
    "build-dep-missing": ["packaging", "ninja", "psutil", "wheel", "setuptools", "--no-build-isolation"],
    "build-isolation-no-torch": ["--no-build-isolation", "requirements.txt"],
    "compiler-crash": ["FLASH_ATTN_CUDA_ARCHS", "MAX_JOBS", "newer GCC", "another CUDA minor"],
    "compute-cap-undetected": ["CUDA_COMPUTE_CAP"],
    "cross-device-link": ["TMPDIR", "--no-cache-dir", "WHEEL_URL"],
    "cuda-headers-missing": ["conda install -c nvidia", "module load cuda", "CUDA_HOME"],
    "cuda-invalid-argument": ["sdpa", "without FlashAttention-3", "pip install -U"],
    "cuda-lib-not-found-at-link": ["LIBRARY_PATH", "stubs", "cuda-cudart-dev"],
    "cuda-libraries-mixed": ["LD_LIBRARY_PATH", "pip list"],
    "cuda-torch-mismatch": ["CUDA_HOME", "scaled_dot_product_attention"],
    "cudart-missing": ["torch.version.cuda", "LD_LIBRARY_PATH", "pip cache remove"],
    "cudart-symbols-unlinked": ["-lcudart", "rustc-link-lib=cudart", "rustc-link-search"],
    "cutlass-cuda-incompat": ["12.9", "newer CUTLASS"],
    "cutlass-missing": ["git submodule update --init", "--recursive", "git >= 2.30", "--sparse"],
    "disk-full": ["TMPDIR", "docker system prune", "MAX_JOBS", "df -h"],
    "driver-too-old": ["nvidia-smi", "525", "580"],
    "extension-not-built": [
        "FLASH_ATTENTION_SKIP_CUDA_BUILD",
        "FLASH_ATTENTION_FORCE_BUILD=TRUE",
        "outside the source folder",
    ],
    "extension-version-mixup": ["hopper", "flash-attn<2"],
    "glibc-too-old": ["2.7.4.post1", "--no-binary", "ldd --version"],
    "glibcxx-too-old": ["libstdcxx-ng", "LD_PRELOAD"],
    "gnu-version-unsupported": ["g++-12", "NVCC_CCBIN", "CXX", "newer CUDA toolkit"],
    "gpu-too-old": ["sdpa", "CUDA_COMPUTE_CAP=80"],
    "kernel-image-invalid": ["2.8.0.post2", "driver"],
    "lfs-pointer": ["git lfs pull", "git lfs install", ".gitattributes", "another host"],
    "msvc-compile-error": ["newer flash-attn", "/permissive", "c++17"],
    "msvc-cplusplus-macro": ["/Zc:__cplusplus", "c++17", "DISTUTILS_USE_SDK=1"],
    "msvc-env-missing": ["vcvars64.bat", "where cl", "Windows SDK"],
    "msvc-math-defines": ["-D_USE_MATH_DEFINES"],
    "msvc-preprocessor": ["NVCC_PREPEND_FLAGS", "/Zc:preprocessor", "set CL", "NVCC_FLAGS"],
    "msvc-std-ambiguous": ["-DUSE_CUDA", "header"],
    "msvc-version-unsupported": ["-vcvars_ver", "NVCC_APPEND_FLAGS", "12.4", "NVCC_FLAGS"],
    "no-kernel-image": ["FLASH_ATTN_CUDA_ARCHS", "csrc/layer_norm", "12.8", "sdpa", "xformers", "Triton"],
    "nvcc-gcc-incompat": ["/usr/local/cuda", "g++-10", "nvidia-cuda-toolkit", "pip install -U"],
    "nvcc-not-found": ["CUDA_HOME", "FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE", "FLASH_ATTENTION_TRITON_AMD_ENABLE"],
    "nvcc-path-spaces": ["without blanks"],
    "nvcc-too-old": ["nvcc -V", "CUDA_HOME"],
    "oom-killed": ["MAX_JOBS", "RAYON_NUM_THREADS", "swap", "CANDLE_FLASH_ATTN_BUILD_DIR", "page file"],
    "pic-relocation": ["-fPIC", "newer candle-flash-attn"],
    "ptx-unsupported-toolchain": ["driver", "cuda-compat", "no newer than the driver"],
    "rdc-device-link": ["CUDA_RESOLVE_DEVICE_SYMBOLS", "CUDA_SEPARABLE_COMPILATION", "-dlink", "without -rdc"],
    "reloc-overflow-2gb": ["TORCH_CUDA_ARCH_LIST", "-compress-all", "No -G", "shared library"],
    "rust-crate-dup": ["cargo tree -d", "patch.crates-io", "--locked", "same git rev"],
    "rust-link-lib": ["12.5", "Visual Studio", "mistral.rs"],
    "slow-build": ["ninja", "CANDLE_FLASH_ATTN_BUILD_DIR", "RAYON_NUM_THREADS"],
    "stale-cached-wheel": ["pip cache remove", "--no-cache-dir"],
    "torch-lib-missing": ["csrc/*", "import torch"],
    "unsupported-gpu-arch": ["CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "12.8", "11.1"],
    "uv-build-isolation": ["no-build-isolation-package", "--no-install-package", "extra-build-dependencies"],
    "wheel-corrupt": ["SHA-256", "resume", "pip cache purge"],
    "wheel-metadata-mismatch": ["uv self update", "FLASH_ATTN_LOCAL_VERSION"],
    "wheel-tag-mismatch": ["cpXY"],
    "win-dll-load-failed": ["torch.version.cuda", "CUDA runtime", "import torch first"],
    "win-link-error": ["toolset", "response file", "17.4"],
    "win-long-path": ["core.longpaths", "LongPathsEnabled", "csrc/cutlass", "TMP"],
    "wrong-arch-library": ["git lfs pull", "uname -m"],
}
"""What fixed each class of failure where people reported it: versions, variables, options and commands."""


@pytest.mark.parametrize("class_id", NAMES)
def test_the_advice_names_what_fixed_such_failures(class_id: str) -> None:
    rule = next(rule for rule in load_rules() if rule.id == class_id)
    advice = fill("\n".join((rule.why, *rule.fix)), named("flash-attn").values)
    assert [name for name in NAMES[class_id] if name.lower() not in advice.lower()] == []
