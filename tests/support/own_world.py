"""A world of the tests' own: empty homes, no settings, no keys. Whatever reaches for the user's fails its test.

The environment is set before anything is imported, so every child process lives in that world too. An audit hook refuses
to open what is the user's, and to start a child that could find the user's home by itself. On Windows it skips a test
that makes a symbolic link where this user can make none, or starts a program that is not there.
"""

import atexit
import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

_OURS = ("FLASHDEPOT_TEST", "FLASHDEPOT_FUZZ", "FLASHDEPOT_FLIPS", "FLASHDEPOT_KILL")
_USERS = ("FLASHDEPOT_", "XDG_", "GIT_", "CARGO", "RUSTUP", "AWS_", "GITHUB_", "SSH_", "PIP_CONFIG", "UV_CONFIG")
_CERTIFICATES = ("GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "GIT_EXEC_PATH", "RUSTUP_AUTO_INSTALL")
_INDEX = ("PIP_", "UV_")
_INDEX_TOO = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "NETRC", "VIRTUAL_ENV", "CONDA_PREFIX")
_HELD = "FLASHDEPOT_TEST_OFF_LIMITS"
_PRIVATE = (".config", ".cache/flashdepot", ".netrc", ".ssh", ".aws", ".gnupg", ".gitconfig", ".pip", ".cargo/config.toml",
            ".cargo/credentials.toml", ".docker", ".pypirc")  # fmt: skip

_HOMES = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "WIN_PD_OVERRIDE_APPDATA", "WIN_PD_OVERRIDE_LOCAL_APPDATA")
"""What names the user's folders: on Windows too, where platformdirs would ask the system."""

CONFIG = "WIN_PD_OVERRIDE_LOCAL_APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME"
"""What names the folder of the user's settings."""

_LOOK_UP = ("python", "flashdepot", "git", "pip", "uv", "cargo")

_TESTS = Path(__file__).parents[1]
_numbers = itertools.count()
_root = Path()
_touched: list[str] = []
refused_programs: frozenset[str] = frozenset()
"""The names of programs that the running test may not start."""


def enter() -> None:
    """Leave the user's world, once a process; the workers of a run inherit what its first process saw of it."""
    global _root
    if _HELD not in os.environ:
        _add_rust()
        os.environ[_HELD] = os.pathsep.join(_off_limits(os.environ))
    for name in list(os.environ):
        if name.startswith(_USERS) and not name.startswith(_OURS) and name not in _CERTIFICATES:
            del os.environ[name]
    _root, owner = Path(tempfile.mkdtemp(prefix="flashdepot-tests-")), os.getpid()
    _root.chmod(0o755)
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(_root, ignore_errors=True))
    os.environ.update(home_variables(new_home()))
    # No test asks NVIDIA's server for a compiler: those of its archives start a server of that layout.
    os.environ["FLASHDEPOT_CUDA_ARCHIVES"] = ""
    sys.addaudithook(_Watch(os.environ[_HELD].split(os.pathsep)))


def new_home() -> Path:
    """An empty folder, where no other test has been."""
    folder = _root / str(next(_numbers))
    folder.mkdir()
    return folder


def home_variables(home: Path) -> dict[str, str]:
    """The variables by which programs find a home, on every system."""
    return dict.fromkeys(_HOMES if os.name == "nt" else _HOMES[:1], str(home))


def index_variables() -> list[str]:
    """The variables that say how this machine reaches a package index."""
    return [
        name for name in os.environ if name.startswith(_INDEX) or name in _INDEX_TOO or name.lower().endswith("_proxy")
    ]


def users_home() -> Path:
    """The home of the user who runs the tests, to be left untouched."""
    return Path(os.environ[_HELD].partition(os.pathsep)[0])


def touched() -> list[str]:
    """What was reached for since this was last asked."""
    said = _touched[:]
    _touched.clear()
    return said


