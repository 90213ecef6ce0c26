"""Untrusted source tries to read what is not its own, or to reach the network, while it is compiled."""

import os
import runpy
import shutil
import socket
import sys
import threading
from pathlib import Path

import pytest

from flashdepot import process
from flashdepot.build.engine import BuildOutcome, Engine
from flashdepot.build.inputs import PlaceNames
from flashdepot.build.local import LocalExecutor, confined_environment
from flashdepot.depot import Depot
from flashdepot.errors import CompileError
from flashdepot.events import BuildProgress
from flashdepot.model.limits import Limits
from flashdepot.model.recipe import Action
from flashdepot.process.confinement import UNCONFINED, Confinement, Visible, confined, confinement_here, works
from flashdepot.process.run import run
from support.recipes import TOOLS, make_recipe

SECRET = "a-secret-of-the-user"  # noqa: S105  (that is what it is called)
GXX = shutil.which("g++")
PYTHON = str(Path(sys.executable).resolve())

pytestmark = pytest.mark.skipif(sys.platform != "linux" or GXX is None, reason="needs Linux and g++")


@pytest.fixture(params=[Confinement.LANDLOCK, Confinement.BUBBLEWRAP])
def by(request: pytest.FixtureRequest) -> Confinement:
    if not works(request.param):
        pytest.skip("this system does not allow it")
    return request.param  # type: ignore[no-any-return]


class House:
    """A home with a secret in it, a source tree next to it, and a depot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder / "home" / "key"
        self.tree = folder / "tree"
        self.secret.parent.mkdir()
        self.secret.write_text(f'"{SECRET}"\n')
        self.tree.mkdir()

    def compile(self, text: str, by: Confinement, *, compiler: str = str(GXX)) -> BuildOutcome:
        (self.tree / "a.cpp").write_text(text)
        # What is run may be Python, as it is for a kernel of FlashAttention-4.
        arguments = ("{cxx}", "-I", "{tree}/a.cpp") if compiler == PYTHON else ("{cxx}",)
        action = Action("a", "tree", "a.cpp", arguments, TOOLS)
        depot = Depot(self.folder / f"depot-{by.name}")
        environment = {"PATH": os.environ["PATH"], "TOKEN": SECRET, "HOME": str(self.folder)}
        environment = confined_environment(environment, action.variables) if by is not Confinement.NONE else environment
        with depot.workspace() as work:
            places = PlaceNames((("tree", self.tree),))
            executor = LocalExecutor(places, {"cxx": compiler}, environment, Limits(jobs=1), work, confinement=by)
            return Engine(depot, make_recipe(), executor, {}, BuildProgress(), work).run([action])

    def leaks(self, by: Confinement) -> bool:
        depot = self.folder / f"depot-{by.name}"
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
def test_a_file_of_the_users_does_not_get_into_an_object(house, by, attack) -> None:
    (house.tree / "linked").symlink_to(house.secret)
    text = ATTACKS[attack].replace("{secret}", str(house.secret)).replace("{quoted}", f'"{house.secret}"')
    house.compile(text, Confinement.NONE)
    assert house.leaks(Confinement.NONE), "without confinement the attack succeeds"
    with pytest.raises(CompileError):
        house.compile(text, by)
    assert not house.leaks(by)


def test_an_honest_source_gives_the_same_bytes_confined(house, by) -> None:
    (house.tree / "own.h").write_text("#include <vector>\n")
    text = '#include "own.h"\nint size() { return static_cast<int>(std::vector<int>(3).size()); }\n'
    objects = [house.compile(text, how).actions["a"].object.digest for how in (Confinement.NONE, by)]
    assert objects[0] == objects[1]


CALLS_HOME = """
import socket, sys
with socket.socket(socket.AF_INET, {kind}) as connection:
    connection.connect(("127.0.0.1", {port}))
    connection.send(b"stolen")
sys.exit("it was sent")
"""


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_compiler_that_was_taken_over_reaches_no_server(house, by, kind) -> None:
    """Not even one of this machine."""
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
            house.compile(text, Confinement.NONE, compiler=PYTHON)
        listener.join(30)
        assert heard.is_set()


def a_compiler(house: House, script: str) -> str:
    program = house.folder / "bin" / "compiler"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\nexit 1\n")
    program.chmod(0o755)
    return str(program)


def test_a_compiler_writes_only_into_its_own_folder(house, by) -> None:
    program = a_compiler(house, f"echo planted > {house.tree}/planted\necho planted > {house.secret}")
    with pytest.raises(CompileError):
        house.compile("", by, compiler=program)
    assert not (house.tree / "planted").exists()
    assert SECRET in house.secret.read_text()


def test_a_compiler_does_not_see_the_variables_that_it_does_not_need(house, by) -> None:
    program = a_compiler(house, "/usr/bin/env\ncat /proc/self/environ /proc/*/environ")
    for how, leaks in ((by, False), (Confinement.NONE, True)):
        with pytest.raises(CompileError):
            house.compile("", how, compiler=program)
        assert house.leaks(how) == leaks


REACHES = {
    "mode": "os.chmod(seen, 0o777)",
    "mode of an open file": "os.fchmod(os.open(seen, os.O_RDONLY), 0o777)",
    "mode by a link": "os.symlink(seen, own + '/link'); os.chmod(own + '/link', 0o777)",
    "owner": "os.chown(seen, os.getuid() + 1, -1)",
    "times": "os.utime(seen, (1, 1))",
    "attribute": "os.setxattr(seen, 'user.planted', b'1')",
    "path socket": "call(socket.SOCK_STREAM, path)",
    "datagram to a path": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'stolen', path)",
    "abstract socket": "call(socket.SOCK_STREAM, abstract)",
    "socket of io_uring": "kernel(425, 8, ctypes.create_string_buffer(120))",
    "session's keys": "kernel({'x86_64': 250, 'aarch64': 219}[os.uname().machine], 0, -3, 0)",
    "shared memory": "kernel({'x86_64': 29, 'aarch64': 194}[os.uname().machine], 7, 64, 0o1600)",
    "namespace": "libc.unshare(0x10000000) == 0 or failed()",
    "clone into a namespace": "kernel({'x86_64': 56, 'aarch64': 220}[os.uname().machine], 0x10000011, 0, 0, 0, 0)",
    "the parent's memory": "libc.ptrace(16, os.getppid(), 0, 0) == 0 or failed()",
    "device": "os.mknod(own + '/disk', 0o60600, os.makedev(1, 0)); open(own + '/disk', 'rb')",
    "counters": "kernel({'x86_64': 298, 'aarch64': 241}[os.uname().machine], ctypes.create_string_buffer(112), 0, -1, -1, 0)",
}

REACHING = """
import ctypes, os, socket, sys
seen, path, abstract, own = {seen!r}, {path!r}, {abstract!r}, os.environ["TMPDIR"]
libc = ctypes.CDLL(None, use_errno=True)
def failed():
    raise OSError(ctypes.get_errno(), "refused")
