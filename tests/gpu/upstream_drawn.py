"""A pytest plugin that draws some of the cases of upstream's own tests, and runs them by the names that flashdepot installs.

Usage, with torch, einops, and wheels of ``flashdepot wheel --families all,fa3 --names flash-attn-3,flash-attn-4`` installed,
from a folder with upstream's files:

    PYTHONPATH=tests/gpu python -m pytest -p upstream_drawn --each 300 --draw-seed 1 --outcomes OUT.jsonl test_flash_attn.py

Upstream's files make up to 415,818 cases, which pytest collects for minutes: of each function the cases are drawn before.
``--where`` is an expression over their parameters, such as "dtype == e4m3 and not softcap". A test whose call the library
refuses is skipped with the library's reason. What of flash_attn.cute only serves its tests or its compiler stands in here:
FLASH_ATTN_CUTE_TESTING names upstream's testing.py.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import itertools
import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

WORDS = {"bf16": torch.bfloat16, "fp16": torch.float16, "e4m3": torch.float8_e4m3fn}
FEW = 20_000
"""Up to so many cases of a function are listed and then drawn from; of more, some are made."""


class _Parameters(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        if name in dir(builtins):
            raise KeyError(name)
        return WORDS.get(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("drawn")
    group.addoption("--each", type=int, default=300, help="how many cases of a function")
    group.addoption("--draw-seed", type=int, default=1)
    group.addoption("--share", type=int, nargs=2, default=(0, 1), help="which part of the draw, of how many")
    group.addoption("--where", default="True", help="an expression over the parameters of a case")
    group.addoption("--seconds", type=float, default=1e9, help="after these no test starts")
    group.addoption("--outcomes", default="", help="a file that gets a line of JSON for each test")


def _absent(name: str) -> Any:
    def absent(*_: object, **__: object) -> None:
        raise RuntimeError(f"not served: {name}")

    return absent


def _stand_in() -> None:
    """What tests/cute imports, apart from the functions."""
    source = os.environ.get("FLASH_ATTN_CUTE_TESTING")
    if not source:
        return
    interface = importlib.import_module("flash_attn.cute.interface")
    for name in ("_flash_attn_bwd_sparse_mla", "_flash_attn_fwd_combine"):
        if not hasattr(interface, name):
            setattr(interface, name, _absent(name))
    spec = importlib.util.spec_from_file_location("flash_attn.cute.testing", source)
    assert spec is not None, f"{source} is not a Python file"
    assert spec.loader is not None, f"{source} is not a Python file"
    testing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(testing)
    cache = ModuleType("flash_attn.cute.cache_utils")
    vars(cache)["JITCache"] = _absent("the cache of compiled kernels")
    sys.modules |= {"flash_attn.cute.testing": testing, "flash_attn.cute.cache_utils": cache}


def pytest_configure(config: pytest.Config) -> None:
    _stand_in()
    config.stash[_END] = time.monotonic() + config.getoption("--seconds")


_END = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a function the cases that are drawn, in place of its marks."""
    markers = metafunc.definition.own_markers
    marks = [mark for mark in markers if mark.name == "parametrize"]
    if not marks:
        return
    markers[:] = [mark for mark in markers if mark.name != "parametrize"]
    names, values = [], []
    for mark in marks:
        given = mark.args[0]
        many = [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)
        names += many
        values.append([tuple(value) if len(many) > 1 else (value,) for value in mark.args[1]])
    option = metafunc.config.getoption
    chance = random.Random(f"{option('--draw-seed')}:{metafunc.function.__name__}")
    where = compile(option("--where"), "--where", "eval")

    def fits(case: tuple[Any, ...]) -> bool:
        return bool(eval(where, {}, _Parameters(zip(names, case, strict=True))))  # noqa: S307  (of who runs this)

    cases = _drawn(values, option("--each"), chance, fits)
    first, step = option("--share")
    mine = cases[first::step]
    metafunc.parametrize(names, mine, ids=["-".join(map(_word, zip(names, case, strict=True))) for case in mine])


def _word(pair: tuple[str, Any]) -> str:
    name, value = pair
    return f"{name}={str(value).removeprefix('torch.')}"


def _drawn(values: list[list[tuple[Any, ...]]], wanted: int, chance: random.Random, fits: Any) -> list[tuple[Any, ...]]:
    def joined(parts: Any) -> tuple[Any, ...]:
        return tuple(itertools.chain.from_iterable(parts))

    if math.prod(map(len, values)) <= FEW:
        cases = [case for case in map(joined, itertools.product(*values)) if fits(case)]
        return chance.sample(cases, min(wanted, len(cases)))
    found: dict[tuple[Any, ...], None] = {}
    for _ in range(60 * wanted):
        case = joined([chance.choice(choices) for choices in values])
        if len(found) < wanted and fits(case):
            found[case] = None
    return list(found)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mix functions, so that those that fit into the time are of all."""
    items[:] = [item for item in items if not _is_empty(item)]
    random.Random(config.getoption("--draw-seed")).shuffle(items)


def _is_empty(item: pytest.Item) -> bool:
    return any(mark.name == "skip" and "empty parameter set" in str(mark.kwargs) for mark in item.iter_markers())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test whose call is refused is skipped, with the reason."""
    if time.monotonic() > item.config.stash[_END]:
        pytest.skip("no time")
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        pytest.skip("no memory")
    except AttributeError as error:
        if "compile_cache" in str(error):
            pytest.skip("not served: the cache of compiled kernels")
        raise
    except RuntimeError as error:
        if _is_refusal(error):
            pytest.skip(f"refused: {error}")
        raise


def _is_refusal(error: RuntimeError) -> bool:
    """Whether the wheel raised it, and not because of the GPU."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    raised_in = last.tb_frame.f_code.co_filename if last is not None else ""
    ours = "flash_attn_2_cuda" in Path(raised_in).parts or str(error).startswith("not served")
    return ours and "cuda error" not in str(error).lower()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Leave memory to the others on the GPU."""
    if torch.cuda.is_available() and torch.cuda.memory_reserved() > 4 << 30:
        torch.cuda.empty_cache()


_COUNTS: Counter[str] = Counter()
_REASONS: Counter[str] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when != "call" and report.outcome == "passed":
        return report
    outcome = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
    reason = ""
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2])
    elif report.failed:
        reason = str(call.excinfo.value)[:600] if call.excinfo else ""
    _COUNTS[outcome] += 1
    if outcome == "skipped":
        _REASONS[reason[:150]] += 1
    if path := item.config.getoption("--outcomes"):
        with Path(path).open("a", encoding="utf-8") as out:
            out.write(json.dumps([item.nodeid.split("/")[-1], outcome, reason]) + "\n")
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line("\ndrawn: " + ", ".join(f"{n} {name}" for name, n in sorted(_COUNTS.items())))
    for reason, count in _REASONS.most_common():
        terminalreporter.write_line(f"  skipped {count:6}  {reason}")
