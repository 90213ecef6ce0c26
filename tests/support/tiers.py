"""Which tests are slow: the one place that says so. A fast test starts no compiler, server or browser.

A test is slow by its folder, its file, a fixture that it asks for however indirectly, or a marker.
"""

from pathlib import Path

import pytest

from support import own_world

_TESTS = Path(__file__).parents[1]

_PLACES = frozenset({
    "attacks", "binary", "candle", "doctor_check", "fuzz", "gpu", "install", "link", "link_wheel", "native", "rust",
    "targets", "vendor", "windows",
    "build/test_farm.py", "build/test_farm_command.py", "build/test_precompiled.py", "build/test_real_compiler.py",
    "build/test_resident.py", "catalog/test_matrix_page.py", "cli/test_every_command.py", "depot/test_depot_kill.py",
    "docs/test_document_scripts.py", "docs/test_first_hour.py", "doctor/test_unrelated_logs.py",
    "kernels/fa4/test_worker.py", "kernels/test_toy_family.py", "host/test_nvml.py", "index/test_as_source.py",
    "index/test_installers.py", "index/test_page.py", "index/test_servers.py",
    "publish/test_templates.py",
    "remotes/test_audit.py", "remotes/test_publish.py", "remotes/test_read_through.py",
    "resolve/test_advice_is_true.py", "wheel/test_jax_package.py",
})  # fmt: skip
"""Folders and files that hold slow tests only; the fast tier does not even import them."""

_FIXTURES = frozenset(
    {"cuda_include", "installed_runtime", "quick_library", "recorder", "small_disk", "upstream_tree", "wine"}
)
_MARKERS = ("gpu", "needs", "network", "nvcc", "slow")
_COMPILERS = frozenset(
    {"ar", "c++", "cargo", "cc", "clang", "clang++", "cmake", "g++", "gcc", "ld", "nvcc", "rustc", "zig"}
)


def add_option(parser: pytest.Parser) -> None:
    """Let a run choose its tier."""
    parser.addoption("--tier", choices=("fast", "slow", "all"), default="all", help="which tests to run; default: all")


def is_skipped(path: Path, config: pytest.Config) -> bool:
    """Whether a folder or file need not be read in this tier."""
    return config.getoption("--tier") == "fast" and _is_slow_place(path)


def assign(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests, and leave out those of the other tier."""
    for item in items:
        if _is_slow(item):
            item.add_marker("slow")
    tier = config.getoption("--tier")
    if tier != "all":
        chosen = [item for item in items if (item.get_closest_marker("slow") is None) == (tier == "fast")]
        config.hook.pytest_deselected(items=[item for item in items if item not in {*chosen}])
        items[:] = chosen


def watch(item: pytest.Item) -> None:
    """Refuse compilers to a test that is not slow."""
    own_world.refused_programs = frozenset() if item.get_closest_marker("slow") else _COMPILERS


def _is_slow(item: pytest.Item) -> bool:
    if _is_slow_place(item.path) or any(item.get_closest_marker(name) for name in _MARKERS):
        return True
    return isinstance(item, pytest.Function) and not _FIXTURES.isdisjoint(item.fixturenames)


def _is_slow_place(path: Path) -> bool:
    parts = path.relative_to(_TESTS).parts if path.is_relative_to(_TESTS) else ()
    return any("/".join(parts[: number + 1]) in _PLACES for number in range(len(parts)))