def kernel(*numbers):
    if libc.syscall(*numbers) < 0:
        failed()
def call(kind, address):
    with socket.socket(socket.AF_UNIX, kind) as connection:
        connection.connect(address)
        connection.send(b"stolen")
try:
    {attack}
except OSError as error:
    sys.exit(f"it was refused: {{error}}")
print("it was done")
sys.exit(1)
"""


def reach(house: House, by: Confinement, attack: str, said: str) -> None:
    """Compile with a compiler that makes an attempt, next to sockets that listen; it ends with what it says."""
    seen, path, abstract = house.tree / "seen", house.tree / "socket", f"\0{house.folder}"
    seen.write_text("kept")
    words = {"seen": str(seen), "path": str(path), "abstract": abstract, "attack": REACHES[attack]}
    kind = socket.SOCK_DGRAM if attack.startswith("datagram") else socket.SOCK_STREAM
    with socket.socket(socket.AF_UNIX, kind) as server, socket.socket(socket.AF_UNIX) as hidden:
        server.bind(str(path))
        hidden.bind(abstract)
        for each in (server, hidden) if kind == socket.SOCK_STREAM else (hidden,):
            each.listen()
        before = seen.stat()
        with pytest.raises(CompileError, match=said):
            house.compile(REACHING.format(**words), by, compiler=PYTHON)
    if by is not Confinement.NONE:
        after = seen.stat()
        assert [*after[:7], after.st_mtime_ns] == [*before[:7], before.st_mtime_ns]
        assert os.listxattr(seen) == []


@pytest.mark.parametrize("attack", REACHES)
def test_a_compiler_that_was_taken_over_changes_and_reaches_nothing(house, by, attack) -> None:
    reach(house, by, attack, "it was refused")


@pytest.mark.parametrize(
    "attack", [name for name in REACHES if name.startswith(("mode", "times", "path", "datagram", "abs"))]
)
def test_such_a_compiler_would_reach_them_unconfined(house, attack) -> None:
    reach(house, Confinement.NONE, attack, "it was done")


def test_a_link_in_a_folder_that_is_seen_stops_nothing(tmp_path, by) -> None:
    """As the Python of a virtual environment."""
    for name in ("bin", "own", "hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "hidden" / "python").write_text("")
    (tmp_path / "bin" / "python").symlink_to(tmp_path / "hidden" / "python")
    view = Visible((tmp_path / "bin", tmp_path / "bin" / "python", tmp_path / "bin"), (tmp_path / "own",))
    script = f"test -w {tmp_path}/own && ! touch {tmp_path}/bin/x 2>/dev/null && echo seen"
    done = run(confined(("/bin/sh", "-c", script), tmp_path / "own", view, by))
    assert done.stdout == "seen\n", done.output


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_kernel_takes_the_filter_of_every_cpu(machine) -> None:
    code = runpy.run_path(str(Path(process.__file__).with_name("confine.py")))["seccomp_filter"](machine)
    steps = [code[at : at + 8] for at in range(0, len(code), 8)]
    assert len(code) % 8 == 0
    assert 100 < len(steps) < 4096
    for at, step in enumerate(steps):
        kind, yes, no = int.from_bytes(step[:2], "little"), step[2], step[3]
        assert kind != 0x06 or at == len(steps) - 1 or yes == no == 0
        assert at + 1 + max(yes, no) < len(steps) or kind == 0x06


def test_where_nothing_confines_that_is_what_the_user_hears() -> None:
    assert "not at all" in str(Confinement.NONE)


def test_what_a_confined_compiler_costs_is_known(house, by) -> None:
    """The next build plans its memory by it."""
    (run,) = house.compile("#include <regex>\nstd::regex r;", by).actions.values()
    assert run.cpu_seconds > 0
    assert run.peak_rss > 50e6


@pytest.mark.parametrize("value", ["", "0", "1"])
def test_who_trusts_a_source_can_lift_it(monkeypatch, value) -> None:
    monkeypatch.setenv(UNCONFINED, value)
    assert value != "1" or confinement_here() is Confinement.NONE
    assert value == "1" or (confinement_here() is Confinement.NONE) == (
        not any(map(works, (Confinement.LANDLOCK, Confinement.BUBBLEWRAP)))
    )
