"""A log as the story of its commands: what ran, in which phase, and for which package.

Pure and linear: lines that begin a step are found by one expression in a whole piece of a log, and only those are read.
The words of the tools are data: ``steps.toml``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import re2

from flashdepot.diagnose.explain.lines import Chunk, begin_of_line, end_of_line
from flashdepot.diagnose.explain.pattern import PIECES, Pattern
from flashdepot.diagnose.explain.requested import BUILT_BY_UV, FILES, FROM_INDEX, package_in, requirements_in
from flashdepot.files.documents import read_toml
from flashdepot.model.wheel import canonical_name

_KEPT = 200
"""Steps of a log that are shown: of a longer one the first and the last halves of as many."""

_READ = 1000
"""Lines of a piece of a log that are read for a step; a hostile one has nothing but lines that begin one."""

COMMAND_KEPT = 400
"""Characters of a command that are kept; a longer one is not said again."""
_MEMORY = 1 << 24

_INSTALLERS = frozenset({"pip", "uv", "poetry", "pdm", "pipenv", "pixi", "conda", "cargo", "maturin"})
OF_PYTHON = frozenset({"pip", "uv", "poetry", "pdm", "pipenv"})
_PROMPT = (
    r"(?:(?:\(\S+\) ?)*(?:\[?[\w.-]+@[\w.-]+[:~ ][^$#%>]*|[~/][\w./~-]* (?:\([\w./-]+\) )?)?[$#%\x{276f}\x{279c}] ?"
    r"|(?:\(\S+\) ?)*(?:PS )?[A-Z]:\\[^>]*> ?|!|\+ "
    r"|(?:Step \d+/\d+ : |\[\s*(?:[\w-]+ )?\d+/\d+\] )?RUN (?:--\S+ )*|Run |Running command )"
)
_CD = r"(?:cd [\w./~-]+ (?:&&|;) )?"
"""What takes a shell into the folder of a command, where it then stays."""
_INTO = re.compile(r"\bcd ([\w./~-]+) (?:&&|;) $")
_BARE = r"(?:sudo (?:-\S+ )*|[A-Z_][A-Z0-9_]*=\S* |time )*(?:\S*[/\\])?(?:python[\d.]*(?:\.exe)? -m )?"
_FENCE = b"```"
"""What a passage of output ends with, where a person quotes it: what follows is of another command, or nobody's."""
_TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(
    r"File \"(?P<file>[^\"]{1,400})\", line (?P<line>\d+)(?:, in (?P<function>\S{1,100}))?|^(?P<rich>\S{1,400}\.py):\d+ in (?P<name>\S{1,100})"
)
_FRAME_BUILDS = re.compile(
    r"pip-build-env|build_meta|pyproject_hooks|pep517|_in_process|setuptools[\\/]|[\\/]setup\.py|^setup\.py|builds-v0"
    r"|BuildExtension|<pip-setuptools-caller>|distutils|torch[\\/]utils[\\/]cpp_extension|skbuild|hatchling|poetry[\\/]core"
)
_FRAME_INSTALLS = re.compile(r"[\\/]pip[\\/]_(?:internal|vendor)[\\/]")
_FRAME_PACKAGE = re.compile(
    r"(?:site|dist)-packages[\\/](?P<package>[A-Za-z]\w*)(?:[\\/]|\.py)|custom_nodes[\\/](?P<node>[\w.-]+)"
)
_COMPILERS = ("g++", "gcc", "c++", "clang++")
NODES = "custom_nodes/"
"""The folder of ComfyUI that has its nodes, which are cloned and not installed; it stands before their names."""
_ENDS = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|NotFound|Unavailable|Failure)\b")
_OF_TRACEBACKS = (
    re.escape(_TRACEBACK),
    "^Exception ignored in",
    r"^```",
    r'^File "',
    r"^\S+\.py:\d+ in \w",
    r"^(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|NotFound|Unavailable|Failure)\b",
)
_IMPORTS = re.compile(r"(?:ImportError|ModuleNotFoundError)\b|.*(?:\.so\b|DLL load failed|undefined symbol)")


class Step(msgspec.Struct):
    """One command or one part of its work: where it is in the log, what it does, and with which package.

    It grows while the log is read. ``installer`` is the tool that began the work: pip's build of a package calls ninja.
    ``well`` says that the tool reached its goal, ``folder`` into which folder the command's line goes first.
    """

    tool: str
    phase: str
    first: int
    last: int
    command: str = ""
    package: str = ""
    version: str = ""
    installer: str = ""
    well: bool = False
    folder: str = ""

    def to_json(self) -> dict[str, Any]:
        """The step in the document of ``--json``; what is not known is empty."""
        return {**msgspec.structs.asdict(self), "lines": [self.first, self.last]}


