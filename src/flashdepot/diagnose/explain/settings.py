"""Settings that are in force here and at fault: variables, lines of files, what CMake remembers; and how to take them back."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from flashdepot.diagnose.explain.command import code_of
from flashdepot.diagnose.explain.piece import Hit
from flashdepot.diagnose.explain.rules import RANKS
from flashdepot.diagnose.explain.shell import OF_CUDA, UserShell
from flashdepot.host.surroundings import PLACES

_UNSETS = re.compile(r"unset ((?:[A-Za-z_]+ )*[A-Za-z_]+)")
_MADE_LATER = re.compile(
    r"PIPX|PKGS|ENVS|BIN_DIR|STATE|DATA|TOOL_|INSTALL|CACHE|TARGET|OUTPUT|XDG|HF_|TRITON|EXTENSIONS|CARGO_HOME|RUSTUP_HOME|ENVIRONMENT|PREFIX"
)
"""Variables that may name a folder that is not there yet."""
_CONFIGS = {
    "PIP": ("$PIP_CONFIG_FILE", "$VIRTUAL_ENV/pip.conf", "*venv*/pip.conf", "$XDG_CONFIG_HOME/pip/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf"),
    "UV": ("$UV_CONFIG_FILE", "uv.toml", "pyproject.toml", "$XDG_CONFIG_HOME/uv/uv.toml", "~/.config/uv/uv.toml", "/etc/uv/uv.toml"),
    "CARGO": (".cargo/config.toml", "../.cargo/config.toml", "$CARGO_HOME/config.toml", "~/.cargo/config.toml"),
    "CONDA": ("$CONDARC", "~/.condarc", "~/.mambarc", "$CONDA_PREFIX/.condarc"),
    "npm": (".npmrc", "~/.npmrc"),
    "GIT": ("~/.gitconfig",),
}  # fmt: skip
"""Where tools keep what is also a variable, by how its name begins."""
_ENTRY = re.compile(r"\s*[\"']?([\w.-]+)[\"']?\s*[=:]\s*(\S.*?)\s*$")
_KEPT = re.compile(
    r"^CMAKE_(?:\w+_COMPILER|MAKE_PROGRAM|HOME_DIRECTORY|CACHEFILE_DIR|TOOLCHAIN_FILE):\w+=(/.*)$", re.MULTILINE
)
"""Paths that CMake takes from its cache and looks for no more."""
_OF_ANY = ("DIR", "DIRS", "HOME", "ROOT", "PATH", "FILE", "FLAGS", "LIB", "INCLUDE", "NO", "MAMBA")
"""Words of a variable's name that say nothing of what it is for."""
_BUILD_FOLDERS = ("CMakeCache.txt", "*/CMakeCache.txt", "*/*/CMakeCache.txt")

_BUNDLES = frozenset(name for name in PLACES if re.search("CERT|CA_BUNDLE|CAINFO", name))
"""Variables that name the certificates to trust: where one does not verify, the file that is there is of others."""
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
_REFUSED = re.compile(r"\b(?:must|invalid|unknown|unsupported|expected|not a valid)\b", re.IGNORECASE)
_SETS = re.compile(r"\s*(?:export |set )?([A-Z][A-Z0-9_]+)=[^;&|]*$")
"""A line of a script that sets a variable and does nothing else."""
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
_OFF = ("", "0", "false", "no", "off")
_ONE_WORD = re.compile(r"[\w+-]{5,}")
"""A value that, in quotes, is no other thing's: long enough, and not an address."""
_WRITTEN = frozenset({"disk-full", "permission-denied"})
"""Classes in which a path of the error that is below a folder that a setting names was chosen by that setting."""


