"""Real virtual environments with a torch that imports and computes nothing."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from flashdepot.cli.app import run
from support import forge
from support.own_world import makes_links
from support.programs import compile_recorder
from support.tools import write_files

TORCH = """\
import types
from torch import autograd, library
from torch.version import __version__
Tensor = float16 = bfloat16 = float32 = int32 = int64 = uint8 = empty = zeros = empty_like = None
_C = types.SimpleNamespace()
cuda = types.SimpleNamespace(is_available=lambda: SEES_GPU)
ops = types.SimpleNamespace(flash_attn=None)
SEES_GPU = False
"""


SET_DEVICE = "_ZN3c104cuda9SetDeviceEab"
"""A symbol that torch 2.8 and newer have."""

SET_DEVICE_BEFORE_2_8 = "_ZN3c104cuda9SetDeviceEa"

PYTHON = os.environ.get("FLASHDEPOT_TEST_PYTHON", sys.executable)
"""The interpreter that environments are made of. To try another: FLASHDEPOT_TEST_PYTHON=PATH pytest tests/install"""

_ASK_TAG = (
    "import sys; print('cp{0}{1}-cp{0}{1}-'.format(*sys.version_info) + "
    + repr("win_amd64" if os.name == "nt" else "linux_x86_64")
    + ")"
)
TAG = subprocess.run([PYTHON, "-c", _ASK_TAG], capture_output=True, text=True, check=True).stdout.strip()
"""That of wheels for that interpreter."""


def make_environment(root: Path, *, with_pip: bool) -> None:
    command = [
        PYTHON,
        "-m",
        "venv",
        *(["--symlinks"] if makes_links() else []),
        *([] if with_pip else ["--without-pip"]),
        str(root),
    ]
    subprocess.run(command, check=True)


class Venv:
    """A virtual environment and the way to look into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.python = root / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        self.site = next(root.rglob("site-packages"))

    def add(self, name: str, version: str, files: Mapping[str, str], *, record: bool = True) -> None:
        """Put a distribution there as an installer would."""
        files = {
            **files,
            f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        }
        if record:
            listed = "".join(f"{place},,\n" for place in files)
            files[f"{name}-{version}.dist-info/RECORD"] = f"{listed}{name}-{version}.dist-info/RECORD,,\n"
        write_files(self.site, files)

    def imports(self, name: str) -> str:
        """Import a module in a new process and return its file."""
        code = f"import {name}; print({name}.__file__)"
        done = subprocess.run([self.python, "-I", "-B", "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def contents(self) -> dict[str, tuple[int, bytes | str]]:
        """Everything in the environment: names, modes, the targets of links, the bytes of files."""
        seen: dict[str, tuple[int, bytes | str]] = {}
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if path.is_symlink():
                seen[name] = (0, str(path.readlink()))
            else:
                seen[name] = (path.stat().st_mode, b"" if path.is_dir() else path.read_bytes())
        return seen


@pytest.fixture
def bare_venv(tmp_path: Path) -> Venv:
    """An environment without torch and without pip."""
    make_environment(tmp_path / "venv", with_pip=False)
    return Venv(tmp_path / "venv")


@pytest.fixture(params=["uv", "pip"])
def installer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let only this installer be found."""
    scripts = str(Path(sys.executable).parent)
    uv = shutil.which("uv", path=os.pathsep.join([scripts, os.environ["PATH"]]))
    if request.param == "uv" and uv is None:
        pytest.skip("needs uv, which is in the dependency group 'test'")
    path = os.pathsep.join([*([str(Path(uv).parent)] if uv and request.param == "uv" else []), "/usr/bin", "/bin"])
    monkeypatch.setenv("PATH", path)
    return str(request.param)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """Environments with torch, with pip or without, made once: making one with pip takes seconds."""

    @cache
    def make(with_pip: bool) -> Path:
        root = tmp_path_factory.mktemp("template") / "venv"
        make_environment(root, with_pip=with_pip)
        add_torch(Venv(root))
        return root

    return make


@pytest.fixture
def environment(tmp_path: Path, installer: str, template: Callable[[bool], Path]) -> Venv:
    """An environment with torch, and pip when it is pip that installs."""
    shutil.copytree(template(installer == "pip"), tmp_path / "venv", symlinks=True)
    return Venv(tmp_path / "venv")


def add_torch(made: Venv, version: str = "2.9.1") -> None:
    """A torch that imports, with the one library whose symbols a check reads."""
    made.add(
        "torch",
        version,
        {
            "torch/__init__.py": TORCH,
            "torch/version.py": f"__version__ = '{version}'\ncuda = '12.8'\nhip = None\n",
            "torch/library.py": "",
            "torch/autograd/__init__.py": "class Base: apply = None\nclass Function(Base): _backward_cls = Base\n",
            "torch/autograd/function.py": "def once_differentiable(backward): return backward\n",
            "torch/nn/__init__.py": "",
            "torch/nn/functional.py": "pad = None\n",
        },
    )
    (made.site / "torch" / "lib").mkdir()
    if os.name == "posix":
        forge.shared_library(made.site / "torch" / "lib", f"void {SET_DEVICE}(void) {{}}", name="libc10.so")
    made.add("einops", "0.8.1", {"einops/__init__.py": ""})


OFFICIAL = {
    "flash_attn/__init__.py": "official = True\n",
    "flash_attn/only_there.py": "",
    "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so": "machine code\n",
    "hopper/__init__.py": "",
}


def add_official(environment: Venv, *, record: bool = True) -> None:
    """Another flash-attn, as its own wheel would have left it, with what others put next to it since."""
    environment.add("flash_attn", "2.7.0", OFFICIAL, record=record)
    for package in ("flash_attn", "hopper"):
        cache = environment.site / package / "__pycache__" / f"__init__.{sys.implementation.cache_tag}.pyc"
        cache.parent.mkdir()
        cache.write_bytes(b"compiled")
    (environment.site / "flash_attn" / "__init__.py").chmod(0o600)


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_recorder(tmp_path_factory.mktemp("recorder"))


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def command(
    tmp_path: Path, environment: Venv, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Run `flashdepot install` for the environment, without waiting between tries."""
    monkeypatch.setattr("flashdepot.net.errors.WAITS", (0.0, 0.0))
    monkeypatch.chdir(tmp_path)

    def install(*arguments: str) -> Ran:
        words = ["install", "--python", str(environment.python), "--depot", str(tmp_path / "depot"), *arguments]
        monkeypatch.setattr(sys, "argv", ["flashdepot", *words])
        code = run()
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    before = signal.getsignal(signal.SIGTERM)
    yield install
    signal.signal(signal.SIGTERM, before)
