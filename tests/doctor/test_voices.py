"""A cause is claimed only from what a program printed: not from what a person tells, or from source."""

import pytest

from doctor.logs import classes, first, look


@pytest.mark.parametrize(
    "line",
    [
        "FlashAttention is not available on this device. Using sdpa_attention instead.",
        "Flash Attn is not installed!",
        'ERROR: failed to solve: process "/bin/sh -c pip install flash-attn" did not complete successfully: exit code: 1',
    ],
)
def test_a_line_of_what_is_done_without_or_of_which_command_failed_shows_nothing(line: str) -> None:
    assert classes(line) == []


@pytest.mark.parametrize(
    ("log", "status"),
    [
        ("I think that flash_attn is not installed.", "described"),
        ("I run inference with `flash_attn` not installed.", "described"),
        ("If I keep it so, flash_attn is not installed.", "described"),
        ("Steps:\n1. Run inference with `flash_attn` not installed", "described"),
        ("This laptop has it.\nollama thinks flash attention is not supported.", "described"),
        ("Does it work where flash_attn is not installed?", "described"),
        ("2026-11-27 10:00:00 WARNING CUDA out of memory", "described"),
        ("I get `CUDA out of memory` here.", "possible"),
        ("When I run it, there is an error: CUDA out of memory", "possible"),
        ("So I tried that.\n\nCUDA out of memory", "explained"),
        (
            "flash_attn is not installed, and that is it.\nWe think that it works now.\n",
            "described",
        ),
        ("RuntimeError:\n    CUDA Setup failed despite GPU being available. Inspect the output.", "explained"),
        ("看起来没有安装成功 flash_attn is not installed", "described"),
    ],
)
def test_what_a_person_tells_decides_nothing_and_what_a_person_quotes_is_possible(log: str, status: str) -> None:
    report = look(log)
    assert report.status == status
    assert bool(report.described) == (status == "described")
    assert look(f"{log}\nRuntimeError: CUDA out of memory").findings[0].certain


QUOTED = "the default build makes a fresh environment without it and so fails with RuntimeError: {}"


@pytest.mark.parametrize("line", ["UserWarning: {}", "maybe {}", "it says that {}", "# [{}] on an A100", QUOTED])
def test_what_is_supposed_or_warned_of_is_never_certain(line: str) -> None:
    error = "CUDA out of memory"
    assert first(error).certain
    assert (first(line.format(error)).id, first(line.format(error)).certain) == ("gpu-memory-full", False)


FULL = "CUDA out of memory"


@pytest.mark.parametrize(
    ("log", "certain"),
    [
        (f'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    raise ValueError("{FULL}")\n', False),
        (f"    142     if spam:\n--> 143         raise RuntimeError('{FULL}')\n", False),
        (f'  File "a.py", line 3, in f\n    raise ValueError("{FULL}")\nValueError: {FULL}\n', True),
        (f'  File "<stdin>", line 3, in f\nValueError: {FULL}\n', True),
        (f"UserWarning: {FULL}\nRuntimeError: {FULL}\n", True),
        (f"# RuntimeError: {FULL}\n", False),
        (f"# RuntimeError: {FULL}\nRuntimeError: {FULL}\n", True),
    ],
)
def test_source_that_a_traceback_shows_proves_nothing_by_itself(log: str, *, certain: bool) -> None:
    assert (first(log).id, first(log).certain) == ("gpu-memory-full", certain)


@pytest.mark.parametrize(
    "line",
    [
        f'  File "a.py", line 3, in f\n    raise ValueError(f"{FULL}: {{error}}")',
        f'if full:\n    raise ValueError("{FULL}")',
        f'let spam = eggs();\nlet full = size.expect("{FULL}");',
        f'if full:\n    print(\n        "{FULL}"\n    )',
        f'bool is_sm80 = spam();\nTORCH_CHECK(is_sm80, "{FULL}");',
        f'warnings.filterwarnings(\n    category=UserWarning,\n    message=r"{FULL}",\n)',
        f"for (const said of ['all well', '{FULL}',\n  '{FULL}'])",
    ],
)
def test_source_that_nobody_ran_shows_nothing(line: str) -> None:
    assert classes(line) == []


@pytest.mark.parametrize(
    "line",
    [
        "| `ModuleNotFoundError: No module named 'flash_attn_2_cuda'` | not compiled | install it again |",
        '        OSError("libcudart.so.13: cannot open shared object file"),',
        "- **Fix**: skip the test where flash_attn is not installed",
    ],
)
def test_a_table_a_remedy_and_an_error_that_source_makes_show_nothing(line: str) -> None:
    assert look(f"Troubleshooting flash-attn\n{line}\n").findings == ()
