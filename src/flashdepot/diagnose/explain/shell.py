"""What commands meet where the failed one ran: a Python and its installer, programs, a CUDA toolkit, variables.

A command presupposes some of them. What each presupposes, whether it is there, and how it is written so that it runs as it
is printed, is decided here and nowhere else.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flashdepot.diagnose.explain.command import code_of, for_windows, is_command
from flashdepot.diagnose.explain.match import RuleOutcome
from flashdepot.diagnose.explain.releases import IndexPages
from flashdepot.diagnose.explain.requested import Requested
from flashdepot.diagnose.explain.steps import commands_of
from flashdepot.files.disk import text_of
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Platform

_SYSTEMS = {
    "linux": Platform("linux", "x86_64"),
    "windows": Platform("windows", "x86_64"),
    "macOS": Platform("darwin", "aarch64"),
    **dict.fromkeys(("linux_aarch64", "Jetson"), Platform("linux", "aarch64")),
}
"""The systems that logs name; of another Linux only that it is one is known."""
_SMALL = 1 << 26
"""Bytes that a disk has less of when it is full to an installer."""
_LONGEST = 1 << 22
"""Bytes of the longest file that is read: requirements, settings and scripts are shorter."""


class Files:
    """The files of the machine that the advice is for, from the working folder on; none where that is another one."""

    def __init__(self, *, here: bool, folder: str = "") -> None:
        self.here, self.folder = here, folder

    def below(self, folder: str) -> Files:
        """The same, where what is in a folder comes first: the failed command went there."""
        return Files(here=self.here, folder=folder) if folder and self.find(glob.escape(folder)) else self

    def find(self, pattern: str) -> Sequence[str]:
        """The paths that fit a pattern of :mod:`glob`, in which ``~`` and variables may stand, sorted."""
        place = os.path.expandvars(os.path.expanduser(pattern))  # noqa: PTH111  (a pattern)
        within = [f"{self.folder}/{place}"] if self.folder and not Path(place).is_absolute() else []
        found = (path for where in (*within, place) for path in sorted(glob.glob(where)))  # noqa: PTH207  (as it is spelled, also relative)
        return [*dict.fromkeys(found)] if self.here else ()

    def is_full(self, path: str) -> bool:
        """Whether the disk of a folder has no room for a package."""
        with contextlib.suppress(OSError):
            return self.here and shutil.disk_usage(path).free < _SMALL
        return False

    def text(self, path: str) -> str:
        """What is in a file; empty where it cannot be read, is too long, or is a device: a log may name any."""
        places = (Path(self.folder) / path, Path(path)) if self.here else ()
        return next((text_of(place) for place in places if place.is_file() and place.stat().st_size <= _LONGEST), "")

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables that are set there and steer installers, builds and compilers."""
        return {name: value for name, value in os.environ.items() if self.here and _OF_TOOLS.fullmatch(name)}


NOWHERE = Files(here=False)

_ACTIVE = frozenset({"VIRTUAL_ENV", "CONDA_PREFIX"})
_NEAREST = "the nearest "
"""How a record says by what it found its Python, for an environment that is active, and for one that uv takes by itself."""

