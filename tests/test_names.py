"""One noun for one thing: a class of a name is defined in one module."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import flashdepot

PACKAGE = Path(flashdepot.__file__).parent

ELSEWHERE = ("wheel/runtime", "families/fa4/worker")
"""What runs in the user's environment or beside CuTe DSL, and has that place's words."""


def defined_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The public classes of several modules, with the modules."""
    places = defaultdict(list)
    for module, text in sources.items():
        for name in public_classes(ast.parse(text).body):
            places[name].append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


def public_classes(body: Iterable[ast.stmt]) -> list[str]:
    return [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_no_two_modules_define_a_class_of_one_name() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    ours = {name: path.read_text(encoding="utf-8") for name, path in modules.items() if not name.startswith(ELSEWHERE)}
    assert len(ours) > 200
    assert defined_twice(ours) == {}


def test_a_class_that_is_there_twice_is_found() -> None:
    sources = {"a": "class Report: ...", "b": "class Report: ...\nclass _Own: ...", "c": "class _Own: ..."}
    assert defined_twice(sources) == {"Report": ["a", "b"]}
