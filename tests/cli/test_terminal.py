"""What somebody sees of downloads and builds."""

from __future__ import annotations

import pytest

from flashdepot.cli import terminal
from flashdepot.cli.terminal import Terminal
from flashdepot.events import Snapshot

HALF = Snapshot(kernels=4, done=1, fraction=0.5, running=["b"], elsewhere=[], memory=10**9, eta=90)


def test_a_download_of_a_build_is_one_line_with_its_size_from_the_first_byte_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Terminal().building() as progress:
        tell = progress.download("nvcc.whl")
        assert capsys.readouterr().err == "", "it may be there already"
        for done in (1000, 2000, 102_000_000):
            tell(done, 102_000_000)
    assert capsys.readouterr().err == "Fetching nvcc.whl, 102.0 MB.\n"


def test_a_log_has_a_line_for_each_kernel_and_is_never_silent_for_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    with Terminal().building() as progress:
        progress.finished("a", 42, HALF)
        assert capsys.readouterr().err == "[1/4 kernels] a in 42 s, about 90 s left\n"
        for now[0] in (10.0, 20.0, 29.0):
            progress.update(HALF)
        assert capsys.readouterr().err == ""
        for now[0] in (31.0, 32.0, 62.0):
            progress.update(HALF)
        assert capsys.readouterr().err == "[1/4 kernels] 50% done, about 90 s left\n" * 2


def test_quiet_shows_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal(quiet=True).building() as progress:
        progress.download("nvcc.whl")(1, 2)
        progress.finished("a", 42, HALF)
        progress.update(HALF)
    assert capsys.readouterr().err == ""
