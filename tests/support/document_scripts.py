"""The commands of a document as one shell script, the way a reader types them: from top to bottom, in one terminal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from support.command_lines import commands
from support.markdown import Fence, Page
from support.tools import has

COMMAND_LANGUAGES = frozenset({"sh", "bash", "shell", "console", "zsh", "bat", "cmd", "batch", "powershell", "ps1"})
RUNNABLE = "sh"
NEEDS = frozenset({"gpu", "windows", "network", "time", "docker", "failure"})
"""What a block may need that the tests have not; ``time`` is minutes of compiling, ``failure`` something that is broken."""

_NEED = re.compile(r"(\w+(?:, \w+)*): \S.{9,}", re.DOTALL)
_TOOLS = frozenset({"cargo", "cc", "c++", "cmake", "ctest", "g++", "gcc", "git", "git-lfs", "pkg-config", "readelf"})


@dataclass(frozen=True)
class DocumentScript:
    """A script for bash, how many blocks it runs, and the tools for want of which others are left out."""

    text: str
    blocks: int
    missing: tuple[str, ...]


def unmarked(page: Page) -> list[str]:
    """Complaints about blocks of commands that neither run nor say what they need, and why."""
    return [f"line {fence.line}: {said}" for fence in page.fences if (said := _complaint(fence))]


def _complaint(fence: Fence) -> str:
    if fence.mark is not None and fence.mark.kind == "file":
        return ""
    if fence.mark is None:
        if fence.language in COMMAND_LANGUAGES - {RUNNABLE}:
            return f"a block of {fence.language} is not run: say before it <!-- needs windows: why -->, or write sh"
        if fence.language != RUNNABLE and re.search(r"^(\$ |flashdepot |pip )", fence.text, re.MULTILINE):
            return "commands in a block that is not sh"
        return ""
    match = _NEED.fullmatch(fence.mark.text)
    if match is None:
        return f"'{fence.mark.text}' is not 'gpu: why it is needed'"
    unknown = set(match[1].split(", ")) - NEEDS
    return f"there is no need called {', '.join(unknown)}" if unknown else ""


def document_script(page: Page, *, having: frozenset[str] = frozenset()) -> DocumentScript | None:
    """What the unmarked blocks of a page and its marked files come to, or ``None`` where no block runs.

    :param having: needs that are met here, so that the blocks that name only those run as well.
    """
    parts = ["set -eo pipefail", "trap 'echo \"the block in line $line failed\" >&2' ERR"]
    blocks, missing = 0, set[str]()
    for fence in page.fences:
        if fence.mark is not None and fence.mark.kind == "file":
            parts += [_file(fence.mark.text, fence.text)]
        elif fence.language == RUNNABLE and _needs(fence) <= having:
            absent = {tool for tool in _tools(fence.text) if not has(tool)}
            missing |= absent
            if not absent:
                blocks += 1
                parts += [f"line={fence.line}", fence.text]
    return DocumentScript("\n".join(parts), blocks, tuple(sorted(missing))) if blocks or missing else None


def _needs(fence: Fence) -> set[str]:
    return set(fence.mark.text.partition(":")[0].split(", ")) if fence.mark else set()


def _tools(script: str) -> set[str]:
    found = {words[0] for words in commands(script) if words}
    found |= {"git-lfs" for words in commands(script) if words[:2] == ["git", "lfs"]}
    return found & _TOOLS


def _file(name: str, text: str) -> str:
    return f"mkdir -p \"$(dirname '{name}')\"\ncat > '{name}' <<'END OF FILE'\n{text}END OF FILE"


def run(
    script: DocumentScript, folder: Path, environment: Mapping[str, str], *, limit: float = 60
) -> subprocess.CompletedProcess[str]:
    """Type a script into bash in a folder; at the limit, in seconds, all that it started is ended."""
    command = ["bash", "-c", script.text]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # a block that compiles for an hour ends here, with its compilers
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
