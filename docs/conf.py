"""The documentation site: Sphinx over the same Markdown files that a Git host shows, from the root of the repository.

Build it with ``sphinx-build -W -n -c docs . build/site``; ``build/site/index.html`` is the first page.
"""

from __future__ import annotations

import re
from typing import Any

from flashdepot import __version__, api

project = "flashdepot"
author = "the flashdepot authors"
release = __version__

# The root is the source folder, so that README.md, docs/ and benchmarks/ link to each other here as they do there.
root_doc = "docs/index"
include_patterns = ["README.md", "README.RU.md", "CONTRIBUTING.md", "docs/*.md", "examples/**.md", "benchmarks/*.md"]
exclude_patterns = [".*", "build", "src", "tests", "scripts"]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# Signatures name types of every module, and only those of the API have a place on the site.
nitpick_ignore_regex = [("py:.*", r".*")]

html_theme = "furo"
html_title = "flashdepot"
html_copy_source = False
html_show_sourcelink = False
templates_path = ["_templates"]
html_additional_pages = {"index": "first_page.html"}  # the site's folder opens on root_doc, which is one level down


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _add_the_sidebar)
    app.connect("source-read", _add_the_reference)


def _add_the_sidebar(_app: Any, name: str, source: list[str]) -> None:
    """Append to the first page the table of contents of its own links: on a Git host a directive would be noise."""
    if name == root_doc:
        source[0] += "".join(_contents(section) for section in re.split(r"^## ", source[0], flags=re.MULTILINE)[1:])


def _contents(section: str) -> str:
    caption, _, text = section.partition("\n")
    links = re.findall(r"\[([^\]]+)\]\(([^)#]+)\.md\)", text)
    pages = "\n".join(f"{title.replace('`', '')} <{page}>" for title, page in links)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


def _add_the_reference(_app: Any, name: str, source: list[str]) -> None:
    """Append to the page of the API what the docstrings say of each of its names."""
    if name == "docs/api":
        source[0] += "\n## Reference\n" + "".join(map(_documented, api.__all__))


def _documented(name: str) -> str:
    of_class = isinstance(getattr(api, name), type)
    directive = (
        f".. autoclass:: flashdepot.api.{name}\n   :members:"
        if of_class
        else f".. autofunction:: flashdepot.api.{name}"
    )
    return f"\n```{{eval-rst}}\n{directive}\n```\n"
