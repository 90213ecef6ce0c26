"""From rules that a log answers to, to advice for this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.binary.elf import demangled
from flashdepot.diagnose.explain.advice import LINK, Advice
from flashdepot.diagnose.explain.edits import Edits
from flashdepot.diagnose.explain.hint import Line, commands_in, distinct, near
from flashdepot.diagnose.explain.machine import UNNAMED, MachineFacts, built_for, is_published
from flashdepot.diagnose.explain.match import RuleOutcome, summed_up_in
from flashdepot.diagnose.explain.piece import Hit
from flashdepot.diagnose.explain.releases import built_last
from flashdepot.diagnose.explain.rules import RANKS, load_classes
from flashdepot.diagnose.explain.settings import Settings
from flashdepot.diagnose.explain.shell import UserShell
from flashdepot.diagnose.explain.steps import Step
from flashdepot.diagnose.explain.supply import supply_of
from flashdepot.diagnose.explain.values import FOR_AMD, OURS, TOOLS, failed_command, fill, package_meant, shortened
from flashdepot.errors import MissingToolError
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Version

REPORT_SCHEMA = 2

_PLATFORMS = {
    **dict.fromkeys(("Windows", "Windows 10", "Windows 11", "win_amd64"), "win_amd64"),
    "linux_aarch64": "linux_aarch64",
    "macOS": "macosx_14_0_arm64",
}
"""The platforms of wheels that serve the systems which logs name; Linux is what is taken without one."""


class Cause(msgspec.Struct, frozen=True):
    """One class of failure that the log shows: where, why, what fixes it, and facts about it and this machine.

    ``certain`` is false where another class may be the cause as well.
    """

    id: str
    title: str
    rank: str
    line: Line
    why: str
    fix: tuple[str, ...]
    facts: tuple[str, ...]
    certain: bool = True

    def to_json(self) -> dict[str, Any]:
        """The finding in the document of ``--json``."""
        return {
            "class": self.id,
            "title": self.title,
            "certain": self.certain,
            "rank": self.rank,
            "line": self.line.number,
            "text": self.line.text,
            "why": self.why,
            "fix": list(self.fix),
            "facts": list(self.facts),
        }


class LogReport(msgspec.Struct, frozen=True):
    """What a log shows: findings with causes first, and the earliest lines that state an error.

    ``possible`` is what may be the cause where it is not certain, the likeliest first: what was found and what may stand behind it, or,
    where nothing was found, ``described``, of which only a person's words or a warning speak. ``steps`` is the log as the story of its commands, ``facts`` what it says of its machine.
    ``next_steps`` are commands and advice for a log whose cause is not certain, and empty otherwise. ``decided`` is false
    where every error line only says that something failed. ``hints`` are the lines next to the one that decides in which the
    tool itself says what would fix it. ``asked`` says of each project that a package index was asked for whether it is there, ``None``
    without an answer. ``sentence`` is true of a person's own words, which are all that there is.
    """

    findings: tuple[Cause, ...]
    errors: tuple[Line, ...]
    next_steps: tuple[str, ...] = ()
    described: tuple[Cause, ...] = ()
    possible: tuple[Cause, ...] = ()
    decided: bool = True
    hints: tuple[Line, ...] = ()
    steps: tuple[Step, ...] = ()
    facts: MachineFacts = msgspec.field(default_factory=MachineFacts)
    sentence: bool = False
    asked: Mapping[str, bool | None] = {}

    def __repr__(self) -> str:
        return f"<LogReport {self.status}: {', '.join(finding.id for finding in self.findings) or 'no cause'}>"

    @property
    def certain(self) -> bool:
        """Whether the first cause is shown by the log, and not only possible."""
        return bool(self.findings) and self.findings[0].certain

    @property
    def status(self) -> str:
        """What is known of the cause: explained, possible, only described by a person, or unknown."""
        if self.findings:
            return "explained" if self.certain else "possible"
        return "described" if self.described else "unknown"

    def each_possible(self) -> Iterator[tuple[Cause, str]]:
        """What may be the cause, the likeliest first, each with its first command that is not said already."""
        said: set[str] = set()
        for cause in self.possible:
            fix = next((command for command in cause.fix if command not in said), cause.fix[0])
            said.add(fix)
            yield cause, fix

    def to_json(self) -> dict[str, Any]:
        """The document of ``--json``, ``schema`` first."""
        return {
            "schema": REPORT_SCHEMA,
            "status": self.status,
            "findings": [finding.to_json() for finding in self.findings],
            "possible": [{"class": cause.id, "title": cause.title, "fix": fix} for cause, fix in self.each_possible()],
            "errors": [{"line": line.number, "text": line.text} for line in self.errors],
            "hints": [{"line": line.number, "text": line.text} for line in self.hints],
            "next_steps": list(self.next_steps),
            "steps": [step.to_json() for step in self.steps],
            "machine": self.facts.to_json(),
            "asked": dict(self.asked),
        }


def make_report(outcome: RuleOutcome, shell: UserShell) -> LogReport:
    """Fill in the advice of every hit, for the shell that it is for."""
    findings, described = (
        tuple(_finding(hit, outcome, shell) for hit in hits) for hits in (outcome.hits, outcome.described)
    )
    deciding = [hit.line for hit in outcome.hits[:1]] or outcome.errors
    hints = distinct(near(outcome.hints, *(line.number for line in deciding)) or (() if deciding else outcome.hints))
    errors, shown = (
        tuple(Line(line.number, shortened(line.text)) for line in lines) for lines in (outcome.errors, hints)
    )
    report = LogReport(
        findings,
        errors,
        described=described,
        decided=outcome.decided,
        hints=shown,
        steps=outcome.steps,
        facts=outcome.facts,
        sentence=outcome.sentence,
        asked={
            one.name: bool(shell.pages.files[one.name]) if one.name in shell.pages.files else None
            for one in shell.asked
        },
    )
    if report.certain:
        return report
    others = (_finding(hit, outcome, shell) for hit in _or_else(outcome.hits))
    said = () if findings else _first_steps(hints, outcome, shell)
    return replace(report, next_steps=(*said, *_next_steps(outcome, shell)), possible=(*findings, *others) or described)


def _first_steps(hints: Sequence[Line], outcome: RuleOutcome, shell: UserShell) -> Sequence[str]:
    """What the tools' own words ask for, and what is set here and at fault, where no rule knows the log."""
    tool, again = _failed(outcome)
    errors, words = (" ".join(line.text for line in lines) for lines in (outcome.errors, hints))
    settings = Settings(shell, None, errors, words)
    edits = Edits(shell, settings, failed_command(outcome))
    said = commands_in(hints, again, edits.edit, partial(shell.carried, tool=tool))
    undone = settings.undone(said)
    supply = supply_of(built_last(outcome), shell)
    supplied = supply.commands(edits, errors) if supply else ()
    return [*filter(None, [undone and shell.carried(undone, tool)]), *said, *supplied]


