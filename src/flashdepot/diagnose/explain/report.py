"""From rules that a log answers to, to advice for this machine."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from flashdepot.binary.elf import demangled
from flashdepot.diagnose.explain.machine import (
    WHEELS,
    MachineFacts,
    Package,
    built_for,
    how_to_install,
    named,
    wheel_with,
)
from flashdepot.diagnose.explain.match import Hit, Line, RuleOutcome, summed_up_in
from flashdepot.diagnose.explain.rules import RANKS, LogRule, for_windows, is_for_posix, load_rules
from flashdepot.diagnose.explain.steps import Step
from flashdepot.errors import MissingToolError
from flashdepot.model.host import HostRecord
from flashdepot.model.target import Version

REPORT_SCHEMA = 1

_JOB_BYTES = 7 * 10**9  # the largest unit needs 6.6 GB: benchmarks/README.md
_SHOWN = 300
_OURS = ("flash-attn", "flash-attn-3", "flash-attn-4")
"""Packages in whose place flashdepot has something; the first is meant where a log speaks only of FlashAttention."""

_UNNAMED = "THE_PACKAGE"
_NAME = re.compile(r"\{(\w+)\}")
_OF_PYTHON = r"(?:python -m )?(?:pip (?!install \.)|python |uv )"
_PYTHONS, _CARGOS, _ANYS = (
    re.compile(rf"(?:[A-Z_]+=\S* )*(?:{tools})") for tools in (_OF_PYTHON, "cargo ", f"{_OF_PYTHON}|cargo ")
)
_OURS_BUILDS = re.compile(r"flashdepot (?!depot gc)")
_SWITCH = re.compile(r"(?:set )?\bFLASH_ATTENTION_(?=FORCE|SKIP)")
_SWITCHES = {"causal-conv1d": "CAUSAL_CONV1D_", "mamba-ssm": "MAMBA_"}
"""Packages that have flash-attn's switches, with another beginning."""
_IN_LINE = {
    "path": re.compile(r"(?:^|[\s'\"`(=])(/(?!usr/bin|bin/)[^\s'\"`:,;)]+)"),
    "url": re.compile(r"https?://[^\s'\"`,;)]+"),
}
_UNKNOWN = {"path": ".", "folder": ".", "url": "THE_URL"}
_PIP_INSTALLS = re.compile(r"(?<!uv )(?:\bpython -m )?\bpip install (?=[^u]|u[^v])")
"""What an environment that uv made has no program for."""