def _off_limits(environment: Mapping[str, str]) -> list[str]:
    """The user's home itself, and then what in it, or elsewhere, is nobody's business."""
    home = Path(environment.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111
    private = [home / name for name in _PRIVATE]
    private += [Path(environment[name]) for name in ("XDG_CONFIG_HOME", "FLASHDEPOT_HOME") if environment.get(name)]
    private += [Path(environment[name], "flashdepot") for name in ("XDG_CACHE_HOME",) if environment.get(name)]
    return [str(home), *(str(path.absolute()) for path in private)]


def _add_rust() -> None:
    """Put the toolchain itself before rustup's stand-ins for it, which find it by what is in the user's home.

    rustup is not asked where it has no settings: it would write them.
    """
    if not Path(os.environ.get("RUSTUP_HOME") or Path.home() / ".rustup", "settings.toml").exists():
        return
    try:
        command = ["rustup", "which", "cargo"]
        quiet = {**os.environ, "RUSTUP_AUTO_INSTALL": "0"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, env=quiet)
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == 0:
        os.environ["PATH"] = os.pathsep.join([str(Path(done.stdout.strip()).parent), os.environ["PATH"]])


def _is_stand_in(program: Any, environment: Any) -> bool:
    """Whether a test has written the program itself."""
    path = (os.environ if environment is None else environment).get("PATH")
    found = shutil.which(os.fsdecode(program), path=path) or os.fsdecode(program)
    return Path(found).is_relative_to(tempfile.gettempdir())


@cache
def makes_links() -> bool:
    """Whether this user can make symbolic links. On Windows few can, and wine 8 makes none but says that it did."""
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OSError):
        Path(folder, "link").symlink_to("nowhere")
        return Path(folder, "link").is_symlink()
    return False


def _is_a_tests_own() -> bool:
    """Whether a test itself did what the audit hook sees, and not flashdepot or pytest."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals["__name__"] in {__name__, "pathlib", "subprocess"}:
        frame = frame.f_back
    return Path(frame.f_code.co_filename).is_relative_to(_TESTS)


class _Watch:
    """The audit hook. It runs at every open, so it decides by the beginning of a string."""

    def __init__(self, off_limits: list[str]) -> None:
        makes_links()
        self.home, *private = off_limits
        self.private = tuple(private)
        self.inside = tuple(path + os.sep for path in private)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.symlink", "os.link"}:
            for path in arguments[:2]:
                if isinstance(path, os.PathLike):
                    path = os.fspath(path)  # noqa: PLW2901
                if isinstance(path, str) and (path in self.private or path.startswith(self.inside)):
                    self.refuse(f"{event} of {path}, which is the user's")
            if event == "os.symlink" and not makes_links() and _is_a_tests_own():
                pytest.skip("needs symbolic links", allow_module_level=True)
        elif event == "subprocess.Popen":
            self.judge_start(*arguments)

    def judge_start(self, program: Any, words: Any, _folder: Any, environment: Any) -> None:
        if program is None:  # Windows finds it by the first word
            program = words[0] if isinstance(words, (list, tuple)) else words.split()[0]
        name = Path(os.fsdecode(program)).name
        if os.name == "nt" and name == program and not shutil.which(name) and _is_a_tests_own():
            pytest.skip(f"needs {name}", allow_module_level=True)
        home = (os.environ if environment is None else environment).get("HOME", "")
        # Without the variable these look the home up in the system; a Python that is isolated (-I) reads nothing there.
        looks = name.startswith(_LOOK_UP) and "-I" not in words
        if os.name == "posix" and (home == self.home or (looks and not home)):
            self.refuse(f"{words} was started with the user's home")
        if name in refused_programs and not _is_stand_in(program, environment):
            self.refuse(f"{name} was started by a test that is not marked slow (tests/support/tiers.py)")

    def refuse(self, what: str) -> None:
        _touched.append(what)
        raise AssertionError(f"tests live in a world of their own: {what}")
