"""What somebody sees of downloads and builds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from flashdepot.cli import terminal
from flashdepot.cli.forecast_page import sentence
from flashdepot.cli.terminal import Terminal
from flashdepot.events import Forecast, Share, Snapshot

HALF = Snapshot(
    kernels=Share(1, 4),
    host_sides=Share(0, 4),
    sources=Share(2, 30),
    fraction=0.5,
    running=["b"],
    elsewhere=[],
    memory=10**9,
    eta=90,
)


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


@pytest.mark.parametrize(
    ("host_sides", "sources", "counted"),
    [
        (Share(1, 4), Share(2, 30), "1/4 host sides"),
        (Share(4, 4), Share(2, 30), "2/30 other sources"),
        (Share(0, 0), Share(2, 30), "2/30 other sources"),
        (Share(4, 4), Share(30, 30), "4/4 kernels"),
    ],
)
def test_when_all_kernels_are_there_a_log_counts_what_is_not(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    host_sides: Share,
    sources: Share,
    counted: str,
) -> None:
    monkeypatch.setattr(terminal, "_SILENCE", 0.0)
    with Terminal().building() as progress:
        progress.update(replace(HALF, kernels=Share(4, 4), host_sides=host_sides, sources=sources))
    assert capsys.readouterr().err == f"[{counted}] 50% done, about 90 s left\n"


@pytest.mark.parametrize(
    ("compiled", "host_sides", "seconds", "said"),
    [
        (0, 0, 90, "To compile: 4 kernels; about 90 s with 2 compilers at a time; up to 1.0 GB of memory; 2.0 MB of disk."),
        (1, 0, 90, "To compile: 3 kernels; 1 more are compiled already; about 90 s"),
        (3, 2, 90, "To compile: 1 kernels; the device code of 3 more is compiled already, the host side of 2 of them is not; about 90 s"),
        (4, 4, 90, "The device code of all 4 kernels is compiled already. To compile: the host side of 4, and the C layer; about 90 s"),
        (4, 0, 20, "All 4 kernels are compiled already: only the C layer is to be compiled, and linked; about 20 s with 2 compilers at a time."),
        (4, 0, 0, "All 4 kernels are compiled already: only linking is left."),
    ],
)  # fmt: skip
def test_before_a_build_it_is_said_what_is_to_be_compiled(
    compiled: int, host_sides: int, seconds: float, said: str
) -> None:
    forecast = Forecast(4, compiled, 2, seconds, 10**9, 4 * 10**9, 2 * 10**6, host_sides=host_sides)
    assert sentence(forecast).startswith(said)


def test_more_memory_than_may_be_used_is_said_beforehand() -> None:
    forecast = Forecast(4, 0, 1, 90, memory=7 * 10**9, memory_limit=4 * 10**9, disk=2 * 10**6)
    assert "up to 7.0 GB of memory, more than the 4.0 GB that may be used: one compiler takes it alone; " in sentence(
        forecast
    )


def test_quiet_shows_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal(quiet=True).building() as progress:
        progress.download("nvcc.whl")(1, 2)
        progress.finished("a", 42, HALF)
        progress.update(HALF)
    assert capsys.readouterr().err == ""
