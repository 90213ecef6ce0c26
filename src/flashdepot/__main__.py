"""The entry point: quick answers first, then the command line."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line. ``--version`` is answered before anything is imported."""
    _open_closed_streams()
    if sys.argv[1:] in (["--version"], ["-V"]):
        from flashdepot import __version__  # noqa: PLC0415

        sys.stdout.write(f"flashdepot {__version__}\n")
        return
    import signal  # noqa: PLC0415

    # Until run() can catch it, and after, Ctrl-C ends the process as the system does: without a traceback.
    catches_interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if catches_interrupts:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import gc  # noqa: PLC0415

    gc.set_threshold(200_000)  # thousands of wheels and modules: looking for circles among them takes longer
    _import_msgspec()
    from flashdepot.cli import run  # noqa: PLC0415

    status = run(catches_interrupts=catches_interrupts)
    gc.freeze()  # or Python looks for circles among all of them once more before it ends
    sys.exit(status)


def _import_msgspec() -> None:
    """Without typing_extensions, where that is installed: Python 3.11 has all that it asks of it, in 16 ms less."""
    if sys.version_info < (3, 11) or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None
    try:
        import msgspec  # noqa: F401, PLC0415
    finally:
        del sys.modules["typing_extensions"]


def _open_closed_streams() -> None:
    """Open ``/dev/null`` for standard streams that were closed, as by cron: else the next file opened gets their number."""
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while os.open(os.devnull, os.O_RDWR) < number:
                pass  # another that was closed
            setattr(sys, name, open(number, "r+" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    main()
