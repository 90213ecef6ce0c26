"""Write docs/failures.md from the rules of ``flashdepot explain``.

Usage: PYTHONPATH=src python scripts/write_failures.py
"""

from __future__ import annotations

from pathlib import Path

from flashdepot.diagnose.explain.machine import named
from flashdepot.diagnose.explain.report import fill
from flashdepot.diagnose.explain.rules import RANKS, LogRule, load_rules

PAGE = Path(__file__).parents[1] / "docs/failures.md"

_HEAD = """\
# What goes wrong, and how to fix it

<!-- needs network: pip would build flash-attn -->
```sh
flashdepot explain -- pip install flash-attn --no-build-isolation
pip install flash-attn 2>&1 | flashdepot explain -
flashdepot explain build.log --host node.json
flashdepot explain "ImportError: libcudart.so.12: cannot open shared object file"
```

`explain` takes the log of any build, installation, link or run, from pip, uv, conda, cargo, CMake, containers or CI, as
a file, as text, or inside JSON, HTML and markdown. It first cuts it into steps: which command ran, in which phase, for
which package, and what the log says of its machine (`--steps` shows them). A failure counts only in its phase: a missing
torch in a build is another one than in a run. It names the root cause rather than the last line, and the fix for this
machine, or for that of a record: flashdepot's own command first, then the one that fixes it by hand. Where the log does
not say for certain, it shows the line that says most, what it may mean, and how to get the line that decides. Without a
name it reads the depot's last failed compile. After `--` it runs a command, shows its output as it comes, explains its
failure, and ends with its exit code. If no rule knows the log, it shows the earliest error lines and exits with 4.

These are the failures that it finds. This page is written by `scripts/write_failures.py` from the rules in
`src/flashdepot/diagnose/explain/rules/`; what stands in angle brackets is filled in from the log and from the machine.
Causes come before their consequences.
"""

_MARK = "<!-- needs failure: it fixes a machine on which this happened -->"
"""Why the tests of the documents do not run the commands of an entry."""

_VALUES = {**named("flash-attn").values, "install": "python -m pip install <module>"}

_HEADINGS = {
    "memory-or-disk": "Memory and disks",
    "missing-tool": "Something is missing",
    "wrong-version": "Something has the wrong version",
    "source": "Source and compiler disagree",
    "link": "Linking",
    "wrapper": "Messages that hide the cause",
    "symptom": "What happened, where nothing in the log says why",
}


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


def page() -> str:
    """The text of the page."""
    parts = [_HEAD]
    for number, rank in enumerate(RANKS):
        parts.append(f"## {_HEADINGS[rank]}\n")
        parts += [entry(rule) for rule in load_rules() if rule.rank == number]
    return "\n".join(parts)


def entry(rule: LogRule) -> str:
    """One failure: its name, cause, commands, and where the facts come from."""
    commands = "\n".join(fill(command, _VALUES) for command in rule.fix)
    cause = f"### {rule.id}\n\n{rule.title} {fill(rule.why, _VALUES)}"
    return f"{cause}\n\n{_MARK}\n```\n{commands}\n```\n\nSource: {rule.source}.\n"


if __name__ == "__main__":
    main()
