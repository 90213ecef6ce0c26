"""Write docs/failures.md from the rules of ``flashdepot explain``.

Usage: PYTHONPATH=src python scripts/write_failures.py
"""

from __future__ import annotations

from pathlib import Path

from flashdepot.diagnose.explain.advice import fill
from flashdepot.diagnose.explain.machine import named
from flashdepot.diagnose.explain.rules import RANKS, LogRule, load_classes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/failures.md"

_HEAD = """\
# A build, install or import failed. Why?

<!-- needs network: pip would build flash-attn -->
```sh
flashdepot explain -- pip install flash-attn --no-build-isolation
pip install flash-attn 2>&1 | flashdepot explain -
flashdepot explain build.log --host node.json
flashdepot explain "ImportError: libcudart.so.12: cannot open shared object file"
```

`explain` reads the log of a build, installation, link or run: a file, standard input, text, or the output of the command
after `--`, whose exit code it returns. Without an argument it reads the log of the depot's last failed compile. It names the root
cause and the commands that fix it on this machine, or on that of a record (`--host`); `--steps` shows how it read the log.
If no rule knows the log, it shows the earliest error lines and exits with 4; so it does where the words of
an error stand only in a person's sentences, a guide or source that nobody ran, with what is possible. If the log does not say for certain, it shows what it may mean and how to get the line that decides.

These are the {count} failures that it knows, causes before consequences, each with the first thing to do; `explain` prints all of
them, why it happened, and values for your log and machine where this page has angle brackets. The rules are in
`{rules}`, one file each, with the cases that need other advice and the source of each fact; `scripts/write_failures.py` writes this page.
"""

_AGAIN = "pip install flash-attn --no-build-isolation"
_VALUES = {
    **named("flash-attn").values,
    "install": "python -m pip install <module>",
    "again": _AGAIN,
    "for_gpu": f"FLASH_ATTN_CUDA_ARCHS=<arch> TORCH_CUDA_ARCH_LIST=<capability> {_AGAIN}",
    "room": "/other/disk",
}

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
    rules = load_classes()
    (folder,) = {path.parent.relative_to(ROOT) for path in ROOT.glob("src/**/oom-killed.toml")}
    parts = [_HEAD.format(count=len(rules), rules=folder.as_posix())]
    for number, rank in enumerate(RANKS):
        parts.append(f"## {_HEADINGS[rank]}\n\n| failure | what happened | first |\n| --- | --- | --- |")
        parts += [row(rule) for rule in rules if rule.rank == number]
        parts.append("")
    return "\n".join(parts)


def row(rule: LogRule) -> str:
    """One failure: its name, what happened, and the first thing to do, whatever the log names."""
    details = {"cargo", "CARGO", "{requirement}"} | {
        f"{{{name}}}" for pattern in rule.details for name in pattern.groups
    }
    first = next((fix for fix in rule.fix if not any(name in fix for name in details)), rule.fix[0])
    command, _, remark = fill(first, _VALUES).partition("   # ")
    cells = (f"`{rule.id}`", rule.title, f"`{command}` {remark}".strip())
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    main()