_OF_A_BUILD = re.compile(r"pip-build-env|builds-v0|/archive-v0/|/pip-")
"""Environments that an installer makes for one build."""
_NAMED = re.compile(r"(?:^| )((?:\S*/)?bin)/[a-z][\w.-]*(?= |$)")
_PORTABLE = ("python_embeded/python.exe", "python_embeded/bin/python")
"""The Python of ComfyUI's portable folder, which has no other."""
_OPTION = re.compile(r" (?:--python|-p)[ =](\S*/\S+)")
_SYSTEM = re.compile(r"\buv pip .*--system\b")
_MAKES = re.compile(r"\b(?:uv venv|python3? -m venv|conda create)\b|-m ensurepip")
"""What makes the environment that the rest of the command is for."""
_PIP = re.compile(
    r"(?:\bpython[\d.]* -m )?(?<![\w/.-])(?:uv )?pip (cache remove|cache purge|install|uninstall|list|check|show|freeze)\b"
)
_PYTHON = re.compile(r"(?<![\w/.>='-])python(?= -)")
_MANAGES = re.compile(r"(?:[A-Z]\w*=\S* )*(uv|poetry|pdm|pipenv) (?:sync|run|lock|add|install|update)\b")
_ADDS = {"uv": "add", "poetry": "add", "pdm": "add", "pipenv": "install"}
"""Tools by whose files an environment is what it is, and the command of each that adds a package."""
_WORD = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s;&|'\"]+")
_PIP_WORDS = re.compile(rf"{_PIP.pattern}((?: (?:{_WORD.pattern}))*)")
_WITH_INDEX = ("--index-url", "--extra-index-url", "-i")
_KEPT_BY_UV = ("-r", "--no-build-isolation")
_ANEW = {"-U": "--upgrade-package", "--upgrade": "--upgrade-package", "--force-reinstall": "--reinstall-package"}
_NAME = re.compile(r"[A-Za-z][\w-]*")
BRINGS_CUDA = re.compile(r"\bpip install (?:-\S+ )*'?(?:cuda-toolkit|nvidia-)")
"""A pip command that brings parts of CUDA, which is for every tool's logs."""
_START = re.compile(r"(?:^|(?:&&|;|\|) +)(?:[A-Z][A-Z0-9_]*=\S* |sudo )*(?P<program>[a-z][\w-]*)(?= |$)")
_PROGRAMS = frozenset({"conda", "apt", "dnf", "docker"})
"""Programs that a command may begin with and that are there or not; a record says the place of each."""
_OF_RELEASE = re.compile(r"(--python|poetry env use) (3\.\d+)\b")
_REPLACES = re.compile(r"sed -i(?:\.bak)? 's/([\w-]+)/[^ ]* (\S+)")
_GCC = re.compile(r"\b(gcc|g\+\+)-(\d+)")
_OLDEST_GCC = {"=bookworm": 11, "=trixie": 12}
"""The oldest GCC that a release of Debian has, by what /etc/os-release says of it (Debian's lists of packages, 2026-11-28)."""
_SET_FOR_ONE = re.compile(r"(^|&& )((?:[A-Z][A-Z0-9_]*=\S+ )*[A-Z][A-Z0-9_]*=\S+) (?=(?:pip|uv|cargo|cmake) )")
"""What is set for a command only: the command that failed needs it as well."""
_IMPORTS_TORCH = re.compile(
    r"\bpip install (?:[^\s;&|]+ )*(?:flash-attn|mamba-ssm|causal-conv1d)(?![\w-])[^\s;&|]*(?: [^\s;&|]+)*"
)
"""What builds a package whose setup.py imports torch."""
OF_CUDA = frozenset(
    {"CUDACXX", "NVCC", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CUDAToolkit_ROOT"}
)
"""Variables that say where CUDA's compiler is."""
_HOME = re.compile(r"\bCUDA_HOME=(/[\w./-]+)|(/usr/local/cuda[\w.-]*)")
_OF_TOOLS = re.compile(
    r"(?!CONDA_(?:EXE|PREFIX|PYTHON|SHLVL|DEFAULT|PROMPT)|MAMBA_EXE|UV$)(?:PIP|UV|POETRY|CONDA|MAMBA|CARGO|RUST\w*|CC|CXX|CUDA\w*|NVCC"
    r"|CMAKE|MAKE\w*|HF|TORCH\w*|TRITON|GIT|SSL|CURL|REQUESTS|PKG_CONFIG|BINDGEN|LIB\w*|LD|PYTHON\w*|XDG|TMPDIR|npm_config|PROTOC"
    r"|[A-Z]\w*(?:FLAGS|_DIR|_ROOT|_HOME|_LIB|_INCLUDE))(?:_\w+)?|(?i:\w+_proxy)"
)
LINK_CANDLE = "link candle"
"""What a command says that is for a project of candle only."""
_CANDLE_CRATE = 'name = "candle-flash-attn'
_OUTSIDE_PYTHON = frozenset({"cargo", "cmake", "compiler"})
"""Tools whose users may have no Python environment for a toolkit of PyPI's wheels."""


class UserShell:
    """Where the failed command ran, as far as the log, the host and its files tell; ``windows`` says that cmd.exe is its shell.

    ``pages`` is what an index has of what was ``asked`` for.
    """

    def __init__(self, outcome: RuleOutcome, host: HostRecord | None, files: Files) -> None:
        commands = [step.command for step in outcome.steps if step.command]
        folder = next((step.folder for step in reversed(outcome.steps) if step.command), "")
        self.host, self.files = host, files.below(folder)
        self.asked: Sequence[Requested] = ()
        self.pages = IndexPages()
        self.command = commands[-1] if commands else ""
        self.uv = any(step.installer == "uv" for step in outcome.steps)
        self.variables = {**(host.variables if host else {}), **files.variables}
        self.active = bool(host and host.python and host.python.found_by in _ACTIVE)
        self.tools = {name.upper() for step in outcome.steps for name in (step.tool, step.installer)}
        self.cmake = any(step.tool in ("cmake", "ninja") for step in outcome.steps)
        self.prefix, self.cpu_builds = outcome.facts.prefix, outcome.facts.cpu_builds
        known = outcome.facts.os or outcome.facts.prefix
        self.python = self._python(self.prefix)
        by_exe = self.python.endswith(".exe")
        self.windows = outcome.windows or by_exe or bool(host and host.platform.system == "windows" and not known)
        self.elsewhere = bool(known and not self.windows)  # on another system than Windows, as the log says
        here = host.platform if host else _SYSTEMS["linux"]
        if known or outcome.windows:
            here = _SYSTEMS.get(outcome.facts.os, here if here.system == "linux" else _SYSTEMS["linux"])
        self.platform = _SYSTEMS["windows"] if self.windows else here
        self.minor = self._minor(outcome.facts.python)
        asked = next((found[1] for part in commands_of(self.command) if (found := _MANAGES.match(part.command))), "")
        managed = self.tools & {name.upper() for name in _ADDS} if not self.command else set()
        named = asked or next((name for name in _ADDS if name.upper() in managed and name != "uv"), "")
        self.manager = named if named != "uv" or not files.here or self.files.find("pyproject.toml") else ""
        """The tool whose files say what is in the environment, and whose next run takes away what they do not say; empty for none."""

    def _python(self, prefix: str) -> str:
        """The interpreter that the failed command or the log names, where it is there and not the active one; else empty."""
        named = [*_OPTION.findall(self.command), *(f"{folder}/python" for folder in _NAMED.findall(self.command))]
        named += [f"{prefix}/bin/python"] if prefix and not _OF_A_BUILD.search(prefix) else []
        named += [] if self.command else _PORTABLE
        here = (path for name in named for path in (name, f"{name}/bin/python") if "python" in path.rpartition("/")[2])
        found = next((path for path in here if self.files.find(glob.escape(path))), "")
        python = self.host.python if self.host else None
        active = python and self.active and Path.cwd() / Path(found).parent == python.prefix / "bin"
        return "" if active or found.startswith(("/usr/bin/", "/usr/local/bin/")) else found

    def _minor(self, said: str) -> int:
        """The minor release of Python 3 that failed: the log's, or that of the environment here; 0 where it is not known."""
        python, made = self.host.python if self.host else None, ""
        if "POETRY" in self.tools:  # what it says of Python is of its own
            said, python, made = "", None, self.files.text(".venv/pyvenv.cfg")
        named = f"{said} {made} {next(iter(self.sites), '') if self.python else ''}"
        if found := re.search(r"\b(?:python)?3\.(\d+)", named):
            return int(found[1])
        return python.version.numbers[1] if python else 0

    @property
    def room(self) -> str:
        """The folder of the disk that has the most room, of those that are known here."""
        disks = [disk for disk in (self.host.disks if self.host else ()) if disk.use != "depot"]
        return max(disks, key=lambda disk: disk.free).path if disks else ""

    @property
    def sites(self) -> Iterator[str]:
        """The folders with the packages of that Python, or of the one that is meant here."""
        if self.python:
            prefix = glob.escape(str(Path(self.python).parent.parent))
            yield from self.files.find(f"{prefix}/lib/python3*/site-packages")
        elif self.host and self.host.python:
            yield str(self.host.python.purelib)

    def installed(self, name: str) -> str:
        """The release of a package in that environment; empty where it is not there, or nothing can be read."""
        spelled = re.sub(r"[-_.]+", "[-_.]", name)
        found = (path for site in self.sites for path in self.files.find(f"{glob.escape(site)}/{spelled}-*.dist-info"))
        return next(found, "").rpartition("/")[2].removesuffix(".dist-info").rpartition("-")[2]

    def of_wheels(self, pattern: str) -> str:
        """A file of NVIDIA's wheels that are installed there; empty where none has it."""
        found = (path for site in self.sites for path in self.files.find(f"{glob.escape(site)}/nvidia/{pattern}"))
        return next(found, "")

    @property
    def python_headers(self) -> str:
        """The folder of the headers of the Python that is meant here; empty where it is not there."""
        python = self.host.python if self.host and not self.python else None
        places = (python.base_prefix, python.prefix, Path("/usr")) if python else ()
        release = "{}.{}".format(*python.version.numbers[:2]) if python else ""
        found = (
            path
            for place in places
            for path in self.files.find(f"{glob.escape(str(place))}/include/python{release}*/Python.h")
        )
        return next(found, "").removesuffix("/Python.h")

    def has(self, program: str) -> bool | None:
        """Whether a program is on ``PATH``; ``None`` where it is not known."""
        programs = self.host.programs if self.host else None
        return None if programs is None else program in programs

    def lacks(self, command: str) -> bool:
        """Whether it begins with a program or is for a project that this folder does not have."""
        code = code_of(command)
        started = {found["program"] for found in _START.finditer(code)}
        if LINK_CANDLE in code and (lock := self.files.text("Cargo.lock")) and _CANDLE_CRATE not in lock:
            return True
        if self.files.here and (edited := _REPLACES.fullmatch(code)) and edited[1] not in self.files.text(edited[2]):
            return True
        return any(self.has(name) is False for name in started & _PROGRAMS)

    def names_nothing(self, command: str) -> bool:
        """Whether it names the folder of a toolkit that is not on this machine."""
        homes = [found[0] or found[1] for found in _HOME.findall(code_of(command))] if self.files.here else []
        return any(not self.files.find(glob.escape(home)) for home in homes)

    def carried(self, command: str, tool: str) -> str:
        """The command as it runs here: by the Python, the installer and the rights that are there."""
        code = code_of(command)
        remark = command[len(code) :]
        if self.has("sudo") is False:
            code = code.replace("sudo ", "")
        if "apt install g++-" in code:
            code = _GCC.sub(self._gcc, code)
        if not _MAKES.search(code) and is_command(code) and (_PIP.search(code) or _PYTHON.search(code)):
            code = self._in_environment(code, tool)
        code = _OF_RELEASE.sub(self._interpreter, code)
        if code.startswith("git lfs ") and self.has("git-lfs") is False:
            code = f"{'' if self.has('sudo') is False else 'sudo '}apt install git-lfs && {code}"
        if code.startswith("uv ") and self.has("uv") is False:
            code = f"pip install uv && {code}"
        if code.startswith("rustup ") and not self.files.find("/usr/bin/rustup"):
            code = f"{self._rustup()}{code}"
        code = _IMPORTS_TORCH.sub(r"\g<0> --no-build-isolation", code) if "no-build-iso" not in code else code
        if self.command:
            code = _SET_FOR_ONE.sub(r"\1export \2 && ", code)
        return self.spelled(code + remark)

    def spelled(self, command: str) -> str:
        """A command as its shell takes it."""
        return for_windows(command) if self.windows else command

    def _gcc(self, release: re.Match[str]) -> str:
        """A release of GCC, or the oldest of the system's own packages where that is newer."""
        oldest = next((n for name, n in _OLDEST_GCC.items() if name in self.files.text("/etc/os-release")), 0)
        return f"{release[1]}-{max(int(release[2]), oldest)}"

    def _rustup(self) -> str:
        """What goes before a command with rustup, which a distribution's cargo does not bring."""
        kept = ("$CARGO_HOME/bin", "~/.cargo/bin", "/usr/local/cargo/bin", "/root/.cargo/bin")
        folder = next((place for place in kept if self.files.find(f"{place}/rustup")), "")
        if folder or not self.files.here:
            return f"export PATH={folder.replace('~', '$HOME')}:$PATH; " if folder else ""
        return "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y && . $HOME/.cargo/env; "

    def _interpreter(self, release: re.Match[str]) -> str:
        """A release of Python, or its interpreter where pyenv hides it from uv, which would download another."""
        kept = (f"{place}/versions/{release[2]}.*/bin/python{release[2]}" for place in ("$PYENV_ROOT", "~/.pyenv"))
        found = next((path for pattern in kept for path in self.files.find(pattern)), "")
        return f"{release[1]} {found}" if found and not self.windows else release[0]

    def _in_environment(self, code: str, tool: str) -> str:
        """A command with pip or Python, for the environment that is meant, by the installer that is there."""
        python = self.host.python if self.host else None
        by_uv = _by(code, "uv pip")
        if (
            tool in _OUTSIDE_PYTHON
            and BRINGS_CUDA.search(code)
            and (tool == "cargo" or not (self.active or self.python))
        ):
            make, by = ("uv venv .cuda", by_uv) if self.has("uv") else ("python3 -m venv .cuda", code)
            return f"{make} && . .cuda/bin/activate && {by}"
        if self.manager:
            into = f"cd {shlex.quote(self.files.folder)} && " if self.files.folder else ""
            return into + _of_project(code, self.manager)
        if self.python:
            name = shlex.quote(self.python)
            place = glob.escape(str(Path(self.python).parent))
            there = (
                f"{place}/pip",
                f"{place}/Scripts/pip.exe",
                f"{place}/Lib/site-packages/pip",
                f"{place}/../lib/python3*/site-packages/pip",
            )
            has_pip = self.python.endswith(".exe") or any(map(self.files.find, there))
            code = _by(code, f"{name} -m pip") if has_pip else _by(code, "uv pip", f" --python {name}")
            return _PYTHON.sub(name, code)
        if self.active and python:
            return code if "pip" in python.installers else by_uv
        if python is None and self.host is None:
            return by_uv if self.uv else code
        if not self.uv and self.has("pip") is not False:
            return code
        if " --system" in self.command:
            return _by(code, "uv pip", " --system")
        if python and python.found_by.startswith(_NEAREST):
            return by_uv
        return f"uv venv --allow-existing && . .venv/bin/activate && {by_uv}" if by_uv != code else code


def _of_project(code: str, manager: str) -> str:
    """A command with pip as one that changes the project's own files: what is installed without them is gone with the next run."""
    uv = manager == "uv"

    def put(found: re.Match[str]) -> str:
        verb, words = found[1], _WORD.findall(found[2])
        if verb.startswith("cache"):
            return "uv cache clean" if uv else f"{manager} run pip {verb}{found[2]}"
        if verb not in ("install", "uninstall"):
            return f"uv pip {verb}{found[2]}" if uv else f"{manager} run pip {verb}{found[2]}"
        if verb == "uninstall":
            names = [word for word in words if not word.startswith("-")]
            return "" if _PIP.search(code, found.end()) else " ".join([manager, "remove", *names])
        added, rest = [manager, _ADDS[manager]], iter(words)
        newer = next((option for word in words if (option := _ANEW.get(word))), "")
        for word in rest:
            if word in _WITH_INDEX:
                index = next(rest, "")
                added += ["--index", index] if uv else []
            elif word in _KEPT_BY_UV or not word.startswith("-"):
                added += [word] if uv or not word.startswith("-") else []
                added += [newer, word] if uv and newer and _NAME.fullmatch(word) else []
        return " ".join(added)

    done = _PIP_WORDS.sub(put, code)
    return _PYTHON.sub(f"{manager} run python", re.sub(r"(^|&& |; )\s*(?:;|&&) ", r"\1", done))


def _by(code: str, how: str, option: str = "") -> str:
    """A command whose pip is another: ``uv pip`` has no cache of its own."""

    def put(found: re.Match[str]) -> str:
        if found[1].startswith("cache") and how.startswith("uv"):
            return "uv cache clean"
        return f"{how} {found[1]}{option}"

    return _PIP.sub(put, code)
