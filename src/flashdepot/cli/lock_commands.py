"""``flashdepot lock``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flashdepot.api import wheels as api
from flashdepot.api.wheels import LockState
from flashdepot.cli.common import answer, depot_option, examples, json_option, options, print_json, quiet_option, say
from flashdepot.cli.options import environment_options
from flashdepot.cli.resolve_commands import EXIT_CODES, exit_code
from flashdepot.cli.resolve_page import describe
from flashdepot.cli.resolving import Asked, choice_options, question
from flashdepot.cli.terminal import Terminal
from flashdepot.errors import UsageError
from flashdepot.model.diagnosis import Verdict
from flashdepot.resolve.lock import LOCK_NAME, Lock


@click.command(
    epilog=examples(
        "flashdepot lock --python .venv",
        "flashdepot lock --host node.json --out deploy/flashdepot.lock",
        "flashdepot lock --check",
        "flashdepot lock --upgrade --allow community --accept-unverified",
    )
)
@options(
    environment_options,
    choice_options,
    click.option(
        "--out",
        metavar="FILE",
        type=click.Path(path_type=Path),
        default=LOCK_NAME,
        show_default=True,
        help="The lock file.",
    ),
    click.option("--check", is_flag=True, help="Check whether the lock still fits; write nothing."),
    click.option("--upgrade", is_flag=True, help="Choose again even if the lock still fits."),
    click.option(
        "--accept-unverified",
        is_flag=True,
        help="Lock a wheel that has no known SHA-256; its first installation records it.",
    ),
    depot_option,
    json_option,
    quiet_option,
)
def lock(
    out: Path,
    *,
    check: bool,
    upgrade: bool,
    accept_unverified: bool,
    as_json: bool,
    quiet: bool,
    **asked: Any,
) -> None:
    """Pin what 'flashdepot resolve' chooses, by address and SHA-256, in flashdepot.lock.

    A lock that still fits is kept; --upgrade chooses again.

    Exit status: 0 locked, or still fits; 2 the file cannot be used; 3 a fact is missing; 4 nothing fits, or the lock
    does not; 6 the digest is not known.
    """
    if check and upgrade:
        raise UsageError("--check writes nothing, --upgrade writes anew: give one of them.")
    events = Terminal(quiet=quiet)
    resolution = question(Asked(**asked), events)
    if check or (out.exists() and not upgrade):
        state = api.check_lock(resolution.request, out)
        text, code = _described(state, out), EXIT_CODES[state.verdict]
        if check or code == 0:
            text += "\n  -> or choose again: flashdepot lock --upgrade" if code else ""
            status = "does not fit" if code else "fits"
            _tell(status, state.lock, out, text, as_json=as_json, quiet=quiet and not code)
            click.get_current_context().exit(code)
        say(f"{text}\nChoosing another.")
    locked = api.lock(resolution, out, accept_unverified=accept_unverified)
    if locked is None:
        answer(describe(resolution.decision))
        click.get_current_context().exit(exit_code(resolution.decision))
    note = f"\n{_NO_DIGEST}" if locked.locked.needs_digest else ""
    _tell("locked", locked, out, f"{out}: locked {locked.locked.filename}{note}", as_json=as_json, quiet=quiet)


_NO_DIGEST = "  its SHA-256 is not known yet; the first 'flashdepot install' of this lock records it"


def _described(state: LockState, path: Path) -> str:
    """Whether a lock fits, and what speaks against it."""
    fits = "fits" if state.verdict is Verdict.FITS else state.verdict
    lines = [f"{path}: {state.lock.locked.filename} {fits}"]
    for reason in state.reasons:
        lines += [f"  {reason.text}", f"  -> {reason.fix}"]
    if state.lock.locked.needs_digest:
        lines.append(_NO_DIGEST)
    return "\n".join(lines)


def _tell(status: str, lock: Lock, path: Path, text: str, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json({"status": status, "path": str(path), **lock.to_toml()})
    elif not quiet:
        answer(text)
