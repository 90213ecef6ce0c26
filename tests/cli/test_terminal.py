"""What somebody sees of downloads and builds, which nothing from outside can steer."""

import io
import os
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from flashdepot.cli import terminal
from flashdepot.cli.output import printable
from flashdepot.cli.terminal import Terminal
from flashdepot.events import Forecast, Snapshot
from flashdepot.resolve.consent import sentence
from support.tools import flashdepot_here

HALF = Snapshot(done=3, total=38, fraction=0.5, running=["b"], elsewhere=[], memory=10**9, eta=90)


def test_a_download_of_a_build_is_one_line_with_its_size_from_the_first_byte_on(capsys) -> None:
    with Terminal().building() as progress:
        tell = progress.download("nvcc.whl")
        assert capsys.readouterr().err == "", "it may be there already"
        for done in (1000, 2000, 102_000_000):
            tell(done, 102_000_000)
    assert capsys.readouterr().err == "Fetching nvcc.whl, 102.0 MB.\n"


def test_a_log_has_a_line_for_each_kernel_and_is_never_silent_for_long(capsys, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    with Terminal().building() as progress:
        progress.finished("a", 42, HALF)
        assert capsys.readouterr().err == "[3/38 steps] a in 42 s, about 90 s left\n"
        for now[0] in (10.0, 20.0, 29.0):
            progress.update(HALF)
        assert capsys.readouterr().err == ""
        for now[0] in (31.0, 32.0, 62.0):
            progress.update(HALF)
        assert capsys.readouterr().err == "[3/38 steps] 50% done, about 90 s left\n" * 2


def test_names_do_not_speak_of_another_gpu(capsys) -> None:
    with Terminal().building() as progress:
        progress.finished("flash_fwd_hdim64_bf16_causal_sm80-1", 42, HALF)
        progress.finished("flash_fwd_hdim64_bf16_sm80", 42, HALF)
    said = capsys.readouterr().err
    assert "flash_fwd_hdim64_bf16_causal-1 in" in said
    assert "_sm80" not in said


def test_a_live_download_is_a_bar_until_it_is_whole_and_finished_kernels_are_named_on_request(
    capsys, monkeypatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    with terminal._Live(verbose=True) as live:
        tell = live.download("nvcc.whl")
        assert "nvcc.whl" not in capsys.readouterr().err, "it may be there already"
        tell(1_000_000, 2_000_000)
        tell(2_000_000, 2_000_000)
        shown = capsys.readouterr().err
        assert all(words in shown for words in ("nvcc.whl", "2.0/2.0 MB"))
        live.finished("flash_fwd_hdim64_bf16_sm80", 42, HALF)
    assert "flash_fwd_hdim64_bf16 in 42 s" in capsys.readouterr().err


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_of_a_live_display_breaks_inside_a_word(capsys, monkeypatch, width) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", "25")
    names = [f"flash_bwd_hdim{dim}_bf16_causal_softcap_sm80" for dim in (32, 256)]
    with terminal._Live(verbose=False) as live:
        live.note("a sentence of many words " * 10)
        live.update(replace(HALF, running=names, elsewhere=names, memory=31 * 10**9))
        live._live.stop()
        rows = io.StringIO()
        Console(width=width, file=rows).print(live._live.get_renderable())
    shown = rows.getvalue()
    assert ("a sentence of many words " * 10).strip() in capsys.readouterr().err
    for name in names:
        found = [line for line in shown.splitlines() if name[:16] in line]
        assert found
        assert all(len(line) <= width for line in found)
    if width >= 60:
        assert any("3/38 steps" in line and "50% after" in line for line in shown.splitlines())


@pytest.mark.parametrize(
    ("compiled", "host_sides", "seconds", "said"),
    [
        (0, 0, 90, "To compile: 4 kernels; about 90 s with 2 compilers at a time; up to 1.0 GB of memory; 2.0 MB of disk."),
        (1, 0, 90, "To compile: 3 kernels; 1 more are compiled already; about 90 s"),
        (3, 2, 90, "To compile: 1 kernels; the device code of 3 more is compiled already, the host side of 2 of them is not; about 90 s"),
        (4, 4, 90, "The device code of all 4 kernels is compiled already. To compile: the host side of 4, and the C layer; about 90 s"),
        (4, 0, 20, "All 4 kernels are compiled already: only the C layer is to be compiled, and linked; about 20 s with 2 compilers at a time."),
        (4, 0, 2, "All 4 kernels are compiled already: only linking is left, about 2.0 s."),
    ],
)  # fmt: skip
def test_before_a_build_it_is_said_what_is_to_be_compiled(compiled, host_sides, seconds, said) -> None:
    memory = 10**9 if seconds > 2 else 0  # linking by itself counts as none
    forecast = Forecast(4, compiled, 2, seconds, memory, 4 * 10**9, 2 * 10**6, host_sides=host_sides)
    assert sentence(forecast).startswith(said)


def test_more_memory_than_may_be_used_is_said_in_advance() -> None:
    forecast = Forecast(4, 0, 1, 90, memory=7 * 10**9, memory_limit=4 * 10**9, disk=2 * 10**6)
    assert "up to 7.0 GB of memory, more than the 4.0 GB that may be used: one compiler uses all of it; " in sentence(
        forecast
    )


def test_quiet_shows_nothing_of_it(capsys) -> None:
    with Terminal(quiet=True).building() as progress:
        progress.download("nvcc.whl")(1, 2)
        progress.finished("a", 42, HALF)
        progress.update(HALF)
    assert capsys.readouterr().err == ""


CLEAR = "\x1b\x1b[0m[2J"
STEERING = set(map(chr, [*range(0x20), *range(0x7F, 0xA0)])) - {"\n"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("ünï 中文 👩\u200d💻", "ünï 中文 👩\u200d💻"),
        (CLEAR, r"\x1b\x1b[0m[2J"),
        ("\x9b2J\r\x07\x00", r"\x9b2J\r\x07\x00"),
        ("safe\u202egnp.exe", r"safe\u202egnp.exe"),
        ("not\udce9UTF-8", r"not\udce9UTF-8"),
    ],
)
def test_only_what_steers_a_terminal_is_spelled_out(text, shown) -> None:
    assert printable(text) == shown


def run(*arguments: str, cwd: Path) -> str:
    done = flashdepot_here(*arguments, cwd=cwd)
    return str(done.stdout + done.stderr)


def hostile_wheel(folder: Path) -> str:
    path = folder / "flash_attn-2.8.3-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"flash_attn_2_cuda{CLEAR}.so", b"\x7fELF not really")
        archive.writestr(f"flash_attn-2.8.3.dist-info/{CLEAR}", b"")
    return f"./{path.name}"


def hostile_log(folder: Path) -> str:
    (folder / "log").write_text(
        f"undefined symbol: _ZN3c10{CLEAR}4cuda\nModuleNotFoundError: No module named '{CLEAR}'\n"
    )
    return "./log"


def hostile_record(folder: Path) -> str:
    (folder / "record").write_text(f'{{"{CLEAR!r}": 1'.replace("\\x1b", "\x1b"))
    return "./record"


def hostile_project(folder: Path) -> str:
    (folder / "flashdepot.toml").write_text('profile = "\\u001b[2J"\n')
    return "--profile=\x1b[2J"


def test_no_command_passes_on_what_steers_the_terminal(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("flashdepot.host.tools.find_compilers", tuple)  # no compiler is asked its version
    depot = ("--depot", str(tmp_path / "depot"))
    wheel, log, record = hostile_wheel(tmp_path), hostile_log(tmp_path), hostile_record(tmp_path)
    outputs = [
        run("check", wheel, cwd=tmp_path),
        run("explain", log, cwd=tmp_path),
        run("get", "--host", record, *depot, cwd=tmp_path),
        run("get", hostile_project(tmp_path), *depot, cwd=tmp_path),
        run("get", *depot, cwd=tmp_path),
        run("install", "--wheel", wheel, *depot, cwd=tmp_path),
        run("get", "--upstream", f"./{CLEAR}", *depot, cwd=tmp_path),
    ]
    assert [sorted(STEERING & set(output.replace(os.linesep, ""))) for output in outputs] == [[]] * len(outputs)
    assert all(outputs)
    assert any(r"\x1b" in output for output in outputs), "it is shown, and harmless"
