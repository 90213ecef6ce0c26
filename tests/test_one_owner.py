"""One noun, one owner: a public class of a name is defined in one module."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import flashdepot

PACKAGE = Path(flashdepot.__file__).parent
ELSEWHERE = (
    "wheel/runtime",
    "kernels/fa4/worker",
    "prove/numeric",
    "prove/speed",
    "host/python_facts",
    "process/confine",
)
"""What runs as a program of its own: in the user's environment, next to CuTe DSL, in a process that is confined."""


def test_no_two_modules_define_a_class_of_one_name() -> None:
    places = defaultdict(list)
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(modules) > 200
    for module, path in modules.items():
        if not module.startswith(ELSEWHERE):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_two_files_of_tests_have_one_name() -> None:
    """Pytest imports each only by its name."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names))
