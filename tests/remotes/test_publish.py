"""`flashdepot publish` with stand-in compilers: what is made, pushed, used again, and left out."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import pytest

from flashdepot.api import publishing
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.files.documents import read_json
from flashdepot.publish import REPORT_NAME, PartReport
from support.machines import Machine
from support.servers import Answer, answers

MATRIX = """
index = "public"
names = ["flash-attn-3"]

[matrix]
upstream = "9.9.9"
cuda = "13.0"
profile = ["quick", "inference"]
arch = ["80,90"]
"""


@pytest.fixture(autouse=True)
def no_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stand-in compilers make has none; tests/publish/test_templates.py is about proof."""
    monkeypatch.setattr(publishing, "verify_wheel", lambda *_: None)


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "publish.toml"
    path.write_text(MATRIX)
    return path


def publish(machine: Machine, matrix: Path, *options: str) -> tuple[int, Any]:
    """The exit code and the report."""
    done = machine._invoke("publish", str(matrix), *options, "--depot", str(machine.depot), "--json")
    if done.exception is not None:
        raise done.exception
    return done.return_value or 0, json.loads(done.stdout)


def statuses(report: Any) -> list[str]:
    return [part["status"] for part in report["parts"]]


def test_what_a_matrix_names_is_made_pushed_and_indexed_and_a_second_run_finds_it_all(
    builder, user, server, matrix, tmp_path
) -> None:
    line = builder.key("factory")
    builder.run("remote", "add", "team", server.url, "--push", "--timeout", "30")
    code, planned = publish(builder, matrix, "--dry-run")
    assert code == 0
    assert [part["plan"]["status"] for part in planned["parts"]] == ["planned"] * 2
    assert not (tmp_path / "dist").exists()
    assert not server.files

    code, report = publish(builder, matrix)
    assert code == 0
    assert statuses(report) == ["built", "built"]
    assert report == read_json(tmp_path / "dist" / REPORT_NAME)
    assert report["signer"] == "factory"
    for part in report["parts"]:
        assert (tmp_path / "dist" / part["wheel"]).stat().st_size == part["size"]
        assert part["pushed"]["team"]["libraries"] == 1
        assert part["pushed"]["team"]["bytes"] > 0
    index = read_json(tmp_path / "public" / "flashdepot-index.json")
    assert len(index["wheels"]) == 2
    (small,) = report["names"]
    assert small.startswith("flash_attn_3-")
    assert sha256((tmp_path / "dist" / small).read_bytes()).hexdigest() == report["names"][small]
    assert small in json.dumps(index["names"])

    code, again = publish(builder, matrix)
    assert code == 0
    assert statuses(again) == ["hit", "hit"]
    assert [part["sha256"] for part in again["parts"]] == [part["sha256"] for part in report["parts"]]
    assert again["names"] == report["names"]
    assert {part["pushed"]["team"]["bytes"] for part in again["parts"]} == {0}

    user.run("remote", "add", "team", server.url, "--timeout", "30")
    user.run("keys", "trust", line)
    assert user.get()["status"] == "fetched"
    code, fetched = publish(user, matrix, "--no-push", "--out", str(tmp_path / "elsewhere"))
    assert code == 0
    assert sorted(statuses(fetched)) == ["fetched", "hit"]
    assert [part["sha256"] for part in fetched["parts"]] == [part["sha256"] for part in report["parts"]]


def test_a_run_that_was_stopped_continues_where_it_was(builder, matrix, tmp_path, monkeypatch) -> None:
    make = publishing._make
    done: list[PartReport] = []

    def one_and_no_more(*arguments: Any) -> PartReport:
        if done:
            raise KeyboardInterrupt
        done.append(make(*arguments))
        return done[0]

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_make", one_and_no_more)
        with pytest.raises(click.Abort):
            publish(builder, matrix, "--no-push")
    assert statuses(read_json(tmp_path / "dist" / REPORT_NAME)) == ["built", "waiting"]
    _, report = publish(builder, matrix, "--no-push")
    assert statuses(report) == ["hit", "built"]


def test_a_part_that_fails_does_not_stop_the_others_and_decides_the_exit_code(builder, matrix, tmp_path) -> None:
    matrix.write_text(
        f'{MATRIX}\n[[include]]\nupstream = "9.9.9"\narch = "70"\n\n[[include]]\nupstream = "1.0"\narch = "90"\n'
    )
    code, report = publish(builder, matrix, "--no-push")
    assert statuses(report) == ["built", "built", "failed", "failed"]
    problems = [part["problem"] for part in report["parts"][2:]]
    assert code == report["exit_code"] == problems[0]["exit_code"] != 0
    assert "'1.0'" in problems[1]["message"]
    assert len(read_json(tmp_path / "public" / "flashdepot-index.json")["wheels"]) == 2, "what was made is there"
    assert "warning: upstream=9.9.9 arch=70: " in builder.said


def test_a_wheel_that_cannot_be_verified_is_neither_pushed_nor_indexed(
    builder, server, matrix, tmp_path, monkeypatch
) -> None:
    def wrong(*_: object) -> None:
        raise IntegrityError("It is not what its manifest says.")

    monkeypatch.setattr(publishing, "verify_wheel", wrong)
    builder.key()
    builder.run("remote", "add", "team", server.url, "--push")
    code, report = publish(builder, matrix)
    assert code == 6
    assert statuses(report) == ["failed", "failed"]
    assert not server.files
    assert not (tmp_path / "public").exists()


def test_a_remote_that_takes_nothing_fails_the_part_and_the_next_run_pushes_it(builder, server, matrix) -> None:
    builder.key()
    builder.run("remote", "add", "team", server.url, "--push", "--timeout", "30")
    server.fault = answers("", Answer(507), "PUT")
    code, report = publish(builder, matrix)
    assert code == 7
    assert {part["verified"] for part in report["parts"]} == {True}
    server.fault = lambda _method, _path: None
    code, report = publish(builder, matrix)
    assert code == 0
    assert statuses(report) == ["hit", "hit"]
    assert {part["pushed"]["team"]["libraries"] for part in report["parts"]} == {1}


def test_without_a_key_or_a_remote_that_is_named_nothing_is_begun(builder, server, matrix, tmp_path) -> None:
    builder.run("remote", "add", "team", server.url, "--push")
    with pytest.raises(UsageError, match="no key to sign with"):
        publish(builder, matrix)
    matrix.write_text(f'remotes = ["nowhere"]\n{MATRIX}')
    with pytest.raises(UsageError, match="There is no remote 'nowhere'"):
        publish(builder, matrix)
    (tmp_path / "dist").mkdir(exist_ok=True)
    (tmp_path / "dist" / REPORT_NAME).write_text("my notes")
    with pytest.raises(UsageError, match="is not a report of flashdepot publish"):
        publish(builder, matrix, "--no-push")
    assert (tmp_path / "dist" / REPORT_NAME).read_text() == "my notes"
    assert not list(tmp_path.glob("dist/*.whl"))