class Settings:
    """What is set where the command failed, and which of it made the tool do what failed.

    :param said: the lines that state the error.
    :param hints: the lines in which the tool says what to do.
    """

    def __init__(self, shell: UserShell, hit: Hit | None, said: str, hints: str = "") -> None:
        self.shell, self.hit, self.said = shell, hit, said
        self.lines_said = f"{said} {hints}"
        self.flags = {flag for flag in _FLAG.findall(self.lines_said) if f"--{flag}" not in shell.command}

    def at_fault(self, command: str) -> Sequence[str]:
        """The variables that it unsets and that are set here; of those that name a place, only one that names none."""
        unset = _UNSETS.match(code_of(command))
        wrong = {*(self.shell.host.dangling if self.shell.host else ())}
        wrong |= _BUNDLES if "ertificate" in self.said else set()
        names = unset[1].split() if unset else ()
        return [name for name in names if name in self.shell.variables and (name not in PLACES or name in wrong)]

    def narrowed(self, command: str) -> str:
        """The command, which unsets variables, with only those that are at fault."""
        faults = self.at_fault(command)
        return _UNSETS.sub(f"unset {' '.join(faults)}", command, count=1) if faults else command

    def undone(self, advice: Iterable[str] = ()) -> str:
        """The command that takes back what is set here, by a variable or in a file, and made the tool do what failed; or empty.

        :param advice: commands for it: what variables they unset may stand in files as well.
        """
        stale, hit = self._stale_cache(), self.hit
        if faulty := self.faulty():
            code = " && ".join(filter(None, [f"unset {' '.join(faulty)}", code_of(stale)]))
            if hit and hit.rule.id == "disk-full" and (room := self.shell.room):
                code = f"export {' '.join(f'{name}={room}/{name.lower()}' for name in faulty)}"
            return f"{code}   # {', '.join(faulty)}: what is set there is at fault; then the same command"
        keys = {key for text in (*(hit.rule.fix if hit else ()), *advice) for key in _keys(text)}
        keys |= {(tool, flag) for tool in _CONFIGS for flag in self.flags if tool in self.shell.tools}
        for tool, place, number, line in self.lines():
            name, value = (found[1], found[2].strip("\"'")) if (found := _ENTRY.match(line)) else ("", line.strip(" -"))
            switched = (tool, name.lower()) in keys and not value.lower().startswith((*_OFF[1:], "/"))
            if switched or (Path(place).name != "pyproject.toml" and self._is_named(value)):
                lines = _entry_of(self.shell.files.text(place).splitlines(), number)
                return f"sed -i.bak {lines}d {shlex.quote(place)}   # {line.strip()}: this line of it is at fault; the old file stays as .bak"
        return stale or self._of_a_script()

    def _of_a_script(self) -> str:
        """The line of the user's own scripts that sets a variable which the error names as wrong."""
        named = {*_VARIABLE.findall(self.said)} if self.hit is None and _REFUSED.search(self.said) else set()
        for place in (
            path for pattern in ("*.sh", "*/*.sh", ".env", "*.bat") for path in self.shell.files.find(pattern) if named
        ):
            for number, line in enumerate(self.shell.files.text(place).splitlines(), 1):
                if (found := _SETS.match(line)) and found[1] in named:
                    return f"sed -i.bak {number}d {shlex.quote(place)}   # {line.strip()}: refused; the old file stays as .bak"
        return ""

    def lines(self) -> Iterator[tuple[str, str, int, str]]:
        """Each line of the files in which tools keep what is also a variable: the tool, the file, the line's number and itself."""
        files = self.shell.files
        for tool, places in _CONFIGS.items():
            for place in dict.fromkeys(path for pattern in places for path in files.find(pattern)):
                yield from (
                    (tool, place, number, line) for number, line in enumerate(files.text(place).splitlines(), 1)
                )

    def _stale_cache(self) -> str:
        """The command that removes a cache of CMake's which names what is gone; empty where none does."""
        files = self.shell.files
        asked = self.shell.cmake or "CMake" in self.said
        for place in (path for pattern in _BUILD_FOLDERS for path in files.find(pattern) if asked):
            folder, kept = shlex.quote(str(Path(place).parent)), _KEPT.findall(files.text(place))
            if gone := next((path for path in kept if not files.find(glob.escape(path))), ""):
                return f"rm -rf {folder}/CMakeCache.txt {folder}/CMakeFiles   # it remembers {gone}, which is gone; then configure again"
        return ""

    def faulty(self) -> Sequence[str]:
        """Variables that are set here and are what failed.

        The lines have their value or what it names, or the option that they stand for; or they name what is not there, or no toolkit.
        """
        shell, hit = self.shell, self.hit
        host, needs = shell.host, hit.rule.host if hit else ("toolkits",)
        gone = {*(host.dangling if host and (shell.cmake or not {"toolkits", "compilers"}.isdisjoint(needs)) else ())}
        if host and hit and "toolkits" in needs and hit.rule.rank == RANKS.index("missing-tool"):
            gone |= OF_CUDA.difference(toolkit.found_by for toolkit in host.toolkits)
        if hit is None:
            gone |= {name for name in shell.files.variables if self._names_nothing(name)}
        words = _words(hit.line.text) if hit else ()
        return [
            name
            for name, value in shell.variables.items()
            if name in gone
            or (value and not value.isdigit() and value.split()[0] in words)
            or self._is_named(value)
            or self._is_option(name, value)
        ]

    def _is_option(self, name: str, value: str) -> bool:
        """Whether a variable stands for an option that the lines name and the command has not."""
        tool, _, rest = name.lower().replace("_", "-").partition("-")
        rest = rest.removeprefix("net-")
        asked = tool.upper() in self.shell.tools and value.lower() not in _OFF
        return asked and any(rest == flag or rest.startswith(f"{flag}-") for flag in self.flags)

    def _names_nothing(self, name: str) -> bool:
        place, said = self.shell.variables[name], self.said.lower()
        if not any(word in said for word in name.lower().split("_") if word.upper() not in (*_CONFIGS, *_OF_ANY)):
            return False
        if _MADE_LATER.search(name) or not re.fullmatch(r"/[^\s:]+", place):
            return False
        return not self.shell.files.find(glob.escape(place))

    def _is_named(self, value: str) -> bool:
        """Whether the lines name a path, or the server of an address, that a setting names, or write below a folder of it."""
        said, words = self.said, _words(self.said)
        hosts = {urlsplit(part).hostname for part in value.split() if "://" in part} - {None}
        named = [part for part in value.split() if "/" in part.strip("/")]
        below = [f"{part.rstrip('/')}/" for part in named] if self.hit and self.hit.rule.id in _WRITTEN else []
        return bool(
            (" " in value and value in said)
            or (_ONE_WORD.fullmatch(value) and any(f"{quote}{value}{quote}" in said for quote in "'`\""))
            or any(part in words for part in named)
            or any(word.startswith(tuple(below)) for word in words)
            or any(host in words or f"{host}:" in said or f"'{host}'" in said for host in hosts)
        )


def _words(text: str) -> set[str]:
    return {word.strip(".,:;()[]") for word in re.split(r"[\s'\"`=]+", text)}


def _entry_of(lines: Sequence[str], number: int) -> str:
    """The lines of a file that go with one of them, for ``sed``: of an entry of a list of tables all, else only itself."""
    heads = [n for n, line in enumerate(lines, 1) if line.lstrip().startswith("[")]
    begin = max((n for n in heads if n < number), default=0)
    end = min((n - 1 for n in heads if n > number), default=len(lines))
    return f"{begin},{end}" if begin and lines[begin - 1].lstrip().startswith("[[") else str(number)


def _keys(text: str) -> Iterator[tuple[str, str]]:
    """What the variables that a command unsets are called in the files of their tools."""
    unset = _UNSETS.match(text)
    for tool, _, name in (variable.partition("_") for variable in (unset[1].split() if unset else ())):
        yield tool, name.lower().replace("_", "-")
        yield tool, name.lower().removeprefix("net_").replace("_", "-")
