"""The client: words as keywords, results that read well, and errors instead of tracebacks."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import flashdepot
from flashdepot import Client
from flashdepot.errors import ConsentError, FlashdepotError, UsageError
from flashdepot.resolve.facts import NamedFacts
from support.tools import posix

RECORD = Path(__file__).parents[1] / "doctor" / "records" / "ubuntu-24.04-h100.json"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    monkeypatch.delenv("FLASHDEPOT_BUILD")
    return Client(depot=tmp_path / "depot", host=RECORD)


def test_it_is_exported_and_takes_every_fact_by_its_option() -> None:
    assert flashdepot.Client is Client
    assert set(NamedFacts.__struct_fields__) <= set(inspect.signature(Client.__init__).parameters)


@posix("nvcc that flashdepot could start")
def test_a_long_build_needs_a_yes_and_a_keyword_says_it(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ConsentError, match="To compile: 72 kernels"):
        client.get(arch="8.0")
    with pytest.raises(FlashdepotError) as caught:
        Client(depot=tmp_path / "depot", host=RECORD, build="always").get(arch=8.0)
    assert not isinstance(caught.value, ConsentError), "it continued to fetch the compiler"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.get(archs="90"), "'archs' is nothing that a library has.*Did you mean 'arch'"),
        (lambda c: c.check("nothing.whl"), "nothing.whl cannot be read"),
        (lambda c: c.check(["nothing.whl"]), "nothing.whl cannot be read"),
        (lambda c: c.doctor("fly"), "'fly' is not an intention"),
        (lambda c: c.install(), "cannot be changed"),
        (lambda _: Client(build="perhaps"), "expected never, ask, always"),
        (lambda _: Client(host="nowhere.json").environment, "There is no host record nowhere.json"),
        (lambda _: Client(gpu="RTX").environment, "RTX"),
    ],
)
def test_what_is_wrong_is_said(client: Client, call: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call(client)


def test_an_environment_can_be_described_and_answers_fit_on_a_line(tmp_path: Path) -> None:
    described = Client(depot=tmp_path, host=RECORD, torch="2.9", python_tag="3.13", gpu="9.0", driver="580")
    assert described.environment.origin_of("driver") == "--driver"
    plan = described.resolve()
    for shown in (
        described,
        described.environment,
        plan,
        plan.chosen,
        plan.near_misses[0].reason,
    ):
        assert len(repr(shown)) < 200
    assert described.explain("nothing of this is a failure").findings == ()


def test_warnings_are_heard(tmp_path: Path) -> None:
    client = Client(depot=tmp_path)
    with pytest.warns(UserWarning, match="something is damaged"):
        client._events.warn("something is damaged")
