"""The API as a script uses it, on a real library that is in the tests' depot."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashdepot import api
from flashdepot.errors import IncompatibleError, UsageError
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Platform

QUICK = api.library_request(profile="quick", arch="80,90")


class Heard(api.Events):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.built = False

    def note(self, text: str) -> None:
        self.notes.append(text)

    def building(self):  # type: ignore[no-untyped-def]
        self.built = True
        return super().building()


@pytest.fixture
def depot(real_depot: Path, quick_library: Path) -> api.Depot:
    return api.open_depot(real_depot)


def test_get_takes_what_is_stored_and_compiles_nothing(depot: api.Depot, quick_library: Path) -> None:
    heard = Heard()
    got = api.get(QUICK, depot=depot, events=heard)
    assert (got.status, got.path, got.compiled) == ("hit", quick_library, 0)
    assert not heard.built


def test_link_finds_the_library_and_tells_which(depot: api.Depot, quick_library: Path) -> None:
    heard = Heard()
    assert api.link(QUICK, depot=depot, events=heard).root == quick_library
    assert heard.notes == [f"Linking {quick_library}"]


def test_link_builds_nothing_unless_it_may(tmp_path: Path) -> None:
    with pytest.raises(IncompatibleError, match=r"has no library for this\. It is empty"):
        api.link(QUICK, depot=api.open_depot(tmp_path))


def test_a_folder_and_a_request_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both were given"):
        api.link(QUICK, library=tmp_path, depot=api.Depot(tmp_path / "depot"))


def test_a_library_is_not_built_for_a_platform_that_is_not_a_target(tmp_path: Path) -> None:
    elsewhere = HostRecord(
        platform=Platform("linux", "riscv64"),
        os_name="elsewhere",
        libc=None,
        cores=1,
        memory=1,
        driver=None,
        gpus=(),
        toolkits=(),
        compilers=(),
    )
    with pytest.raises(IncompatibleError, match="Nothing is built for linux-riscv64: there are linux-x86_64"):
        api.get(QUICK, host=elsewhere, depot=api.open_depot(tmp_path))


def test_the_modules_of_a_call_are_imported_by_that_call_only() -> None:
    assert set(api.__all__) == set(api._PLACES)
    with pytest.raises(AttributeError, match="no attribute 'banana'"):
        api.banana  # noqa: B018


@pytest.mark.parametrize("name", [n for n in api.__all__ if n.islower()])
def test_every_function_is_callable_whatever_was_imported_before(name: str) -> None:
    from flashdepot.api import answers, environments, libraries, wheels  # noqa: F401, PLC0415

    assert callable(getattr(api, name))
