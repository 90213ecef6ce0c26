"""The entry point: quick answers first, then the command line."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line. ``--version`` is answered before anything is imported."""
    _open_closed_streams()
    if sys.argv[1:] in (["--version"], ["-V"]) and _version_is_shown():
        return
    import atexit  # noqa: PLC0415
    import signal  # noqa: PLC0415

    atexit.register(_end_as_asked)  # first, so that it is done last

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
    _discard_what_nobody_takes()
    if status < 0:
        _ended_by.append(-status)
        status = 128 - status
    sys.exit(status)


def _version_is_shown() -> bool:
    from flashdepot import __version__  # noqa: PLC0415

    try:
        sys.stdout.write(f"flashdepot {__version__}\n")
        sys.stdout.flush()
    except OSError:  # the command line says why
        return False
    return True


_ended_by: list[int] = []


def _end_as_asked() -> None:
    """End by the signal that stopped the work: else a shell's loop takes Ctrl-C for the end of one round."""
    if _ended_by and os.name == "posix":
        import signal  # noqa: PLC0415

        signal.signal(_ended_by[0], signal.SIG_DFL)
        os.kill(os.getpid(), _ended_by[0])


def _discard_what_nobody_takes() -> None:
    """Let go of output that cannot be written, of which Python would complain at the end."""
    for number, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # noqa: PERF203
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


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
