"""The commands that an answer gives: those of its rule that this log and this machine take, the ones that fix first."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence

from flashdepot.diagnose.explain.hint import SAFE, commands_in, near
from flashdepot.diagnose.explain.machine import (
    WHEELS,
    Package,
    cuda_wheel,
    how_to_install,
    named,
    of_debian,
    wheel_with,
)
from flashdepot.diagnose.explain.match import RuleOutcome
from flashdepot.diagnose.explain.piece import Hit
from flashdepot.diagnose.explain.rules import RANKS, LogRule, code_of, for_windows, is_for_posix
from flashdepot.model.host import HostRecord

SHOWN = 300
"""Characters of a line, or of what it puts into a command, that are shown."""

OURS = ("flash-attn", "flash-attn-3", "flash-attn-4")
"""Packages in whose place flashdepot has something; the first is meant where a log speaks only of FlashAttention."""

UNNAMED = "THE_PACKAGE"

_JOB_BYTES = 7 * 10**9  # the largest unit needs 6.6 GB: benchmarks/README.md
_NAME = re.compile(r"\{(\w+)\}")

_TOOLS = {
    **dict.fromkeys(("pip", "uv", "poetry", "pdm", "pixi", "maturin", "python", "torchrun", "server"), "python"),
    **{name: name for name in ("cargo", "conda", "cmake", "git", "compiler")},
}
"""Whose commands help where a step is of that tool."""
_COMMANDS = {
    "python": re.compile(r"(?:python -m )?pip (?!install \.)|python |uv "),
    **{name: re.compile(rf"{name} ") for name in ("conda", "cmake")},
    "compiler": re.compile(r"nvcc -|g\+\+ -"),
    "cargo": re.compile(r"cargo |CARGO_|RUSTFLAGS=|CUDARC_|eval .*cargo "),
}
_OPTIONS = ("option", "other", "clap", "flag", "choice", "msvc", "gnu")
_OF_TORCH = frozenset({*OURS, UNNAMED, "torch", "torchvision", "torchaudio", "triton"})
"""What an upgrade by itself breaks, or compiles for an hour."""
_TOOLKIT = "pip install 'cuda-toolkit["
"""How a command begins that brings CUDA's compiler or headers, which is for every tool's logs."""
_SETTINGS = re.compile(r"(?:[A-Z][A-Z0-9_]*=\S* )*")
_OF_GIT = "fatal: "

_PART = re.compile(r"\s*(?:;|&&|\|\|?)\s+")
_LOOKS = re.compile(
    r"python -c \"import [\w., ]+$|print\(|python (?:-VV|-m pip (?:index|debug|show)|-c \"import [^\"]*print)|pip (?:list|check|show|freeze)|nvidia-smi|rocminfo"
    r"|(?:nvcc|g\+\+|gcc|hipcc|ldd|cmake|git|ninja|conda|python) (?:-V\b|--(?:version|list))|(?:ls|df|file|head|ldd|echo|ss|id|which|where|find"
    r"|findmnt|free|dmesg|grep|env|curl -sSI|nm|ldconfig|apt-file|dnf provides|groups|uname|sha256sum)(?: |$)"
    r"|cargo (?:tree|search)|conda search|git (?:ls-remote|fsck|lfs logs)|LD_DEBUG|TORCH_LOGS|python -m bitsandbytes"
)
_RUNS = re.compile(
    r"(?:[A-Z][A-Z0-9_]*=|set [A-Z]|(?:apt|cargo|cd|cmake|conda|cp|curl|docker|echo|export|flashdepot|git|hf|MASTER_PORT|mv|nvcc|pip"
    r"|python|python3|rm|make|sed|sudo|unset|uv|winget|rustup|taskkill|call|reg|dnf|eval) )"
)
_UNFILLED = re.compile(r"\b(?:THE_[A-Z]+|WHEEL_URL|VERSION|OWNER/|FILE\b|DIR\b)|/(?:path|other)/|<\w+(?: \w+)*>|\.\.\.")
_LEFT = re.compile(r"(?<!!)<[a-z]+(?: [a-z]+)*>")
_UNSETS = re.compile(r"unset ((?:[A-Za-z_]+ ?)+)")
_LONG = "FORCE_BUILD=TRUE"
"""What marks a command that compiles for an hour or more: it stands behind those that take seconds."""

_OURS_BUILDS = re.compile(r"flashdepot (?!depot gc)")
_OF_OURS = re.compile(r"install (?:\S+ )*flash[-_]att")
_SWITCH = re.compile(r"(?:set )?\bFLASH_ATTENTION_(?=FORCE|SKIP)")
_SWITCHES = {"causal-conv1d": "CAUSAL_CONV1D_", "mamba-ssm": "MAMBA_"}
"""Packages that have flash-attn's switches, with another beginning."""
_IN_LINE = {
    "path": re.compile(r"(?:^|[\s'\"`(=])(/(?!usr/bin|bin/)[^\s'\"`:,;)]+)"),
    "url": re.compile(r"https?://[^\s'\"`,;)]+"),
}
_REQUIREMENT = re.compile(
    r"(?<![\w.-])([A-Za-z][\w.-]*(?:\[[\w,]+\])?(?: ?(?:[<>=!~]=|[<>]) ?\d[\w.*]*,?)+)(?=['\"`\s;:.)]|$)"
)
_UNKNOWN = {"path": ".", "folder": ".", "url": "THE_URL"}
_PIP_INSTALLS = re.compile(r"(?<!uv )(?:\bpython -m )?\bpip install (?=[^u]|u[^v])")
_THEN_UNNAMED = re.compile(r" (?:&&|;) (?:uv )?pip install (?:-\S+ )*THE_PACKAGE[^&;#]*(?=$|   #)")