_INSTALL = "flashdepot install   # a wheel that fits this environment, or ours, which links no torch; verified before it is imported"
_LINK = "flashdepot link candle --write --get   # prebuilt kernels in place of those that candle compiles"
_LONG = "FORCE_BUILD=TRUE"
"""What marks a command that compiles for an hour or more: it stands behind those that take seconds."""


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
    where every error line only says that something failed.
    """

    findings: tuple[Cause, ...]
    errors: tuple[Line, ...]
    next_steps: tuple[str, ...] = ()
    described: tuple[Cause, ...] = ()
    possible: tuple[Cause, ...] = ()
    decided: bool = True
    steps: tuple[Step, ...] = ()
    facts: MachineFacts = msgspec.field(default_factory=MachineFacts)

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
            "next_steps": list(self.next_steps),
            "steps": [step.to_json() for step in self.steps],
            "machine": self.facts.to_json(),
        }


def make_report(outcome: RuleOutcome, host: HostRecord | None) -> LogReport:
    """Fill in the advice of every hit."""
    findings, described = (
        tuple(_finding(hit, outcome, host) for hit in hits) for hits in (outcome.hits, outcome.described)
    )
    errors = tuple(Line(line.number, _shortened(line.text)) for line in outcome.errors)
    report = LogReport(
        findings,
        errors,
        described=described,
        decided=outcome.decided,
        steps=outcome.steps,
        facts=outcome.facts,
    )
    if report.certain:
        return report
    others = (_finding(hit, outcome, host) for hit in _or_else(outcome.hits))
    return replace(report, next_steps=_next_steps(outcome), possible=(*findings, *others) or described)


def _or_else(hits: Sequence[Hit]) -> Iterable[Hit]:
    """What else the first line of those found may mean, each as its class says it in general."""
    found = {hit.rule.id for hit in hits}
    of_classes = {rule.id: rule for rule in load_rules()}
    names = (name for hit in hits[:1] for name in hit.or_else or hit.rule.or_else)
    return (replace(hits[0], rule=of_classes[name], certain=False) for name in names if name not in found)


def _next_steps(outcome: RuleOutcome) -> tuple[str, ...]:
    """What to do with a log whose cause is not certain: get the line that decides, look at the machine, and ask.

    What hides the first error most often is a tool that shows the end of its output only, and several compilers that
    write at once. A program that was run is not built again: its packages and the call that failed are checked.
    """
    package = (outcome.package or _package_meant(outcome)).name
    log = "run.log" if outcome.run else "build.log"
    elsewhere = [] if outcome.decided else [summed_up_in(line.text) for line in outcome.errors]
    steps = list(dict.fromkeys(filter(None, elsewhere)))
    if package in _OURS and not (outcome.run or outcome.amd) and outcome.facts.can_run_ours:
        steps.append(f"flashdepot install   # in place of {package}: ready-made kernels, nothing to build")
    steps += _again(outcome, package)
    steps.append(f"flashdepot explain {log}; flashdepot doctor   # the new log, and what stands in the way here")
    line = "the first line above" if outcome.decided and outcome.errors else f"the first error of {log}"
    whose = f"the issues of {package}" if package != _UNNAMED else "the web and the program's issues"
    steps.append(f"search {whose} for {line}; report it there with the whole log and the output of flashdepot host")
    return tuple(steps)


def _again(outcome: RuleOutcome, package: str) -> Iterable[str]:
    """Commands that bring a log with the line that decides."""
    if outcome.run:
        yield "python ... > run.log 2>&1   # keep all of both streams: the last line of the first traceback is the cause"
        upgrade = f"; pip install -U {package}" if package != _UNNAMED else ""
        yield f"pip list; pip check{upgrade}   # releases of different times are the usual reason"
        yield "CUDA_LAUNCH_BLOCKING=1 python ...   # an error of CUDA: the traceback then names the call that failed"
        return
    why = "one compiler at a time, so that the first error stands by itself"
    if not outcome.decided:
        why = "the line that decides is above those, in what was cut off: keep all of both streams"
    elif not outcome.errors:
        why = "the log may be cut off: run the command again and keep all of both streams"
    jobs = "set MAX_JOBS=1&& " if outcome.windows else "MAX_JOBS=1 "
    if outcome.cargo:
        yield f"cargo build -vv -j 1 > build.log 2>&1   # with the features as before; {why}"
    elif outcome.steps and all(step.tool == "cmake" for step in outcome.steps):
        yield f"cmake -S . -B build > build.log 2>&1; cmake --build build -j 1 >> build.log 2>&1   # {why}"
    elif package == _UNNAMED:
        clear = outcome.decided and outcome.errors
        yield f"THE_COMMAND > build.log 2>&1   # {'keep all of both streams: the first error says most' if clear else why}"
    else:
        yield f"{jobs}pip install -v {package} --no-build-isolation > build.log 2>&1   # {why}"


def _finding(hit: Hit, outcome: RuleOutcome, host: HostRecord | None) -> Cause:
    rule = hit.rule
    package = hit.package or _package_meant(outcome)
    usual = {"jobs": "2", "cuda_home": "%CUDA_PATH%" if outcome.windows else "/usr/local/cuda"}
    values = {**usual, **(_host_values(host) if host else {}), **_log_values(outcome), **package.values, **hit.groups}
    values |= wheel_with(hit.groups.get("library") or hit.groups.get("symbol", "").lstrip("_"))
    values |= _in_line(hit.line.text)
    values["install"] = how_to_install(values["module"])
    values["asking"] = (hit.step and hit.step.package) or _UNNAMED
    facts = _symbol_facts(hit.groups["symbol"], outcome.facts.torch.partition("+")[0]) if "symbol" in hit.groups else []
    if host and not outcome.amd:
        facts += [fact for name in rule.host for fact in _host_facts(name, host)]
    advice = _of_what_was_found(_advice(rule, outcome), hit, values)
    if package.name not in _OURS:
        switch = _SWITCHES.get(package.name, "")
        advice = [_SWITCH.sub(switch, text) for text in advice if switch or not _SWITCH.match(text)]
    if outcome.windows:
        advice = [for_windows(command) for command in advice if not is_for_posix(command)] or advice
        values |= {name: for_windows(values[name]) for name in ("rebuild", "install")}
    own_build = any(step.installer for step in outcome.steps)
    ours = package.name in _OURS or package.name.startswith("candle") or (package.name == _UNNAMED and not own_build)
    advice = [command for command in advice if ours or not _OURS_BUILDS.match(command)]
    fix = [fill(command, values, quoted=(*hit.groups, *_UNKNOWN)) for command in advice]
    if hit.step and hit.step.installer == "uv":
        fix = [_PIP_INSTALLS.sub("uv pip install ", command) for command in fix]
    if others := _of_other_tools(hit, outcome):
        fix = [command for command in fix if not others.match(command)] or fix
    fix = sorted(fix, key=lambda command: _LONG in command)
    may_have_ours = rule.ours and ours and package.name != _UNNAMED and not outcome.amd and outcome.facts.can_run_ours
    if may_have_ours and not any("flashdepot link candle" in command for command in fix):
        ours_is = _LINK if outcome.cargo else _INSTALL
        fix = [ours_is, *fix] if hit.package or rule.rank != RANKS.index("missing-tool") else [*fix, ours_is]
    line = Line(hit.line.number, _shortened(hit.line.text))
    why = fill(rule.why, values)
    return Cause(rule.id, rule.title, RANKS[rule.rank], line, why, tuple(fix), tuple(facts), hit.certain)


def _of_what_was_found(advice: Sequence[str], hit: Hit, values: Mapping[str, str]) -> Sequence[str]:
    """Advice without what is for another thing of the rule's than the one that the log names."""
    patterns = (*hit.rule.patterns, *hit.rule.likely, *hit.rule.details)
    things = {name for pattern in patterns for name in pattern.groups} | {*WHEELS}
    lacking = things - values.keys()
    return [command for command in advice if lacking.isdisjoint(_NAME.findall(command))] or advice