class Scene(msgspec.Struct, frozen=True):
    """The steps of one piece of a log, by the byte at which each begins."""

    begins: tuple[int, ...]
    steps: tuple[Step | None, ...]

    def at(self, position: int) -> Step | None:
        """The step that the byte is in, or ``None`` where the log has not said what runs."""
        return self.steps[bisect_right(self.begins, position) - 1]


class Story:
    """Cuts a log into steps, one piece after the other."""

    def __init__(self) -> None:
        self._step: Step | None = None
        self._early: list[Step] = []
        self._late: list[Step] = []
        self._installing = Step("", "", 0, 0)
        self._decided = self._first = self._ignored = False
        self._end = 0
        self.asked: dict[str, str] = {}
        """What installers asked an index for: names of projects, and the bounds of their releases."""

    def begin(self, command: str) -> None:
        """What is known to have written the log that follows."""
        if (step := _command(command)) is not None:
            self._begin(step, 1)

    def read(self, chunk: Chunk) -> Scene:
        """The steps of the next piece."""
        if chunk.first == 1 and b"\n" not in chunk.text.strip():
            self.begin(_in_sentence(chunk.line(0, _SENTENCE_READ)))
        begins, steps = [0], [self._step]
        counted, until = 0, 0
        for start, line in islice(_lines_that_begin(chunk), _READ):
            counted, until = counted + chunk.text.count(b"\n", until, start), start
            before, begin = self._step, start
            if chunk.text.startswith(_FENCE, start):
                self._leave(chunk.first + counted - chunk.added_before(start))
            elif self._take(line, chunk.first + counted - chunk.added_before(start)) and before is None and self._step:
                begin = max(begins[-1], chunk.text.rfind(b"\n\n", 0, start) + 1)
                self._step.first = chunk.number(begin)
            if self._step is not before:
                begins.append(begin)
                steps.append(self._step)
        self._end = chunk.number(len(chunk.text)) - chunk.text.endswith(b"\n")
        if self._step is not None:
            self._step.last = self._end
        return Scene(tuple(begins), tuple(steps))

    @property
    def steps(self) -> tuple[Step, ...]:
        """What was read so far, without what was printed because Python ignored it."""
        return tuple(step for step in (*self._early, *self._late) if step.phase != "ignored")

    def _take(self, line: str, number: int) -> bool:
        """What a line that may begin a step says, and whether it sums up the lines before it."""
        if line.startswith("Exception ignored in"):
            self._append(Step("python", "ignored", number, number), number)
            self._ignored = True
        elif _TRACEBACK in line:
            self._begin_traceback(number)
        elif found := _FRAME.search(line):
            self._frame(found, number)
        elif _ENDS.match(line):
            self._end_traceback(line)
        elif (command := _command(line)) is not None:
            self._begin(command, number)
        elif (mark := _mark(line)) is not None:
            step, back = mark
            now = self._step
            self._ask(FROM_INDEX.match(line) or (BUILT_BY_UV.match(line) if step.tool == "uv" else None))
            if back and now is not None and now.tool == "python" and not (now.command or now.installer):
                now.phase, now.installer, now.package, now.version = step.phase, step.tool, step.package, step.version
            if step.well:
                self._end_well(step.tool)
            self._begin(step, number)
            return back
        return False

    def _end_well(self, tool: str) -> None:
        """Say of the tool's steps, back to the command that it began with, that it reached its goal."""
        for step in reversed((*self._early, *self._late)):
            if tool not in (step.tool, step.installer):
                return
            step.well = True
            if step.command:
                return

    def _ask(self, found: re.Match[str] | None) -> None:
        """Keep what an installer asks an index for; a bound that is said later is the one that was found."""
        if (
            found
            and len(self.asked) < _KEPT
            and not found["package"].endswith(FILES)
            and "@" not in (found["spec"] or "")
        ):
            version = found["version"] or ""
            spec = (found["spec"] or "").rstrip(",;") or (f"=={version}" if version else "")
            name = canonical_name(found["package"])
            self.asked[name] = spec or self.asked.get(name, "")

    def _begin(self, step: Step, number: int) -> None:
        working, now = self._installing, self._step
        if step.command and step.phase == "resolve" and step.tool in OF_PYTHON:
            for found in requirements_in(step.command[step.command.find(step.tool) :]):
                self._ask(found)
        if step.tool in _INSTALLERS:
            step.installer = step.tool
        elif not step.command and now is not None:
            step.installer = now.installer
        if not step.package and (step.installer == working.installer or not working.installer) and not step.command:
            step.package, step.version = working.package, working.version
        if step.package and now and not now.package and now.installer == step.installer and now.phase == step.phase:
            now.package, now.version = step.package, step.version
        if step.installer and step.phase:
            self._installing = step
        same = now and not step.command and not now.command
        if same and now and (now.tool, now.phase, now.package) == (step.tool, step.phase, step.package):
            return
        self._append(step, number)

    def _leave(self, number: int) -> None:
        """From here on it is not known what runs."""
        if self._step is not None:
            self._step.last = max(self._step.first, number - 1)
            self._step = None

    def _append(self, step: Step, number: int) -> None:
        self._leave(number)
        step.first = step.last = number
        self._step = step if step.phase or step.command else None
        if self._step is None:
            self._installing = Step("", "", 0, 0)
            return
        kept = self._early if len(self._early) < _KEPT // 2 else self._late
        kept.append(step)
        del self._late[: -_KEPT // 2]

    def _begin_traceback(self, number: int) -> None:
        now = self._step
        if self._ignored:
            return
        inside = now is not None and now.phase in ("build", "link", "resolve", "fetch") and bool(now.installer)
        step = Step("python", now.phase if inside and now else "run", number, number)
        if inside and now:
            step.package, step.version, step.installer = now.package, now.version, now.installer
        self._decided = self._first = inside
        self._append(step, number)

    def _frame(self, found: re.Match[str], number: int) -> None:
        if self._step is None or self._step.tool != "python" or self._step.command:
            self._begin_traceback(number)  # its head was cut off
        step = self._step
        if step is None or self._ignored:
            return
        file = found["file"] or found["rich"]
        first, self._first = self._first, False
        # Of "<string>", a build backend runs a whole setup.py, and "python -c" a line, or several that call packages.
        script = file == "<string>" and found["line"] != "1"
        if script or _FRAME_BUILDS.search(file):
            step.phase, self._decided = "build", not script or bool(step.installer)
            step.package, step.version = self._installing.package or step.package, self._installing.version
            step.installer = step.installer or self._installing.installer
        elif first and file.endswith(".py") and not _FRAME_INSTALLS.search(file):
            step.phase, step.package, step.version, step.installer = "run", "", "", ""  # no build begins so
            self._decided = False
        elif _FRAME_INSTALLS.search(file) and not self._decided:
            step.phase, step.installer, self._decided = "resolve", "pip", True
        elif not self._decided:
            package = _FRAME_PACKAGE.search(file)
            name = (package["package"] or package["node"]) if package else ""
            name = f"{NODES}{name}" if package and package["node"] else name
            step.phase = step.phase if file.startswith("<") else "run"
            if name and (name != "torch" or not step.package):
                step.package = name

    def _end_traceback(self, line: str) -> None:
        step, self._ignored = self._step, False
        running = step is not None and step.tool == "python" and step.phase == "run"
        if step is not None and running and not self._decided and _IMPORTS.match(line):
            step.phase = "import"


def _lines_that_begin(chunk: Chunk) -> Iterator[tuple[int, str]]:
    """Each line of a piece that may begin a step or belong to a traceback: where it begins, and without its prefixes."""
    end, text, begins = 0, chunk.text, _marks().begins
    while (found := begins.search(text, end)) is not None:
        stop = end_of_line(text, found.end())
        start = begin_of_line(text, found.end())
        yield start, chunk.line(start, min(stop, start + 1000))
        end = stop
        if end >= len(text):
            return


class _Marks(msgspec.Struct, frozen=True):
    begins: Pattern
    which: Any
    rows: tuple[tuple[str, str, Pattern, bool, bool], ...]
    prompt: Pattern
    commands: tuple[tuple[str, Pattern], ...]


@cache
def _marks() -> _Marks:
    data = read_toml(Path(__file__).with_name("steps.toml"))
    rows = [
        (group["tool"], row["phase"], row["pattern"], row.get("back", False), row.get("well", False))
        for group in data["mark"]
        for row in group["marks"]
    ]
    commands = [(row["phase"], row["pattern"]) for row in data["command"]]
    prompt = rf"^(?:{_PROMPT}{_CD})?(?P<command>{_BARE}(?:{'|'.join(_nameless(pattern) for _, pattern in commands)}).*)"
    which = re2.Set.SearchSet(Pattern.parse("x", memory=_MEMORY).options)
    parsed = tuple((tool, phase, Pattern.parse(text, stripped=True), *says) for tool, phase, text, *says in rows)
    for _, _, pattern, *_ in parsed:
        which.Add(pattern.regex)
    which.Compile()
    whole = "|".join(_anywhere(_nameless(pattern)) for pattern in (*_OF_TRACEBACKS, prompt, *(row[2] for row in rows)))
    return _Marks(
        Pattern.parse(f"^(?:{whole})", memory=_MEMORY),
        which,
        parsed,
        Pattern.parse(prompt, stripped=True),
        tuple((phase, Pattern.parse(pattern)) for phase, pattern in commands),
    )


_OF_A_FOLDER = re.compile(r" @ file:")
"""Says that what is built is a folder of the user's: an index may have another package of its name, which is a stranger's."""


def _anywhere(pattern: str) -> str:
    return PIECES.sub(lambda piece: piece[0].removeprefix("^"), pattern)


def _nameless(pattern: str) -> str:
    """A pattern that only says whether it matches: in one of many, groups cost time."""
    return re.sub(r"\?P<\w+>", "?:", pattern)


def _mark(line: str) -> tuple[Step, bool] | None:
    text = line.encode()
    for index in sorted(_marks().which.Match(text) or ()):
        tool, phase, pattern, back, well = _marks().rows[index]
        if found := pattern.search(text):
            said = _said(found.groupdict())
            name = "" if _OF_A_FOLDER.search(line) else said.get("package", "")
            return Step(tool, phase, 0, 0, "", name, said.get("version", "").removeprefix("=="), well=well), back
    return None


_USAGE, _SUMS_UP = " [options]", " did not run successfully."
"""What a command has in a program's help, and in what pip says of one that it ran itself."""
_IN_PROSE = re.compile(
    r"[:.,]? (?:(?i:fail\w*|stuck|hangs?|hanging|freez\w+|takes?|taking|took|gives?|giving|throws?|errors?|says|does|doesn't|is|was|are"
    r"|but|and|when|while|after|before|then|because|on|at|in|with|without|for|even|always|never|not|it|I|exits?|returns?|results?)\b|- )"
)
"""Where a sentence that begins with a command leaves it."""


def _command(line: str) -> Step | None:
    text = line.encode()
    if not (found := _marks().prompt.search(text)):
        return None
    command = _said(found.groupdict())["command"]
    if _USAGE in command or command.endswith(_SUMS_UP):
        return None
    into = _INTO.search(line[: line.find(command)])
    folder = into[1] if into else ""
    bare = re.sub(r"^(?:sudo |time |[A-Z_]+=\S* )*(?:\S*[/\\])?(?:python[\d.]*(?:\.exe)? -m )?", "", command)
    for phase, pattern in _marks().commands:
        if (kind := pattern.search(bare.encode())) is None:
            continue
        tool = next(iter(_said(kind.groupdict()).values()), "python")
        package, version = "", ""
        if phase == "resolve":
            command = _IN_PROSE.split(command, maxsplit=1)[0]
            package, version = package_in(_IN_PROSE.split(bare, maxsplit=1)[0])
        tool = {"pip3": "pip", "mamba": "conda", "micromamba": "conda"}.get(
            tool, "compiler" if tool in _COMPILERS else tool
        )
        return Step(tool, phase, 0, 0, command.strip()[:COMMAND_KEPT], package, version, folder=folder)
    return None


_DURING = re.compile(
    r"(?i)(?:\b(?:while|when|during|on) (?:\w+ )?(?:pip3? install|uv (?:pip install|add))|(?<!after )(?<!before )\b(?:installing|building|compiling))"
    r" (?P<package>[a-z]\w*(?:[-_]\w+)+)"
)
_BY_UV = re.compile(r"(?i)\buv (?:pip|add)\b|\b(?:by|in|using|via|with) uv\b")
_SENTENCE_READ = 1000
"""Bytes of the only line of a log that are read for what its writer did."""


def _in_sentence(line: str) -> str:
    """The installation in which something failed, of a person's one sentence about it, as its command; or nothing."""
    found = _DURING.search(line)
    return f"{'uv pip' if _BY_UV.search(line) else 'pip'} install {found['package']}" if found else ""


_BETWEEN = re.compile(r"\s*(?:&&|\|\|?|;|(?:\d?>>?(?:&\d)?|&>)\s*\S*)(?:\s+|$)")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def commands_of(line: str) -> Sequence[Step]:
    """The commands of a line of a shell that are of a tool, without what its output goes to."""
    hidden = _QUOTED.sub(lambda found: "x" * len(found[0]), line)
    ends = [0, *(place for found in _BETWEEN.finditer(hidden) for place in found.span()), len(line)]
    parts = (line[begin:end] for begin, end in zip(ends[::2], ends[1::2], strict=True))
    return [step for part in parts if (step := _command(part))]


def _said(groups: Mapping[str, bytes | None]) -> dict[str, str]:
    return {name: value.decode(errors="replace") for name, value in groups.items() if value}
