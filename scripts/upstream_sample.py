"""A pytest plugin that runs a random sample of flash-attn's own tests, spread over all of its test functions.

Usage, in an environment with torch, flash_attn and pytest, from a folder with upstream's tests/test_flash_attn.py:

    python -m pytest -p upstream_sample --sample 3000 --sample-seed 1 tests/test_flash_attn.py
    (with PYTHONPATH naming the folder of this file)

Upstream's file has far more cases than anybody runs. Each function gets an equal share, what is left goes to the
larger ones; the seed decides which cases, so that a run can be repeated and another one can differ.
"""

from __future__ import annotations

import random
from collections import defaultdict

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("sample")
    group.addoption("--sample", type=int, default=0, help="how many cases to run; 0: all")
    group.addoption("--sample-seed", type=int, default=1, help="which cases")


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