def _in_line(text: str) -> dict[str, str]:
    """The last path and the last address that a line names, or what stands for them."""
    found = {name: match[-1] for name, pattern in _IN_LINE.items() if (match := pattern.findall(text))}
    if "path" in found:
        found["folder"] = found["path"].rpartition("/")[0] or "/"
    return {**_UNKNOWN, **found}


def _of_other_tools(hit: Hit, outcome: RuleOutcome) -> re.Pattern[str] | None:
    """What begins the commands of tools that the log has not to do with."""
    if outcome.cargo or (hit.step and hit.step.installer == "conda"):
        return _PYTHONS
    if hit.line.text.startswith("fatal: ") or (hit.step and hit.step.tool == "git"):
        return _ANYS
    return _CARGOS if any(step.installer or step.tool == "python" for step in outcome.steps) else None


def _package_meant(outcome: RuleOutcome) -> Package:
    """What advice speaks of where no line names a package."""
    return named(_OURS[0] if outcome.flash else _UNNAMED)


def _advice(rule: LogRule, outcome: RuleOutcome) -> Sequence[str]:
    if outcome.amd and rule.fix_amd:
        return rule.fix_amd
    if outcome.windows and rule.fix_windows:
        return rule.fix_windows
    return rule.fix_cargo if outcome.cargo and outcome.facts.can_run_ours and rule.fix_cargo else rule.fix


def fill(text: str, values: Mapping[str, str], quoted: Iterable[str] = ()) -> str:
    """Put values in place of names in braces; a name without a value stays, in angle brackets.

    :param quoted: names whose values come from a log, and are quoted where a shell would take them for more than a word.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in values:
            return f"<{name.replace('_', ' ')}>"
        return shlex.quote(_shortened(values[name])) if name in quoted else values[name]

    return _NAME.sub(value, text)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN // 2] + " ... " + text[-_SHOWN // 2 :]


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


def _log_values(outcome: RuleOutcome) -> dict[str, str]:
    """What the log says of its own machine, which comes before what is known of this one."""
    gpus = {gpu for gpu in outcome.facts.gpus.values() if gpu is not None}
    if len(gpus) != 1 or None in outcome.facts.gpus.values():
        return {}
    gpu = gpus.pop()
    return {"gpu": next(iter(outcome.facts.gpus)), "gpu_arch": str(gpu), "gpu_capability": gpu.dotted}


def _host_values(host: HostRecord) -> dict[str, str]:
    values = {"jobs": str(max(1, min(host.cores, host.memory // _JOB_BYTES)))} if host.memory else {}
    if host.gpus:
        values["gpu"] = host.gpus[0].name
        values["gpu_arch"] = str(host.gpus[0].architecture)
        values["gpu_capability"] = host.gpus[0].architecture.dotted
    if host.toolkits:
        values["cuda_home"] = host.toolkits[0].root
    if host.compilers:
        values["compiler"] = host.compilers[0].path
    if host.driver:
        values["driver"] = str(host.driver)
    return values


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
