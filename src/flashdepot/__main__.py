"""The entry point: quick answers first, then the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. ``--version`` alone is answered before anything is imported."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from flashdepot import __version__  # noqa: PLC0415

        sys.stdout.write(f"flashdepot {__version__}\n")
        return
    import gc  # noqa: PLC0415

    gc.set_threshold(200_000)  # thousands of wheels and modules: looking for circles among them takes longer
    from flashdepot.cli import run  # noqa: PLC0415

    status = run()
    gc.freeze()  # or Python looks for circles among all of them once more before it ends
    sys.exit(status)


if __name__ == "__main__":
    main()
