"""``flashdepot install``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from flashdepot.build.limits import Limits
from flashdepot.cli import options as o
from flashdepot.cli.building import build_for, limits, tell_rejected
from flashdepot.cli.common import (
    ask,
    depot_option,
    duration,
    examples,
    json_option,
    open_depot,
    options,
    print_json,
    quiet_option,
    say,
    size,
    verbose_option,
    warn,
)
from flashdepot.cli.download_progress import show_download
from flashdepot.cli.wheel_commands import wheel_of
from flashdepot.depot import Depot
from flashdepot.doctor import Intention, examine
from flashdepot.errors import IncompatibleError
from flashdepot.host import probe
from flashdepot.install import (
    Installed,
    WheelFile,
    install_wheel,
    recover,
)
from flashdepot.install.choice import Asked, Choice, OwnWheel, ToBuild, choose
from flashdepot.install.inspection import inspect
from flashdepot.install.managed import Keeper, advice, find_keeper, require_free
from flashdepot.install.obstacles import environment_of, require_no_obstacle
from flashdepot.install.pinning import pin
from flashdepot.install.present import present_version
from flashdepot.install.sources import WheelAddress, have_one, have_wheel, require_digest
from flashdepot.model.lock import LOCK_NAME
from flashdepot.model.python_environment import Environment
from flashdepot.resolve.library import Result, Wish


@click.command(
    epilog=examples(
        "flashdepot install",
        "flashdepot install --source ours --python .venv/bin/python --profile training",
        "flashdepot install --wheel flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl --dry-run",
    )
)
@options(
    click.option(
        "--python",
        metavar="PY",
        help="Interpreter or folder of the environment.  [default: the active one, or the nearest .venv]",
    ),
    click.option(
        "--source",
        "sources",
        type=click.Choice(["ours", "official", "community", "build"]),
        multiple=True,
        help="Whose wheel (repeatable); 'build' is ours, compiled here if need be.  [default: ours and official]",
    ),
    click.option("--wheel", "named", metavar="FILE|URL", help="Install this very wheel."),
    click.option("--sha256", metavar="DIGEST", help="The digest that --wheel must have."),
    click.option("--locked", is_flag=True, help=f"Install what {LOCK_NAME} in this folder pins."),
    click.option(
        "--accept-unverified",
        is_flag=True,
        help=f"Take a wheel whose digest nobody has told, and record it in {LOCK_NAME}.",
    ),
    click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing."),
    o.selection_options,
    o.jobs_option,
    o.memory_option,
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)
def install(
    python: str | None,
    sources: tuple[str, ...],
    named: str | None,
    sha256: str | None,
    jobs: int | None,
    memory: str | None,
    depot: str | None,
    *,
    locked: bool,
    accept_unverified: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **wish: str | None,
) -> None:
    """Install flash-attn into a Python environment that has torch, and prove there that it works.

    Without options it takes what 'flashdepot resolve' chooses among the depot's libraries and the official wheels. It
    compiles only when that is asked for, by --source build or at the terminal.

    The wheel is checked before anything is changed. Then it is imported in a fresh process and, with a GPU, what it
    computes is compared with float64. When anything fails, the environment is put back as it was.
    """
    started = time.monotonic()
    opened = open_depot(depot)
    record = probe(python, opened.root)
    environment = environment_of(record)
    if not dry_run and recover(environment.prefix, warn):
        record = probe(python, opened.root)
    require_no_obstacle(examine(record, Intention.INSTALL, Wish(arch=wish["arch"])), environment.executable, warn)
    lock_file = Path.cwd() / LOCK_NAME
    asked = Asked(o.with_project(Wish(**wish)), frozenset(sources), named, sha256, lock_file if locked else None)
    choice = choose(asked, record, opened, warn)
    keeper = find_keeper(environment.prefix)
    require_free(keeper, environment.prefix, choice.reference)
    if dry_run:
        if isinstance(choice.wheel, WheelFile):
            inspect(choice.wheel, environment, record, warn)
        _tell_plan(choice, environment, keeper, as_json=as_json)
        return
    chosen, library = choice.wheel, None
    with opened.workspace() as folder:
        if isinstance(chosen, OwnWheel):
            if isinstance(chosen.library, ToBuild) and not asked.may_build:
                _require_consent(chosen.library, choice.why, as_json=as_json)
            library = _library(chosen, opened, limits(jobs, memory), quiet=quiet, verbose=verbose)
            made = wheel_of(library, chosen.sources, opened, folder)
            wheel = WheelFile(choice.source, made.path, made.sha256, made.size)
        elif isinstance(chosen, WheelAddress):
            accept_unverified = accept_unverified or _accepts(chosen, as_json=as_json)
            choice, wheel = _fetched(choice, opened, accept_unverified=accept_unverified, quiet=quiet)
        else:
            wheel = chosen
        done = install_wheel(wheel, record, on_note=warn)
        pinned = pin(lock_file, choice.lock, wheel) if locked or accept_unverified else ""
    if pinned and not quiet:
        say(pinned)
    seconds = time.monotonic() - started
    if as_json:
        print_json({**_document(done, wheel, environment, keeper, library), "seconds": round(seconds, 3)})
    elif not quiet:
        _tell(done, wheel, environment, seconds)
        if keeper is not None:
            say(f"  {advice(keeper, choice.reference)}")


def _require_consent(library: ToBuild, why: str, *, as_json: bool) -> None:
    """Ask whether to compile, where somebody is there to answer.

    :raises IncompatibleError: when nobody is, or the answer is no.
    """
    takes = f"compiling one takes about {duration(library.seconds)} on this machine"
    may_ask = sys.stdin.isatty() and sys.stderr.isatty() and not as_json
    if not may_ask or not ask(f"{why.capitalize()}; {takes}. Compile it now?"):
        raise IncompatibleError(
            f"There is nothing to install without a compiler: {why}, and {takes}.",
            hint="Compile it: flashdepot install --source build, with the options that were given here.",
        )


def _accepts(address: WheelAddress, *, as_json: bool) -> bool:
    """Ask whether to take a wheel whose digest nobody has told, where somebody is there to answer."""
    if address.sha256 or as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"Nobody has told the SHA-256 of {address.filename}: only {address.host} vouches for what it serves."
    return ask(f"{question} Take it, and pin what comes?")


def _fetched(choice: Choice, depot: Depot, *, accept_unverified: bool, quiet: bool) -> tuple[Choice, WheelFile]:
    """The chosen wheel, or the first of those after it that exists."""
    candidates = [c for c in (choice, *choice.others) if isinstance(c.wheel, WheelAddress)]
    tell = warn if not quiet else (lambda _: None)

    def have(address: WheelAddress) -> WheelFile:
        require_digest(address, accept_unverified=accept_unverified)
        with show_download(address.filename, quiet=quiet) as progress:
            return have_wheel(address, depot.layout.downloads, progress, tell)

    addresses = [c.wheel for c in candidates if isinstance(c.wheel, WheelAddress)]
    number, wheel = have_one(addresses, have, tell)
    return candidates[number], wheel


def _library(wheel: OwnWheel, depot: Depot, bounds: Limits, *, quiet: bool, verbose: bool) -> Result:
    """The library of our wheel: the stored one, or one that is built now."""
    if isinstance(wheel.library, Result):
        return wheel.library
    if not quiet:
        tell_rejected(wheel.library.rejected)
    return build_for(wheel.library.need, depot, bounds, quiet=quiet, verbose=verbose)


def _document(
    done: Installed, wheel: WheelFile, environment: Environment, keeper: Keeper | None, library: Result | None
) -> dict[str, object]:
    return {
        "status": "installed",
        "source": wheel.source,
        "library": library.status if library else None,
        "recipe_key": library.manifest.recipe_key if library else None,
        "wheel": {"filename": wheel.path.name, "url": wheel.url, "sha256": wheel.sha256, "size": wheel.size},
        "python": str(environment.executable),
        "keeper": keeper.name if keeper else None,
        "version": done.imported.version,
        "replaced": done.replaced,
        "torch": done.imported.torch,
        "module": str(done.imported.module),
        "installer": done.installer,
        "numbers": done.numbers.to_json(),
    }


def _tell(done: Installed, wheel: WheelFile, environment: Environment, seconds: float) -> None:
    instead = f" instead of {done.replaced}" if done.replaced else ""
    say(
        f"flash-attn {done.imported.version}{instead} ({wheel.source}, {size(wheel.size)}), with {done.installer}, in "
        f"{environment.prefix}: imports with torch {done.imported.torch}; in {duration(seconds)}"
    )
    if done.numbers.not_run:
        say(f"  Its numbers were not checked: {done.numbers.not_run}. 'flashdepot verify' does it later.")
    else:
        left_out = f", {done.numbers.skipped} not in this build" if done.numbers.skipped else ""
        say(f"  {done.numbers.right} results agree with float64 on {done.numbers.gpu}{left_out}")


def _tell_plan(choice: Choice, environment: Environment, keeper: Keeper | None, *, as_json: bool) -> None:
    present = present_version(environment)
    if as_json:
        about = {"python": str(environment.executable), "keeper": keeper.name if keeper else None, "replaces": present}
        print_json({"status": "planned", **choice.to_json(), **about})
        return
    say(f"Would install {_described(choice)}")
    say(f"  into {environment.prefix}" + (f", instead of flash-attn {present}" if present else ""))
    say("  after checking its bytes, and import it there. Nothing was changed.")
    if keeper is not None:
        say(f"  {advice(keeper, choice.reference)}")


def _described(choice: Choice) -> str:
    wheel = choice.wheel
    if isinstance(wheel, WheelFile):
        return f"{wheel.path} ({size(wheel.size)})"
    if isinstance(wheel, WheelAddress):
        return f"{wheel.shown} ({wheel.source}, {size(wheel.size) if wheel.size else 'size not known'}): {choice.why}"
    if isinstance(wheel.library, Result):
        return f"our wheel over the stored library {wheel.library.manifest.recipe_key[:12]}: {choice.why}"
    return f"our wheel, to be compiled first in about {duration(wheel.library.seconds)}: {choice.why}"
