"""One noun, one owner: a public class or function of a name is defined in one module."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
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

NAMED_BY_OTHERS = (r"cli/(\w+_commands?|link_\w+|options)\.py", r"diagnose/\w+_checks\.py", r"kernels/\w+/\w+\.py")
"""Functions that are called as something else is: a command, an option's values, a topic of doctor, a method of ``Family``."""

SHARED = {
    "ask": "a person at the terminal, and one rule of fit",
    "describe": "each page of cli describes its own type",
    "question": "what a command asks of a person, and what it asks of the resolver",
    "command": "the command of a page: that of the catalog, that of a decision",
    "open_depot": "of api and cli each opens depot's with what it knows",
    "lock": "api pins a wheel; depot holds a lock",
    "link": "api's use case; the linker of MSVC",
    "sync": "api's use case, and its work in remotes",
    "push": "api's use case, and its work in remotes",
    "build": "api's use case, and its work in resolve",
    "vendor": "api's use case, and its work in link",
    "check": "api's use case, and that of what is vendored",
    "explain": "why a wheel was chosen, and what a log shows",
    "judge": "the judge of fit; resolve adds what was wished for, diagnose.check reads the bytes first",
    "choose": "which stored library serves; which source an installation takes",
    "built_for": "which torch names explain, and check",
    "inspect": "a wheel before it is installed; an nvcc by its answers",
    "provide": "each pinned tool is provided by its module",
    "provided_version": "each pinned tool is provided by its module",
    "page": "the page of the catalog, and that of an index",
    "rows": "the rows of the matrix, and those of the table of symbols",
    "merge": "signatures of one record; variables of one environment",
    "programs": "those that are there, and those that an environment has",
    "require_safe": "of a depot's folders; of a folder to write into",
    "told": "what of a tool, and of a Python, is given to the user",
    "main": "where a program starts",
    "place_of": "what check judges for; the name of the folder of a source",
    "places": "the folders that actions name; what an installation can change",
    "unpack": "an archive; what a worker of a cluster is sent",
    "run": "the command line, a program, a collection of garbage",
}
"""Functions that may share a name, with the reason: each is called by its module's name or has one meaning there."""


def defined_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """The public names of several modules, with the modules."""
    places = defaultdict(list)
    for module, text in sources.items():
        functions = not any(re.fullmatch(pattern, module) for pattern in NAMED_BY_OTHERS)
        for name in public_names(ast.parse(text).body, functions=functions):
            places[name].append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


def public_names(body: Iterable[ast.stmt], *, functions: bool) -> list[str]:
    kinds = (ast.ClassDef, ast.FunctionDef) if functions else (ast.ClassDef,)
    return [node.name for node in body if isinstance(node, kinds) and not node.name.startswith("_")]


def our_sources() -> dict[str, str]:
    modules = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: path.read_text(encoding="utf-8") for name, path in modules.items() if not name.startswith(ELSEWHERE)}


def test_no_two_modules_define_a_public_name() -> None:
    ours = our_sources()
    assert len(ours) > 200
    found = defined_twice(ours)
    assert {name: modules for name, modules in found.items() if name not in SHARED} == {}
