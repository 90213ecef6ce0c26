"""``flashdepot install``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from flashdepot.cli import options as o
from flashdepot.cli.common import (
    depot_option,
    duration,
    examples,
    json_option,
    open_depot,
    options,
    print_json,
    quiet_option,
    say,
    verbose_option,
    warn,
)
from flashdepot.cli.obtaining import need_of, obtain_library
from flashdepot.cli.wheel_commands import wheel_of
from flashdepot.install import active_python, install_wheel, probe_environment, require_environment
from flashdepot.resolve.library import Wish


@click.command(
    epilog=examples(
        "flashdepot install",
        "flashdepot install --source ours --python .venv/bin/python --profile training",
    )
)
@options(
    click.option(
        "--python",
        metavar="PY",
        type=click.Path(path_type=Path),
        help="Interpreter of the environment.  [default: that of the active virtual environment]",
    ),
    click.option(
        "--source",
        type=click.Choice(["ours"]),
        default="ours",
        help="Whose wheel: ours, over a library that flashdepot has or builds.  [default: ours]",
    ),
    o.selection_options,
    o.jobs_option,
    o.memory_option,
    depot_option,
    json_option,
    quiet_option,
    verbose_option,
)
def install(
    python: Path | None,
    source: str,
    jobs: int | None,
    memory: str | None,
    depot: str | None,
    *,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **wish: str | None,
) -> None:
    """Install flash-attn into a Python environment that has torch, and import it there in a fresh process.

    When anything fails the environment is put back as it was, with the flash-attn that it had.
    """
    started = time.monotonic()
    environment = probe_environment(python or active_python())
    require_environment(environment)
    torch = environment.packages["torch"] or ""
    if torch.endswith("+cpu"):
        warn(f"torch {torch} is a build without CUDA: flash_attn imports there, and every call fails.")
    opened = open_depot(depot)
    need = need_of(Wish(**wish), None, opened, quiet=quiet)
    result = obtain_library(need, opened, jobs, memory, quiet=quiet, verbose=verbose)
    with opened.workspace() as folder:
        wheel = wheel_of(result, need, opened, folder)
        done = install_wheel(wheel, result.manifest, environment, on_note=warn)
    seconds = time.monotonic() - started
    if as_json:
        print_json(
            {
                "status": "installed",
                "source": source,
                "library": result.status,
                "recipe_key": result.manifest.recipe_key,
                "python": str(environment.python),
                "version": done.imported.version,
                "replaced": done.replaced,
                "torch": done.imported.torch,
                "module": str(done.imported.module),
                "installer": done.installer,
                "seconds": round(seconds, 3),
            }
        )
    elif not quiet:
        instead = f" instead of {done.replaced}" if done.replaced else ""
        say(
            f"flash-attn {done.imported.version}{instead}, with {done.installer}, in {environment.prefix}: "
            f"imports with torch {done.imported.torch}; in {duration(seconds)}"
        )
