"""The git program, run on repositories that are not trusted."""

from __future__ import annotations

import os
from collections.abc import Sequence

from flashdepot.errors import MissingToolError
from flashdepot.system.locks import HeldLock
from flashdepot.system.net import offline
from flashdepot.system.process import run
from flashdepot.system.trace import without_credentials

_SECONDS = 3600
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.symlinks": "false",  # a link in a tree could point at any file of the user's
    "core.autocrlf": "false",  # a tree has the same bytes, and so the same digest, on every machine
    "core.eol": "lf",
    "gc.auto": "0",  # nothing goes on in the background after git returns
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "advice.detachedHead": "false",
}
_VARIABLES_OF_AN_OUTER_GIT = {
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
}
"""Set while git runs a hook; a git started from there would work in the wrong repository."""


class GitFailed(Exception):  # noqa: N818  (it is caught and explained by who knows what was asked)
    """A git that ended with an error; ``reason`` is what it said, without the credentials of any URL."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def git(*arguments: str, local: bool = False, held: Sequence[HeldLock] = ()) -> str:
    """Run git and return what it printed. It runs no hook, follows no link, and never asks for a password.

    :param local: whether submodules too may come from folders of this machine, which git otherwise refuses.
    :param held: locks that it holds as well, until it ends: it may outlive this process.
    :raises GitFailed: when it fails.
    :raises MissingToolError: when there is no git program.
    """
    settings = _SETTINGS | ({"protocol.file.allow": "always"} if local else {})
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    try:
        done = run(
            ["git", *options, *arguments],
            env=_environment(),
            timeout=_SECONDS,
            may_ask=True,  # ssh asks for a key's passphrase
            descriptors=[lock.fileno() for lock in held],
        )
    except MissingToolError as error:
        raise MissingToolError(
            "A git source needs the git program, and it is not on PATH.",
            hint="Install it (apt install git, dnf install git), or use a published version: --upstream 2.8.3",
        ) from error
    if done.status != 0:
        said = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        raise GitFailed(without_credentials(said) or f"git ended with status {done.status}")
    return done.stdout


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _VARIABLES_OF_AN_OUTER_GIT}
    environment["GIT_TERMINAL_PROMPT"] = "0"
    if offline():
        environment["GIT_ALLOW_PROTOCOL"] = "file"
    return environment
