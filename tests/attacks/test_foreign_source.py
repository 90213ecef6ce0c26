"""Source that nobody vouches for tries to read what is not its own, or to reach the network, while it is compiled."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from pathlib import Path

import pytest

from build.recipes import TOOLS, make_recipe
from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.estimates import History
from flashdepot.build.foreign import UNCONFINED, confined_environment, confines
from flashdepot.build.local import LocalExecutor
from flashdepot.build.names import PlaceNames
from flashdepot.depot import Depot
from flashdepot.errors import CompileError
from flashdepot.events import Silent
from flashdepot.model.action import Action
from flashdepot.model.limits import Limits
from flashdepot.system.confinement import Means, bubblewrap, landlock

SECRET = "a-secret-of-the-user"  # noqa: S105  (that is what it is called)
GXX = shutil.which("g++")
PYTHON = str(Path(sys.executable).resolve())

pytestmark = pytest.mark.skipif(sys.platform != "linux" or GXX is None, reason="needs Linux and g++")


@pytest.fixture(params=[landlock, bubblewrap], ids=lambda find: find.__name__)
def by(request: pytest.FixtureRequest) -> Means:
    found = request.param()
    if found is None:
        pytest.skip("this system does not allow it")
    return found  # type: ignore[no-any-return]


class House:
    """A home with a secret in it, a source tree beside it, and a depot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder / "home" / "key"
        self.tree = folder / "tree"
        self.secret.parent.mkdir()
        self.secret.write_text(f'"{SECRET}"\n')
        self.tree.mkdir()

    def compile(self, text: str, by: Means | None, *, compiler: str = str(GXX)) -> BuildOutcome:
        (self.tree / "a.cpp").write_text(text)
        # What is run may be Python, as it is for a kernel of FlashAttention-4.
        arguments = ("{cxx}", "-I", "{tree}/a.cpp") if compiler == PYTHON else ("{cxx}",)
        action = Action("a", "tree", "a.cpp", arguments, TOOLS)
        depot = Depot(self.folder / f"depot-{by.name if by else 'none'}")
        environment = {"PATH": os.environ["PATH"], "TOKEN": SECRET}
        environment = confined_environment(environment, action.variables) if by else environment
        with depot.workspace() as work:
            places = PlaceNames((("tree", self.tree),))
            executor = LocalExecutor(places, {"cxx": compiler}, environment, Limits(jobs=1), work, confinement=by)
            (work / "made").mkdir()
            history = History(self.folder / "estimates.json")
            return Engine(depot, make_recipe(), executor, {}, history, Silent(), work / "made").run([action])

    def leaks(self, by: Means | None) -> bool:
        depot = self.folder / f"depot-{by.name if by else 'none'}"
        return any(SECRET.encode() in path.read_bytes() for path in depot.rglob("*") if path.is_file())


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


ATTACKS = {
    "incbin": 'asm(".incbin \\"{secret}\\"");',
    "include": "const char* stolen =\n#include {quoted}\n;",
    "relative": 'asm(".incbin \\"../home/key\\"");',
    "link in the tree": 'asm(".incbin \\"linked\\"");',
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_file_of_the_users_does_not_get_into_an_object(house: House, by: Means, attack: str) -> None:
    (house.tree / "linked").symlink_to(house.secret)
    text = ATTACKS[attack].replace("{secret}", str(house.secret)).replace("{quoted}", f'"{house.secret}"')
    house.compile(text, None)
    assert house.leaks(None), "without confinement the attack succeeds"
    with pytest.raises(CompileError):
        house.compile(text, by)
    assert not house.leaks(by)


def test_an_honest_source_gives_the_same_bytes_confined(house: House, by: Means) -> None:
    (house.tree / "own.h").write_text("#include <vector>\n")
    text = '#include "own.h"\nint size() { return static_cast<int>(std::vector<int>(3).size()); }\n'
    objects = [house.compile(text, means).actions["a"].object.digest for means in (None, by)]
    assert objects[0] == objects[1]


CALLS_HOME = """
import socket, sys
with socket.socket(socket.AF_INET, {kind}) as connection:
    connection.connect(("127.0.0.1", {port}))
    connection.send(b"stolen")
sys.exit("it was sent")
"""


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_compiler_that_was_taken_over_reaches_no_server(house: House, by: Means, kind: socket.SocketKind) -> None:
    """Not even one of this machine."""
    if not (by.network or (by.tcp and kind == socket.SOCK_STREAM)):
        pytest.skip("this system does not allow to close the network")
    heard = threading.Event()
    with socket.socket(socket.AF_INET, kind) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        if kind == socket.SOCK_STREAM:
            server.listen()

        def listen() -> None:
            try:
                server.accept()[0].close() if kind == socket.SOCK_STREAM else server.recv(10)
            except OSError:
                return
            heard.set()

        listener = threading.Thread(target=listen)
        listener.start()
        text = CALLS_HOME.format(kind=int(kind), port=server.getsockname()[1])
        with pytest.raises(CompileError):
            house.compile(text, by, compiler=PYTHON)
        assert not heard.is_set()
        with pytest.raises(CompileError, match="it was sent"):
            house.compile(text, None, compiler=PYTHON)
        listener.join(30)
        assert heard.is_set()


def test_a_compiler_writes_into_its_own_folder_alone(house: House, by: Means) -> None:
    program = house.folder / "bin" / "compiler"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho planted > {house.tree}/planted\necho planted > {house.secret}\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(CompileError):
        house.compile("", by, compiler=str(program))
    assert not (house.tree / "planted").exists()
    assert SECRET in house.secret.read_text()


def test_a_compiler_does_not_see_the_variables_that_it_does_not_need(house: House, by: Means) -> None:
    program = house.folder / "bin" / "compiler"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n/usr/bin/env\ncat /proc/self/environ /proc/*/environ\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(CompileError):
        house.compile("", by, compiler=str(program))
    assert not house.leaks(by)
    with pytest.raises(CompileError):
        house.compile("", None, compiler=str(program))
    assert house.leaks(None)


def test_where_nothing_confines_that_is_what_the_user_hears() -> None:
    assert "not at all" in str(Means(""))
    assert "but the network" in str(Means("landlock"))


def test_what_a_confined_compiler_costs_is_known_or_said_to_be_unknown(house: House, by: Means) -> None:
    """The next build plans its memory by it."""
    (run,) = house.compile("#include <regex>\nstd::regex r;", by).actions.values()
    assert run.cpu_seconds > 0
    assert run.peak_rss > 50e6 if by.counts else run.peak_rss == 0


@pytest.mark.parametrize(("value", "expected"), [("", True), ("0", True), ("1", False)])
def test_who_trusts_a_source_can_lift_it(monkeypatch: pytest.MonkeyPatch, value: str, *, expected: bool) -> None:
    monkeypatch.setenv(UNCONFINED, value)
    assert confines() is expected
