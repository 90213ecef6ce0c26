"""Write docs/failures.md from the rules of ``flashdepot explain``.

Usage: PYTHONPATH=src python scripts/write_failures.py
"""

from __future__ import annotations

from pathlib import Path

from flashdepot.diagnose.explain.machine import named
from flashdepot.diagnose.explain.rules import RANKS, LogRule, load_classes
from flashdepot.diagnose.explain.values import FOR_AMD, fill

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
flashdepot explain "flash-attn hangs at building wheel"
```

`explain` reads the log of a build, installation, link or run, and prints the cause and the commands that fix it on this machine, or on
the machine of a record (`--host`).

| the log | how it is read |
| --- | --- |
| `FILE`, `-`, `"TEXT"` | a file, standard input, or the text itself |
| `-- COMMAND` | the command is run and its output read; the exit code is the command's |
| nothing | the log of the depot's last failed compile |

- If the log leaves several causes possible, `explain` lists them, and says how to get the line that decides.
- If no rule knows the log, it prints the earliest error lines and exits with 4. It does the same, with what is possible, if an error is
  only mentioned: in a person's text, a guide, or source code that nobody ran.
- A sentence of your own, with no program's words in it, is answered by what it may mean. With the log the answer is
  [right more often](../benchmarks/explain.md#a-sentence-instead-of-a-log).
- If pip, uv or Poetry did not find or could not build a release, `explain` asks the package indexes of your pip and uv settings, and of your project's files, which
  releases there are, and for which Pythons and systems, and advises what is there. It sends names of projects only: of known public
  packages, and of those that the log shows an installer asking that index for; at most six a log, for five seconds. Another index that a
  log names is never asked. `--offline` or `FLASHDEPOT_OFFLINE=1` switches this off; `-v` says what is asked, `--json` under `asked`.
- `--steps` shows how it read the log.

It knows these {count} failures. Causes come before consequences. The page shows the first thing to do for each; `explain` prints
all of it, says why it happened, and replaces what is in angle brackets by values of your log and machine. The rules are in
`{rules}`, one file each; `scripts/write_failures.py` writes this page.
"""

_AGAIN = "pip install flash-attn --no-build-isolation"
_VALUES = {
    **named("flash-attn").values,
    "install": "python -m pip install <module>",
    "again": _AGAIN,
    "for_gpu": f"FLASH_ATTN_CUDA_ARCHS=<arch> TORCH_CUDA_ARCH_LIST=<capability> {_AGAIN}",
    "room": "/other/disk",
    "for_amd": FOR_AMD,
    "python_release": "3.12",
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
    details = {"cargo", "CARGO", "{requirement}", "{unpinned}", "{serial}"} | {
        f"{{{name}}}" for pattern in rule.details for name in pattern.groups
    }
    advice = [text for text in (*rule.unasked, *rule.fix) if not text.startswith("@")]
    first = next((fix for fix in advice if not any(name in fix for name in details)), advice[0])
    command, _, remark = fill(first, _VALUES).partition("   # ")
    cells = (f"`{rule.id}`", rule.title, f"`{command}` {remark}".strip())
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    main()