def _failed(outcome: RuleOutcome) -> tuple[str, str]:
    """Whose command failed, and which, or what stands for it."""
    tool = next((TOOLS[step.tool] for step in outcome.steps if step.tool in TOOLS), "python")
    return tool, failed_command(outcome, tool) or failed_command(outcome) or "THE_COMMAND"


def _or_else(hits: Sequence[Hit]) -> Iterable[Hit]:
    """What else the first line of those found may mean, each as its class says it in general."""
    found = {hit.rule.id for hit in hits}
    of_classes = {rule.id: rule for rule in load_classes()}
    names = (name for hit in hits[:1] for name in hit.or_else or hit.rule.or_else)
    return (replace(hits[0], rule=of_classes[name], certain=False) for name in names if name not in found)


def _next_steps(outcome: RuleOutcome, shell: UserShell) -> tuple[str, ...]:
    """What to do with a log whose cause is not certain: get the line that decides, look at the machine, and ask.

    What hides the first error most often is a tool that shows the end of its output only, and several compilers that
    write at once. A program that was run is not built again: its packages and the call that failed are checked.
    """
    package = (outcome.package or package_meant(outcome)).name
    log = "run.log" if outcome.run else "build.log"
    elsewhere = [] if outcome.decided else [summed_up_in(line.text) for line in outcome.errors]
    steps = list(dict.fromkeys(filter(None, elsewhere)))
    if package in OURS and not outcome.run and (asked := _resolve_options(outcome, shell.host)):
        steps.append(f"flashdepot resolve {asked}   # what serves the machine that is named, or why nothing does")
    if outcome.candle and outcome.cargo:
        steps.append(LINK)
    elif package in OURS and outcome.amd:
        steps.append(f"{FOR_AMD}   # AMD GPUs: upstream's own backend for them; flashdepot's kernels run on NVIDIA's")
    elif (
        package in OURS
        and not outcome.run
        and outcome.facts.can_run_ours
        and not (outcome.sentence and outcome.described)
    ):
        steps.append(f"flashdepot install   # in place of {package}: ready-made kernels, nothing to build")
    if outcome.sentence:
        again = "THE_COMMAND 2>&1 | flashdepot explain -   # what the command prints says more than words about it"
        return (*steps, again, "flashdepot doctor   # what stands in the way on this machine")
    steps += _again(outcome, shell, package)
    steps.append(f"flashdepot explain {log}; flashdepot doctor   # the new log, and what stands in the way here")
    line = "the first line above" if outcome.decided and outcome.errors else f"the first error of {log}"
    whose = f"the issues of {package}" if package != UNNAMED else "the web and the program's issues"
    steps.append(f"search {whose} for {line}; report it there with the whole log and the output of flashdepot host")
    return tuple(steps)


def _resolve_options(outcome: RuleOutcome, host: HostRecord | None) -> str:
    """What a log says of its machine, as options of ``resolve``; empty where it names no other one than this."""
    facts, here = outcome.facts, {gpu.architecture for gpu in host.gpus} if host else set()
    gpus = {gpu for gpu in facts.gpus.values() if gpu is not None and gpu not in here}
    known = {
        "--gpu": gpus.pop().dotted if len(gpus) == 1 else "",
        "--platform": _PLATFORMS.get(facts.os, ""),
        "--torch": facts.torch,
        "--python-tag": f"cp{facts.python.replace('.', '')}" if facts.python else "",
    }
    elsewhere = known["--gpu"] or known["--platform"] or not outcome.steps
    return " ".join(f"{option} {value}" for option, value in known.items() if value and elsewhere)


