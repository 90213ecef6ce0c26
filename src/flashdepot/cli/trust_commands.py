"""``flashdepot trust``."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

import click

from flashdepot.cli.common import answer, examples, json_option, options, print_json, quiet_option, say
from flashdepot.cli.common import ask as ask_on_terminal
from flashdepot.errors import UsageError
from flashdepot.files.trust import Consents, users_consents
from flashdepot.resolve.project import NAME, Project, find_project, read_project


@click.command(
    epilog=examples(
        "flashdepot trust                       (the flashdepot.toml of this project)",
        "flashdepot trust ../flashdepot.toml",
        "flashdepot trust --list",
        "flashdepot trust --remove ../flashdepot.toml",
    )
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--list", "list_all", is_flag=True, help="Show what is trusted.")
@click.option("--remove", is_flag=True, help="Stop trusting it.")
@options(json_option, quiet_option)
def trust(file: Path | None, *, list_all: bool, remove: bool, as_json: bool, quiet: bool) -> None:
    """Allow a flashdepot.toml to run a compiler that it names, or to take source or libraries from elsewhere.

    Only the file's present content is trusted: if it changes, you are asked again. Versions and selections need no trust.
    """
    consents = users_consents()
    if list_all:
        _show(consents, as_json=as_json)
        return
    path = file or find_project(Path.cwd())
    if path is None:
        raise UsageError(f"There is no {NAME} here or above.", hint=f"Name it: flashdepot trust DIR/{NAME}")
    if remove:
        if not consents.withdraw(path):
            raise UsageError(f"{path} was not trusted.", hint="See what is: flashdepot trust --list")
        status = "removed"
    else:
        project = read_project(path)
        for objection in () if quiet else project.objections():
            say(objection)
        give(project, consents)
        status = "trusted"
    if as_json:
        print_json({"status": status, "path": str(path.resolve())})
    elif not quiet:
        say(f"{path} is {'trusted as it is now' if status == 'trusted' else 'no longer trusted'}.")


def ask(project: Project, consents: Consents, objections: tuple[str, ...]) -> None:
    """Ask on a terminal whether a project file is to be trusted; elsewhere do nothing."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    say(f"{project.path}:")
    for objection in objections:
        say(f"  {objection}")
    if ask_on_terminal("Do you trust it, as it is now?"):
        give(project, consents)


def give(project: Project, consents: Consents) -> None:
    """Allow a project file as it is now; the keys of its remotes count as keys that this user has trusted."""
    if any(remote.keys for remote in project.remotes):
        from flashdepot.remotes.user_settings import UserSettings  # noqa: PLC0415

        UserSettings.of_this_user().demand_signatures()
    consents.give(project.path, project.digest)


def _show(consents: Consents, *, as_json: bool) -> None:
    rows = [(path, _state(Path(path), digest)) for path, digest in consents.all().items()]
    if as_json:
        print_json({"trusted": [{"path": path, "state": state} for path, state in rows]})
        return
    for path, state in rows:
        answer(f"{state:<10} {path}")
    if not rows:
        say("Nothing is trusted.")


def _state(path: Path, digest: str) -> str:
    """Whether a file is still the one that was trusted."""
    try:
        return "unchanged" if sha256(path.read_bytes()).hexdigest() == digest else "changed"
    except OSError:
        return "gone"
