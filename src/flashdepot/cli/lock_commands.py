"""``flashdepot lock``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from flashdepot.cli.common import answer, depot_option, examples, json_option, options, print_json, quiet_option, say
from flashdepot.cli.resolve_commands import exit_code
from flashdepot.cli.resolve_page import describe
from flashdepot.cli.resolving import Asked, Question, choice_options, facts_options, understand_question
from flashdepot.errors import IncompatibleError, MissingToolError, UsageError
from flashdepot.model.candidate import Verdict
from flashdepot.model.lock import LOCK_NAME, Lock
from flashdepot.resolve.lock_file import judge_lock, lock_decision, read_lock, write_lock
from flashdepot.resolve.rules import verdict_of


@click.command(
    epilog=examples(
        "flashdepot lock --python .venv",
        "flashdepot lock --host node.json --out deploy/flashdepot.lock",
        "flashdepot lock --check",
        "flashdepot lock --upgrade --allow community --accept-unverified",
    )
)
@options(
    facts_options,
    choice_options,
    click.option(
        "--out",
        metavar="FILE",
        type=click.Path(path_type=Path),
        default=LOCK_NAME,
        show_default=True,
        help="The lock file.",
    ),
    click.option("--check", is_flag=True, help="Say whether the lock there is fits; write nothing."),
    click.option("--upgrade", is_flag=True, help="Choose anew, even where the lock there is still fits."),
    click.option(
        "--accept-unverified",
        is_flag=True,
        help="Lock a wheel of others whose SHA-256 nobody has told; its first download records it.",
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

    A lock that still fits is left as it is; --upgrade chooses anew.

    Exit status: 0 locked, or fits; 2 the file cannot be used; 3 a fact is missing; 4 nothing fits, or the lock does
    not; 6 the digest is not known.
    """
    if check and upgrade:
        raise UsageError("--check writes nothing, --upgrade writes anew: give one of them.")
    before = read_lock(out) if check or (out.exists() and not upgrade) else None
    question = understand_question(Asked(**asked))
    if before is not None:
        code, text = _judge(before, question, out)
        if check or code == 0:
            text += "\n  -> or choose anew: flashdepot lock --upgrade" if code else ""
            _tell("fits" if code == 0 else "does not fit", before, out, text, as_json=as_json, quiet=quiet and not code)
            click.get_current_context().exit(code)
        say(f"{text}\nAnother is chosen.")
    decision = question.decision
    if decision.chosen is None:
        answer(describe(decision))
        click.get_current_context().exit(exit_code(decision))
    new = lock_decision(decision.chosen, question.request, accept_unverified=accept_unverified)
    write_lock(out, new)
    note = f"\n{_NO_DIGEST}" if new.locked.needs_digest else ""
    _tell("locked", new, out, f"{out}: locked {new.locked.filename}{note}", as_json=as_json, quiet=quiet)


_NO_DIGEST = "  nobody has told its SHA-256 yet: the first 'flashdepot install' of this lock records it"


def _judge(lock: Lock, question: Question, path: Path) -> tuple[int, str]:
    """The exit code of a lock where it is asked about, and why."""
    reasons = judge_lock(lock, question.request)
    verdict = verdict_of(reasons)
    lines = [f"{path}: {lock.locked.filename} {'fits' if verdict is Verdict.FITS else verdict}"]
    for reason in reasons:
        lines += [f"  {reason.text}", f"  -> {reason.mend}"]
    if lock.locked.needs_digest:
        lines.append(_NO_DIGEST)
    codes = {
        Verdict.FITS: 0,
        Verdict.UNCERTAIN: MissingToolError.exit_code,
        Verdict.MISFIT: IncompatibleError.exit_code,
    }
    return codes[verdict], "\n".join(lines)


def _tell(status: str, lock: Lock, path: Path, text: str, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json({"status": status, "path": str(path), **lock.to_toml()})
    elif not quiet:
        answer(text)