def _again(outcome: RuleOutcome, shell: UserShell, package: str) -> Iterable[str]:
    """Commands that bring a log with the line that decides."""
    if outcome.run:
        code = _failed(outcome)[1].replace("THE_COMMAND", "python ...")
        yield f"{code} > run.log 2>&1   # keep all of both streams: the last line of the first traceback is the cause"
        upgrade = f"; pip install -U {package}" if package != UNNAMED else ""
        yield shell.carried(
            f"pip list; pip check{upgrade}   # releases of different times are the usual reason", "python"
        )
        yield f"CUDA_LAUNCH_BLOCKING=1 {code}   # an error of CUDA: the traceback then names the call that failed"
        return
    why = "one compiler at a time, so that the first error stands by itself"
    if not outcome.decided:
        why = "the line that decides is above those, in what was cut off: keep all of both streams"
    elif not outcome.errors:
        why = "the log may be cut off: run the command again and keep all of both streams"
    if outcome.cargo:
        code = _failed(outcome)[1].replace("THE_COMMAND", "cargo build")
        yield f"{code} -vv -j 1 > build.log 2>&1   # with the features as before; {why}"
    elif outcome.steps and all(step.tool == "cmake" for step in outcome.steps):
        yield f"{_failed(outcome)[1]} > build.log 2>&1   # with its own options; {why}"
    elif not _is_asked_for(package, outcome) or (
        outcome.steps and all(step.installer == "conda" for step in outcome.steps)
    ):
        clear = outcome.decided and outcome.errors
        yield f"{_failed(outcome)[1]} > build.log 2>&1   # {'keep all of both streams: the first error says most' if clear else why}"
    else:
        yield shell.spelled(f"MAX_JOBS=1 pip install -v {package} --no-build-isolation > build.log 2>&1   # {why}")


def _is_asked_for(package: str, outcome: RuleOutcome) -> bool:
    """Whether it is a package of the field, or a command asks for it: any other word of a log is a name that anybody may have taken."""
    return (
        package in OURS
        or is_published(package.replace("-", "_"))
        or any(package in step.command for step in outcome.steps)
    )


def _finding(hit: Hit, outcome: RuleOutcome, shell: UserShell) -> Cause:
    rule, advice = hit.rule, Advice(hit, outcome, shell)
    facts = _symbol_facts(hit.groups["symbol"], outcome.facts.torch.partition("+")[0]) if "symbol" in hit.groups else []
    if shell.host and not outcome.amd:
        facts += [fact for name in rule.host for fact in _host_facts(name, shell.host)]
    line = Line(hit.line.number, shortened(hit.line.text))
    why = fill(rule.why, advice.values, unknown="the {}").replace(UNNAMED, "the package")
    if why.startswith("the "):
        why = f"T{why[1:]}"
    return Cause(rule.id, rule.title, RANKS[rule.rank], line, why, advice.commands, tuple(facts), hit.certain)


def _symbol_facts(symbol: str, torch: str) -> list[str]:
    readable = symbol
    with contextlib.suppress(MissingToolError):
        readable = demangled(symbol) or symbol
    torch_range = built_for(symbol)
    if torch_range is None:
        return [f"missing: {readable}"]
    facts = [f"missing: {readable}", f"the binary was built for {torch_range}; the torch that was loaded is another"]
    if torch and torch_range.cxx11_abi is None and torch_range.holds(Version.parse(torch)):
        facts.append(
            f"the log speaks of torch {torch}, which has this symbol: another torch was loaded, or a build without "
            'CUDA; see python -c "import torch; print(torch.__version__, torch.version.cuda, torch.__file__)"'
        )
    return facts


def _host_facts(name: str, host: HostRecord) -> list[str]:
    if name == "gpus":
        found = [f"this machine's GPU: {g.name}, compute capability {g.architecture.dotted}" for g in host.gpus]
        return list(dict.fromkeys(found)) or ["this machine has no NVIDIA GPU"]
    if name == "driver":
        return [f"this machine's driver: {host.driver}" if host.driver else "this machine has no NVIDIA driver"]
    if name == "toolkits":
        found = [f"this machine's nvcc: {t.version} in {t.root}, found by {t.found_by}" for t in host.toolkits]
        return found or ["no CUDA toolkit was found on this machine"]
    if name == "compilers":
        found = [f"this machine's compiler: {c.kind} {c.version} ({c.path})" for c in host.compilers]
        return found or ["no C++ compiler was found on this machine"]
    if name == "libc":
        return [f"this machine's GNU libc: {host.libc}"] if host.libc else ["this machine has no GNU libc"]
    return [f"this machine: {host.memory / 1e9:.1f} GB usable, {host.cores} cores"] if host.memory else []
