"""The API: the client, the functions that a script calls, and the example as its reader runs it."""

import inspect
import io
import os
import sys
from pathlib import Path

import pytest

import flashdepot
from flashdepot import Client, __version__, api
from flashdepot.errors import CompileError, ConsentError, FlashdepotError, IncompatibleError, UsageError
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Platform
from flashdepot.resolve.facts import NamedFacts
from support.documents import ROOT
from support.tools import posix, run_program

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
def test_a_long_build_needs_a_yes_and_a_keyword_says_it(client, tmp_path) -> None:
    with pytest.raises(ConsentError, match="To compile: 72 kernels"):
        client.get(arch="8.0")
    with pytest.raises(FlashdepotError) as caught:
        Client(depot=tmp_path / "depot", host=RECORD, build="always").get(arch=8.0)
    assert not isinstance(caught.value, ConsentError), "it continued to fetch the compiler"


def test_what_a_compiler_said_is_not_lost_where_explain_cannot_read_it(client, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise CompileError("fwd_hdim64: the compiler ended with status 1", hint="The whole output: unit.log")

    for name in [name for name in sys.modules if name.startswith("flashdepot.diagnose.explain")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "re2", None)  # as in Python 3.15, for which it has no wheel
    monkeypatch.setattr("flashdepot.resolve.build.Making.make", fail)
    with pytest.raises(CompileError, match="fwd_hdim64: the compiler ended with status 1"):
        client.get(arch="8.0")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.get(archs="90"), "'archs' is not an option of a library.*Did you mean 'arch'"),
        (lambda c: c.check("nothing.whl"), "nothing.whl cannot be read"),
        (lambda c: c.check(["nothing.whl"]), "nothing.whl cannot be read"),
        (lambda c: c.doctor("fly"), "'fly' is not an intention"),
        (lambda c: c.install(), "nothing can be installed into it"),
        (lambda c: c.plan_install(), "nothing can be installed into it"),
        (lambda c: c.wheel(archs="90"), "'archs' is not an option of a library"),
        (lambda _: Client(build="perhaps"), "expected never, ask, always"),
        (lambda _: Client(host="nowhere.json").environment, "There is no host record nowhere.json"),
        (lambda _: Client(gpu="RTX").environment, "RTX"),
        (lambda _: Client(torch=2.10), "torch is 2.1, and a version is a text"),
        (lambda c: c.resolve(2.8), "version is 2.8, and a version is a text"),
        (lambda _: Client(jobs="4"), "jobs is '4'"),
        (lambda c: c.explain(io.StringIO("ImportError")), "open for text"),
        (lambda c: c.explain("build.log"), "build.log cannot be read"),
    ],
)
def test_what_is_wrong_is_said(client, call, said) -> None:
    with pytest.raises(UsageError, match=said):
        call(client)


def test_an_environment_can_be_described_and_answers_fit_on_a_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("flashdepot.host.tools.find_compilers", tuple)  # no compiler is asked its version
    described = Client(depot=tmp_path, host=RECORD, torch="2.9", python_tag="3.13", gpu="9.0", driver="580")
    assert described.environment.origin_of("driver") == "--driver"
    plan = described.resolve()
    for shown in (
        described,
        described.environment,
        plan,
        plan.chosen,
        plan.near_misses[0].reason,
        described.host(),
        described.plan(profile="quick", arch="9.0").forecast,
        described.explain("nothing of this is a failure"),
    ):
        assert len(repr(shown)) < 200


def test_numbers_and_names_are_taken_as_they_are_meant_and_a_log_by_text_path_or_file(tmp_path) -> None:
    described = Client(depot=tmp_path, host=RECORD, torch="2.8", python_tag="3.12", gpu=9.0, driver=580, memory="8GB")
    assert described.resolve(sources="official").chosen is not None
    line = "ImportError: libcudart.so.12: cannot open shared object file"
    (tmp_path / "log").write_text(line)
    for log in (line, str(tmp_path / "log"), tmp_path / "log", io.BytesIO(line.encode())):
        assert described.explain(log).findings[0].id == "shared-library-missing"


def test_warnings_are_heard_and_name_the_line_that_called(tmp_path) -> None:
    client = Client(depot=tmp_path)
    with pytest.warns(UserWarning, match="something is damaged") as heard:
        client._events.warn("something is damaged")
    assert heard[0].filename == __file__


QUICK = api.library_request(profile="quick", arch="80,90")


class PythonWarnings(api.Events):
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


def test_get_takes_what_is_stored_and_compiles_nothing(depot, quick_library) -> None:
    heard = PythonWarnings()
    got = api.get(QUICK, depot=depot, events=heard)
    assert (got.status, got.path, got.compiled) == ("hit", quick_library, 0)
    assert not heard.built


def test_link_finds_the_library_and_tells_which(depot, quick_library) -> None:
    heard = PythonWarnings()
    assert api.link(QUICK, depot=depot, events=heard).root == quick_library
    assert heard.notes == [f"Linking {quick_library}"]


def test_link_builds_nothing_unless_it_may(tmp_path) -> None:
    with pytest.raises(IncompatibleError, match=r"has no library for this\. It is empty"):
        api.link(QUICK, depot=api.open_depot(tmp_path))


def test_a_folder_and_a_request_contradict_each_other(tmp_path) -> None:
    with pytest.raises(UsageError, match="both were given"):
        api.link(QUICK, library=tmp_path, depot=api.Depot(tmp_path / "depot"))


def test_a_library_is_not_built_for_a_platform_that_is_not_a_target(tmp_path) -> None:
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
def test_every_function_is_callable_whatever_was_imported_before(name) -> None:
    from flashdepot.api import answers, environments, libraries, wheels  # noqa: F401, PLC0415

    assert callable(getattr(api, name))


@pytest.mark.nvcc
def test_the_example_links_the_stored_library_and_prints_what_it_holds(real_depot, quick_library) -> None:
    example = ROOT / "examples/api_get_link_call.py"
    environment = {**os.environ, "FLASHDEPOT_HOME": str(real_depot), "FLASHDEPOT_OFFLINE": "1"}
    built, *families = run_program([sys.executable, str(example), "80,90"], env=environment).splitlines()
    assert built.startswith(f"built by flashdepot {__version__} with CUDA ")
    assert families[-1].startswith("fa2 ")
    assert families[-1].endswith("SASS for sm_80 sm_90")