_INSTALL = "flashdepot install   # a wheel that fits this environment, or ours, which links no torch; verified before it is imported"
_LINK = "flashdepot link candle --write --get   # prebuilt kernels in place of those that candle compiles"


def package_meant(outcome: RuleOutcome) -> Package:
    """What advice speaks of where no line names a package."""
    return named(OURS[0] if outcome.flash else UNNAMED)


def shortened(text: str) -> str:
    """A text without its middle, where it is long."""
    return text if len(text) <= SHOWN else text[: SHOWN // 2] + " ... " + text[-SHOWN // 2 :]


def fill(text: str, values: Mapping[str, str], quoted: Iterable[str] = (), unknown: str = "<{}>") -> str:
    """Put values in place of names in braces; a name without a value stays.

    :param quoted: names whose values come from a log, and are quoted where a shell would take them for more than a word.
    :param unknown: how a name without a value is written.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in values:
            return unknown.format(name.replace("_", " "))
        return shlex.quote(shortened(values[name])) if name in quoted else values[name]

    return _NAME.sub(value, text)


class Advice:
    """What is said of one hit: ``values`` fill its rule's texts, ``commands`` are those that help, in the order to try them."""

    def __init__(self, hit: Hit, outcome: RuleOutcome, host: HostRecord | None) -> None:
        self.hit, self.outcome, self.host = hit, outcome, host
        self.package = hit.package or package_meant(outcome)
        self.tool = self._tool()
        self.values = self._values()

    def _tool(self) -> str:
        """Whose commands help: those of what began the work, of what the line's step runs, or of Python, which most logs are of.

        A compiler's own log is that of a package where it speaks of one: its command line is not the user's.
        """
        step, steps = self.hit.step, self.outcome.steps
        tools = [step.installer, step.tool] if step else []
        if self.outcome.cargo:
            return "cargo"
        if self.hit.line.text.startswith(_OF_GIT) or "git" in tools:
            return "git"
        known = [_TOOLS[name] for name in (*tools, *(one.installer or one.tool for one in steps)) if name in _TOOLS]
        if self.package.name == UNNAMED:
            return next((name for name in known if name != "compiler"), known[0] if known else "python")
        return "conda" if known[:1] == ["conda"] else "python"

    def _values(self) -> dict[str, str]:
        hit, outcome, host = self.hit, self.outcome, self.host
        usual = {
            "jobs": "2",
            "cuda_home": "%CUDA_PATH%" if outcome.windows else "/usr/local/cuda",
            "room": "/other/disk",
            "cuda_release": "",
        }
        usual |= {"other_cuda_home": usual["cuda_home"]} if host is None else {}
        values = {**usual, **_of_host(host), **_of_log(outcome), **self.package.values, **hit.groups}
        values |= wheel_with(hit.groups.get("library") or hit.groups.get("symbol", "").lstrip("_"))
        values |= _in_line(hit.line.text)
        values["install"] = how_to_install(values["module"])
        top = values["module"].partition(".")[0]
        if top in sys.stdlib_module_names:
            values["own_module"] = top
        asking = (hit.step and hit.step.package) or UNNAMED
        values["asking"] = asking if asking == UNNAMED else named(asking).name
        values["both"] = _both(values["asking"], UNNAMED if top in sys.stdlib_module_names else named(top).name)
        pair = [name for name in values["both"].split() if name not in _OF_TORCH]
        values |= {"pair": " ".join(pair)} if pair and asking != UNNAMED else {}
        for name in ("header", "library", "tool", "program"):
            values |= of_debian(hit.groups.get(name, ""))
        values |= cuda_wheel(hit.groups.get("header", ""))
        option = next((hit.groups[name] for name in _OPTIONS if name in hit.groups), "")
        values |= {"option": option} if option else {}
        values |= {name: values[name].lower() for name in ("program", "tool") if name in values}
        values["low"] = values.get("name", UNNAMED).lower()
        values["again"] = self._again()
        if outcome.windows:
            values |= {name: for_windows(values[name]) for name in ("rebuild", "install")}
        for_gpu = self._for_gpu(values)
        return values | {"for_gpu": for_windows(for_gpu) if outcome.windows else for_gpu}

    @property
    def failed(self) -> str:
        """The command that failed, where the log or the user has it, and it may be said again."""
        said = [step.command for step in self.outcome.steps if _TOOLS.get(step.tool) == self.tool and step.command]
        fits = said and SAFE.fullmatch(said[-1]) and len(said[-1]) < SHOWN // 2
        return said[-1] if fits and not said[-1].endswith("successfully.") else ""

    def _again(self) -> str:
        """The command that failed, where the log or the user has it, else the usual one of the tool."""
        if self.failed:
            return self.failed
        usual = {
            "cargo": "cargo build",
            "cmake": "cmake -S . -B build",
            "compiler": "nvcc ...",
            "conda": "conda install ...",
        }
        return usual.get(self.tool, f"pip install {self.package.name} --no-build-isolation")

    def _for_gpu(self, values: Mapping[str, str]) -> str:
        """The command that failed, for one architecture: that of the GPU, or the oldest that these kernels are for."""
        arch, capability, again = values.get("gpu_arch", "80"), values.get("gpu_capability", "8.0"), values["again"]
        if self.tool == "cargo":
            return f"CUDA_COMPUTE_CAP={arch} {again}"
        if self.tool == "cmake":
            again = re.sub(r" -DCMAKE_CUDA_ARCHITECTURES=\S*", "", again)
            return f"rm -rf build; {again} -DCMAKE_CUDA_ARCHITECTURES={arch}"
        if self.tool == "compiler":
            return f"nvcc -gencode arch=compute_{arch},code=sm_{arch} ..."
        flash = f"FLASH_ATTN_CUDA_ARCHS={arch} " if self.package.name in OURS else ""
        return f"{flash}TORCH_CUDA_ARCH_LIST={capability} {again}"

    @property
    def commands(self) -> tuple[str, ...]:
        """The rule's commands for this log's system, tool and findings, filled in; flashdepot's own where it has something instead."""
        rule, outcome, package = self.hit.rule, self.outcome, self.package
        advice = self._of_what_was_found(_of_system(rule, outcome))
        if package.name not in OURS:
            switch = _SWITCHES.get(package.name, "")
            advice = [_SWITCH.sub(switch, text) for text in advice if switch or not _SWITCH.match(text)]
        if outcome.windows:
            advice = [for_windows(command) for command in advice if not is_for_posix(command)] or advice
        ours = (
            package.name in OURS or package.name.startswith("candle") or (package.name == UNNAMED and not outcome.steps)
        )
        advice = [command for command in advice if ours or not _OURS_BUILDS.match(command)]
        advice = [command for command in advice if outcome.candle or "link candle" not in command] or advice
        fix = [fill(command, self.values, quoted=(*self.hit.groups, *_UNKNOWN, "requirement")) for command in advice]
        fix = [text.replace(" --arch <gpu arch>", "") for text in self._of_this_tool(fix, advice)]
        fix = [text for text in fix if not _LEFT.search(code_of(text))] or fix
        fix = sorted(map(self._of_this_machine, fix), key=self._place)
        hints = near(outcome.hints, self.hit.line.number)
        named_there = commands_in(hints, self.failed or "THE_COMMAND")
        said = [f"{command}   # as the log itself says" for command in named_there if not _OF_OURS.search(command)]
        fix = [*said, *(command for command in fix if _run(command) not in map(_run, said))]
        may_have_ours = (
            rule.ours and ours and package.name != UNNAMED and not outcome.amd and outcome.facts.can_run_ours
        )
        if may_have_ours and not any("flashdepot link candle" in command for command in fix):
            ours_is = [] if outcome.cargo and not outcome.candle else [_LINK if outcome.cargo else _INSTALL]
            first = self.hit.package or rule.rank != RANKS.index("missing-tool")
            fix = [*ours_is, *fix] if first else [*fix, *ours_is]
        return tuple(fix)

    def _of_what_was_found(self, advice: Sequence[str]) -> Sequence[str]:
        """Advice without what is for another thing of the rule's than the one that the log names."""
        patterns = (*self.hit.rule.patterns, *self.hit.rule.likely, *self.hit.rule.details)
        things = {name for pattern in patterns for name in pattern.groups} | {*WHEELS, "requirement"}
        lacking = things - self.values.keys()
        return [command for command in advice if lacking.isdisjoint(_NAME.findall(command))] or advice

    def _of_this_tool(self, fix: Sequence[str], advice: Sequence[str]) -> Sequence[str]:
        """Commands without those of other tools: pip's help nobody who runs CMake, nor cargo's who runs pip.

        :param advice: the same before it was filled in; what names a thing that the log has stays.
        """
        others = [pattern for tool, pattern in _COMMANDS.items() if tool != self.tool]
        found = self.hit.groups.keys() - {"package", "module"}

        def is_of_other(command: str) -> bool:
            start = _SETTINGS.match(command)
            return any(
                pattern.match(command) or pattern.match(command, start.end() if start else 0) for pattern in others
            )

        kept = [
            c
            for c, raw in zip(fix, advice, strict=True)
            if c.startswith(_TOOLKIT) or not (is_of_other(c) and found.isdisjoint(_NAME.findall(raw)))
        ]
        return kept or fix

    def _of_this_machine(self, command: str) -> str:
        """The command by the programs that are there: uv's where pip is not, and root needs no sudo."""
        host, step = self.host, self.hit.step
        no_pip = host and host.python and host.python.installers == ("uv",)
        if no_pip or (step and step.installer == "uv"):
            command = _PIP_INSTALLS.sub("uv pip install ", command)
        if host and host.container and host.programs is not None and "sudo" not in host.programs:
            command = command.replace("sudo ", "")
        if self.tool == "cargo" and command.startswith(_TOOLKIT):
            command = f"python3 -m venv .cuda && . .cuda/bin/activate && {command}"
        return _THEN_UNNAMED.sub("", command)

    def _place(self, command: str) -> tuple[bool, ...]:
        """Where a command stands: what fixes before what has to be filled in or is prose, and that before what only looks."""
        code = code_of(command)
        parts = [part[match.end() :] for part in _PART.split(code) if (match := _SETTINGS.match(part))]
        host = self.host
        unset = _UNSETS.match(code)
        at_fault = host is not None and unset is not None and not host.variables.keys().isdisjoint(unset[1].split())
        lacks = (
            host is not None
            and host.programs is not None
            and any(name in code.split() and name not in host.programs for name in ("conda", "apt", "dnf"))
        )
        looks = all(map(_LOOKS.match, parts))
        prose = not _RUNS.match(code)
        return not at_fault, _LONG in code, looks, lacks, prose or _UNFILLED.search(code) is not None


def _run(command: str) -> str:
    """What a command runs, whichever Python is named before it."""
    return code_of(command).removeprefix("python -m ")


def _of_system(rule: LogRule, outcome: RuleOutcome) -> Sequence[str]:
    if outcome.amd and rule.fix_amd:
        return rule.fix_amd
    if outcome.windows and rule.fix_windows:
        return rule.fix_windows
    return rule.fix


def _both(asking: str, asked: str) -> str:
    """The names of two packages that should be of one time; torch, which takes long, only by itself."""
    names = [name for name in dict.fromkeys((asking, asked)) if name not in ("torch", UNNAMED)]
    return " ".join(names) or (UNNAMED if UNNAMED in (asking, asked) else "torch")


def _in_line(text: str) -> dict[str, str]:
    """The last path and address that a line names, or what stands for them, and the first requirement."""
    found = {name: match[-1] for name, pattern in _IN_LINE.items() if (match := pattern.findall(text))}
    if (asked := _REQUIREMENT.search(text)) is not None:
        found["requirement"] = asked[1].rstrip(",")
    if "path" in found:
        found["folder"] = found["path"].rpartition("/")[0] or "/"
    return {**_UNKNOWN, **found}


def _of_log(outcome: RuleOutcome) -> dict[str, str]:
    """What the log says of its own machine, which comes before what is known of this one."""
    gpus = {gpu for gpu in outcome.facts.gpus.values() if gpu is not None}
    if len(gpus) != 1 or None in outcome.facts.gpus.values():
        return {}
    gpu = gpus.pop()
    return {"gpu": next(iter(outcome.facts.gpus)), "gpu_arch": str(gpu), "gpu_capability": gpu.dotted}


def _of_host(host: HostRecord | None) -> dict[str, str]:
    if host is None:
        return {}
    values = {"jobs": str(max(1, min(host.cores, host.memory // _JOB_BYTES)))} if host.memory else {}
    if host.gpus:
        values["gpu"] = host.gpus[0].name
        values["gpu_arch"] = str(host.gpus[0].architecture)
        values["gpu_capability"] = host.gpus[0].architecture.dotted
    if host.toolkits:
        values["cuda_home"] = host.toolkits[0].root
        values["cuda_release"] = "=={}.{}.*".format(*host.toolkits[0].version.numbers)
    if len(host.toolkits) > 1:
        values["other_cuda_home"] = host.toolkits[1].root
    if host.compilers:
        values["compiler"] = host.compilers[0].path
    if host.driver:
        values["driver"] = str(host.driver)
    if host.disks:
        values["room"] = max((disk for disk in host.disks if disk.use != "depot"), key=lambda disk: disk.free).path
    return values
