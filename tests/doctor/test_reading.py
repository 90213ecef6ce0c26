"""A log is read line by line, whatever program, system or end of lines it comes from."""

import io
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from doctor.logs import classes, look
from flashdepot.diagnose.explain import Files, explain
from flashdepot.diagnose.explain.lines import read_chunks, strip_prefixes
from flashdepot.diagnose.explain.pattern import Screen


@pytest.mark.parametrize(
    "prefix",
    [
        "#22 3747.1 ",
        "#8 [build 4/7] ",
        "10.14 ",
        "[rank0]: ",
        "[1,3]<stderr>: ",
        "(EngineCore_DP0 pid=312) ERROR 08-12 10:11:12 [core.py:712] ",
        "(RayWorkerWrapper pid=9, ip=10.0.0.2) ",
        "(RayWorkerWrapper pid=9, ip=10.0.0.2) ERROR 12-17 09:40:09 worker_base.py:467] ",
        "2026-08-12T10:11:12.1234567Z ",
        "2026-08-12 10:11:12,123 ",
        "[2026-08-12 10:11:12] ",
        "Aug 12 10:11:12 node7 slurmd[812]: ",
        "##[error]",
        "      ╰─> ",
        "  │   ",
        "> > ",
        "worker-1  | ",
        "2026-08-12T10:11:12.1234567Z #22 3747.1   │ ",
    ],
)
def test_what_other_programs_put_before_a_line_is_taken_away(prefix: str) -> None:
    assert strip_prefixes(f"{prefix}Killed\n".encode()) == "Killed"
    assert classes(f"nvcc -c flash.cu\n{prefix}Killed\n") == ["oom-killed"]


@pytest.mark.parametrize(
    "line", ["#define X 1", "12.8 is not a line of BuildKit?"[5:], "a.cu(3): error: x", "[7/72] nvcc -c a.cu", "E0308"]
)
def test_a_line_without_a_prefix_stays(line: str) -> None:
    assert strip_prefixes(line.encode()) == line.strip()


@pytest.mark.parametrize("escape", ["\x1b", ""])
def test_colours_do_not_hide_a_message(escape: str) -> None:
    log = f"{escape}[1m{escape}[31mnvcc fatal   : Unsupported gpu{escape}[0m architecture 'compute_120'"
    assert classes(log) == ["unsupported-gpu-arch"]


def test_bytes_of_another_code_page_and_powershells_utf16_are_read() -> None:
    message = "torch/x.h(7): error C2872: 'std': неоднозначный символ\n"
    for data in (message.encode("cp1251"), message.encode("utf-16"), message.replace("\n", "\r\n").encode()):
        assert [finding.id for finding in explain(io.BytesIO(data)).findings] == ["msvc-std-ambiguous"]


def test_a_huge_log_of_long_lines_takes_constant_memory() -> None:
    class Endless(io.RawIOBase):
        left = 20_000_000

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            count = min(len(buffer), self.left)
            buffer[:count] = b"x" * count
            self.left -= count
            return count

    tracemalloc.start()
    report = explain(Endless())  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.findings == ()
    assert peak < 4_000_000


def test_a_long_line_is_one_line_of_the_log() -> None:
    long = "y" * 400_000
    report = look(f"first\n{long} nvcc fatal   : Unsupported gpu architecture 'compute_120' {long}\nerror: next\n")
    assert [(finding.id, finding.line.number) for finding in report.findings] == [("unsupported-gpu-arch", 2)]
    assert report.errors[-1].number == 3


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_whatever_ends_them(end: str) -> None:
    assert look(f"one{end}two{end}nvcc fatal   : Unsupported gpu architecture 'sm_1'{end}").findings[0].line.number == 3


@pytest.mark.parametrize("before", [0, 1, 131_000, 131_071, 131_072, 262_143])
def test_a_message_is_found_wherever_the_log_is_cut_into_pieces(before: int) -> None:
    log = "x\n" * (before // 2) + "nvcc fatal   : Unsupported gpu architecture 'compute_120'\n" + "y\n" * 90_000
    assert look(log).findings[0].line.number == before // 2 + 1
    assert sum(chunk.text.count(b"\n") for chunk in read_chunks(io.BytesIO(log.encode()))) == log.count("\n")


@given(st.lists(st.text(alphabet="abcé .:1'-\n", max_size=30), max_size=40), st.data())
def test_a_text_is_present_exactly_where_it_is(pieces: list[str], data: st.DataObject) -> None:
    whole = "".join(pieces) or "abc"
    start = data.draw(st.integers(0, len(whole) - 1))
    wanted = {whole[start : start + length] for length in (1, 4, 9)} | {"abc", "cab.", "not in there"}
    screen = Screen((), wanted)
    for piece in [*pieces, whole]:
        assert screen.possible(piece.encode())[1] == {text for text in wanted if text in piece}


@given(st.binary(max_size=2000))
def test_no_bytes_make_it_crash_or_claim(data: bytes) -> None:
    assume(b"git-lfs" not in data)  # hypothesis tries words of the code under test, and a pointer is one
    assert explain(io.BytesIO(data)).findings == ()


def test_a_device_that_a_log_names_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> str:
        assert str(path) != os.devnull, "read as a file, and /dev/zero has no end"
        return ""

    monkeypatch.setattr("flashdepot.diagnose.explain.shell.text_of", read)
    log = f"$ pip install -r {os.devnull}\nERROR: Could not find a version that satisfies the requirement numpy==99 (from versions: 1.0, 2.0)\n"
    files = Files(here=True)
    assert files.text(os.devnull) == ""
    monkeypatch.setattr(files, "find", lambda pattern: [pattern] if pattern == os.devnull else [])
    assert explain(io.BytesIO(log.encode()), files=files).findings[0].id == "version-not-published"


def test_a_file_of_gigabytes_that_a_log_names_is_not_read(tmp_path: Path) -> None:
    long = tmp_path / "requirements.txt"
    with long.open("wb") as file:
        file.truncate(1 << 40)
    assert Files(here=True).text(str(long)) == ""
    long.write_text("numpy==99\n")
    assert Files(here=True).text(str(long)) == "numpy==99\n"
