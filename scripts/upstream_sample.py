"""A pytest plugin that runs a random sample of flash-attn's own tests, spread over all of its test functions.

Usage, in an environment with torch, flash_attn and pytest, from a folder with upstream's tests/test_flash_attn.py:

    python -m pytest -p upstream_sample --sample 3000 --sample-seed 1 tests/test_flash_attn.py
    (with PYTHONPATH naming the folder of this file)

Upstream's file has far more cases than anybody runs. Each function gets an equal share, what is left goes to the
larger ones; the seed decides which cases, so that a run can be repeated and another one can differ.

With --family fa4 every call is forced to that family of a flashdepot wheel; a test that it refuses is skipped, with the
reason.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

REFUSALS = ("it has no ", "is not in this library", "which its kernels do not count", "head dim between")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("sample")
    group.addoption("--sample", type=int, default=0, help="how many cases to run; 0: all")
    group.addoption("--sample-seed", type=int, default=1, help="which cases")
    group.addoption("--family", default="", help="force every call to this family, and skip what it refuses")


def pytest_configure(config: pytest.Config) -> None:
    """Name the family before anything imports flash_attn."""
    if config.getoption("--family"):
        os.environ["FLASH_ATTENTION_FAMILY"] = config.getoption("--family")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip a test whose call the forced family refuses."""
    try:
        yield
    except RuntimeError as error:
        if item.config.getoption("--family") and any(words in str(error) for words in REFUSALS):
            pytest.skip(f"refused: {error}")
        raise


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what was refused, by reason."""
    if config.getoption("--family"):
        why = Counter(str(report.longrepr[2])[:150] for report in terminalreporter.stats.get("skipped", ()))
        for reason, count in why.most_common():
            terminalreporter.write_line(f"  skipped {count:6}  {reason}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the sample, in the file's order."""
    wanted = config.getoption("--sample")
    if not wanted or wanted >= len(items):
        return
    chance = random.Random(config.getoption("--sample-seed"))  # noqa: S311  (a choice that can be repeated)
    by_function: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_function[item.nodeid.split("[")[0]].append(item)
    chosen: set[str] = set()
    left = sorted(by_function.values(), key=len)
    for index, cases in enumerate(left):
        share = (wanted - len(chosen)) // (len(left) - index)
        chosen |= {item.nodeid for item in chance.sample(cases, min(share, len(cases)))}
    dropped = [item for item in items if item.nodeid not in chosen]
    items[:] = [item for item in items if item.nodeid in chosen]
    config.hook.pytest_deselected(items=dropped)
