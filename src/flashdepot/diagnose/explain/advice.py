"""The commands that an answer gives: those of its rule that this log and this machine take, the ones that fix first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flashdepot.diagnose.explain.command import code_of, is_command, is_for_posix
from flashdepot.diagnose.explain.edits import Edits
from flashdepot.diagnose.explain.hint import AS_SAID, commands_in, near
from flashdepot.diagnose.explain.machine import UNNAMED, named
from flashdepot.diagnose.explain.match import RuleOutcome
from flashdepot.diagnose.explain.piece import Hit
from flashdepot.diagnose.explain.releases import asked_for
from flashdepot.diagnose.explain.rules import RANKS
from flashdepot.diagnose.explain.settings import Settings
from flashdepot.diagnose.explain.shell import BRINGS_CUDA, LINK_CANDLE, OF_CUDA, UserShell
from flashdepot.diagnose.explain.supply import supply_of
from flashdepot.diagnose.explain.values import (
    NAME,
    OURS,
    UNKNOWN,
    failed_command,
    fill,
    package_meant,
    tool_of,
    values_of,
)
from flashdepot.model.wheel import canonical_name

_COMMANDS = {
    "python": re.compile(r"(?:python -m )?pip (?!install \.)|python |uv "),
    **{name: re.compile(rf"{name} ") for name in ("conda", "cmake")},
    "compiler": re.compile(r"nvcc -|g\+\+ -"),
    "cargo": re.compile(r"cargo |CARGO_|RUSTFLAGS=|CUDARC_|eval .*cargo "),
}
_ANY_RELEASE = frozenset({"build-dep-missing", "oom-killed"})
"""Classes that have nothing to do with the release of the package."""
_RELEASE = re.compile(r"\d[\w.]*")
_SETTINGS = re.compile(r"(?:[A-Z][A-Z0-9_]*=\S* )*")
_FIRST_SETTINGS = re.compile(r"(?:export )?(?:[A-Z][A-Z0-9_]*=\S* )+")
_PART = re.compile(r"\s*(?:;|&&|\|\|?)\s+")
_LOOKS = re.compile(
    r"python -c \"import [\w., ]+$|print\(|python (?:-VV|-m pip (?:index|debug|show)|-c \"import [^\"]*print)|pip (?:list|check|show|freeze)|nvidia-smi|rocminfo"
    r"|(?:nvcc|g\+\+|gcc|hipcc|ldd|cmake|git|ninja|conda|python) (?:-V\b|--(?:version|list))|(?:ls|df|file|head|ldd|echo|ss|id|which|where|find"
    r"|findmnt|free|dmesg|grep|env|curl -sSI|nm|ldconfig|apt-file|dnf provides|groups|uname|sha256sum)(?: |$)"
    r"|cargo (?:tree|search)|conda search|git (?:ls-remote|fsck|lfs logs)|LD_DEBUG|TORCH_LOGS|python -m bitsandbytes"
)
_UNFILLED = re.compile(r"\b(?:THE_[A-Z]+|WHEEL_URL|VERSION|OWNER/|FILE\b|DIR\b)|/(?:path|other)/|<\w+(?: \w+)*>|\.\.\.")
_MAY_BE_LEFT = frozenset({"gpu_arch", "gpu_capability"})
"""Names that a command may have though they are not known: the user knows their GPU."""
_LEFT = re.compile(r"(?<!!)<[a-z]+(?: [a-z]+)*>")
_LONG = "FORCE_BUILD=TRUE"
"""What marks a command that compiles for an hour or more: it stands behind those that take seconds."""

_OURS_BUILDS = re.compile(r"flashdepot (?!depot gc)")
_OF_OURS = re.compile(r"install (?:\S+ )*flash[-_]att")
_SWITCH = re.compile(r"(?:set )?\bFLASH_ATTENTION_(?=FORCE|SKIP)")
_SWITCHES = {"causal-conv1d": "CAUSAL_CONV1D_", "mamba-ssm": "MAMBA_"}
"""Packages that have flash-attn's switches, with another beginning."""
_THEN_UNNAMED = re.compile(r" (?:&&|;) (?:uv )?pip install (?:-\S+ )*THE_PACKAGE[^&;#]*(?=$|   #)")

_UNNAMED = re.compile(r"\b(?:uv )?pip install ((?:-\S+ )*)THE_PACKAGE((?: -\S+)*)")
_INSTALLS = re.compile(r"\bpip install |\buv (?:pip install|add|sync)\b")
_OF_A_PLACE = re.compile(r"\bpip install (?:-\S+ )*['\"]?(?:\.|/|~|git\+)")
"""A command that installs a user's own folder or file, or a repository: an index has another thing of its name, or an older one."""
_A_FILE = re.compile(r"(?:\binstall|\bdownload|--pre) (?:-(?![rc] )\S+ )*[\w.-]+\.(?:txt|in|toml|ya?ml)(?= |$)")
"""A command that takes the name of a file for that of a package."""
_PROGRAM = re.compile(r"(?:\S*/)?(?:python[\d.]*|torchrun|accelerate|deepspeed|vllm) (?!-m pip)")
"""A command that runs a user's program."""
_ONLY_SETS = re.compile(r"[A-Z][A-Z0-9_]*=[^\s;&]+(?: [A-Z][A-Z0-9_]*=[^\s;&]+)*")
_BUILD_FOLDER = re.compile(r" -B ?(\S+)")

_INSTALL = "flashdepot install   # a wheel that fits this environment, or ours, which links no torch; verified before it is imported"
LINK = "flashdepot link candle --write --get   # prebuilt kernels in place of those that candle compiles"


class Advice:
    """What is said of one hit: ``values`` fill its rule's texts, ``commands`` are those that help, in the order to try them."""

    def __init__(self, hit: Hit, outcome: RuleOutcome, shell: UserShell) -> None:
        self.hit, self.outcome, self.shell = hit, outcome, shell
        asked = asked_for(hit, outcome)
        self.supply = supply_of(asked, shell, hit.rule)
        self.package = hit.package or package_meant(outcome)
        if asked and hit.rule.unasked and canonical_name(self.package.name) != asked.name:
            self.package = named(asked.name)
        self.tool = tool_of(hit, outcome, self.package)
        self.values = values_of(hit, outcome, self.package, self.tool, shell)
        self.failed = failed_command(outcome, self.tool)
        self.hints = near(outcome.hints, hit.line.number)
        said = " ".join([hit.line.text, *(line.text for line in outcome.errors)])
        self._edited: frozenset[str] = frozenset()
        self.settings = Settings(shell, hit, said, " ".join(line.text for line in self.hints))

    @property
    def commands(self) -> tuple[str, ...]:
        """What the log itself says, the rule's commands for this log and this machine, and flashdepot's own where it has something instead."""
        rule = self.hit.rule
        edits = Edits(self.shell, self.settings, self.failed or failed_command(self.outcome))
        supply = self.supply
        supplied = supply.commands(edits, self.hit.line.text) if supply else ()
        said = [
            command
            for command in commands_in(self.hints, edits.failed, edits.edit, self._carried)
            if not (_OF_OURS.search(command) and command.endswith(AS_SAID))
        ]
        said = [command for command in said if not _UNFILLED.search(code_of(command).replace("THE_COMMAND", ""))]
        asked = supply is not None and bool(said or supplied or supply.decides)
        of_rule = sorted(map(self.settings.narrowed, self._of_rule(edits, asked=asked)), key=self._place)
        there = (edits.in_sources(command) for command in of_rule if not self.shell.names_nothing(command))
        own = [c if c in self._edited else self._carried(edits.required(c)) for c in there if c]
        if any(re.search(rf"\binstall .*{re.escape(self.package.name)}\b", command) for command in own):
            own = [*map(self._carried, edits.local_wheels(self.package.name)), *own]
        if not any(map(self.settings.at_fault, of_rule)):
            undone = self.settings.undone()
            if OF_CUDA.intersection(code_of(undone).split()) and (other := self.values.get("toolkit", "")):
                undone = undone.replace("   # ", f" && {other}   # ")
            own = [*filter(None, [undone and self._carried(undone)]), *own]
        fix = [*said, *(command for command in own if _run(command) not in map(_run, said))]
        if supply:
            fix = [command for command in fix if not supply.is_useless(command)]
            supplied = supplied if supply.first or not said else ()  # the tool's own words know why
        place = 1 if supply and not supply.first else 0
        by_code: dict[str, str] = {}
        for command in (*fix[:place], *supplied, *fix[place:]):
            by_code.setdefault(_run(command), command)
        fix = list(by_code.values()) or [supply.nothing if supply else rule.why]
        ours = [] if any(LINK_CANDLE in command for command in fix) else self._ours_instead()
        first = bool(ours) and not said and not self.shell.lacks(ours[0])
        first = first and (not any(self.shell.sites) or bool(self.shell.installed("torch")))
        first = first and bool(self.hit.package or rule.rank != RANKS.index("missing-tool"))
        return tuple([*ours, *fix] if first else [*fix, *ours])

    def _of_rule(self, edits: Edits, *, asked: bool) -> Sequence[str]:
        """The rule's commands for this log's system, tool and findings, filled in; where an index was ``asked``, none that only guesses."""
        outcome, package = self.outcome, self.package
        of_system = self._of_system(edits)
        advice = self._of_what_was_found([*of_system, *(() if asked else self.hit.rule.unasked)], all_else=not asked)
        if package.name not in OURS:
            switch = _SWITCHES.get(package.name, "")
            advice = [_SWITCH.sub(switch, text) for text in advice if switch or not _SWITCH.match(text)]
        advice = [command for command in advice if self._is_ours or not _OURS_BUILDS.match(command)]
        if outcome.cargo:
            advice = [command for command in advice if LINK_CANDLE in command or not _OURS_BUILDS.match(command)]
        advice = [command for command in advice if outcome.candle or LINK_CANDLE not in command] or advice
        values = {**dict.fromkeys(("hidden", "bundle", "proxy"), "one is set here"), **self.values}
        fix = [fill(command, values, quoted=(*self.hit.groups, *UNKNOWN, "requirement")) for command in advice]
        fix = [text.replace(" --arch <gpu arch>", "") for text in self._of_this_tool(fix, advice)]
        fix = [text for text in fix if not _A_FILE.search(text)] or fix
        fix = [text for text in fix if not (self.shell.windows and is_for_posix(text))] or fix
        return [text for text in fix if not _LEFT.search(code_of(text))] or [t for t in fix if t[0] != "<"] or fix

    def _of_system(self, edits: Edits) -> Sequence[str]:
        """The rule's commands for this log's system, with those edits in place of their names that have something to change."""
        rule = self.hit.rule
        fix = (self.outcome.amd and rule.fix_amd) or (self.shell.windows and rule.fix_windows) or rule.fix
        edited = {text: edits.edit(text[1:], self.values) for text in fix if text[0] == "@"}
        self._edited = frozenset(edited.values())
        return [*filter(None, (edited.get(text, text) for text in fix))]

    @property
    def _is_ours(self) -> bool:
        """Whether the log is about something that flashdepot has."""
        name = self.package.name
        return name in OURS or name.startswith("candle") or (name == UNNAMED and not self.outcome.steps)

    def _ours_instead(self) -> Sequence[str]:
        """flashdepot's own library or wheel, where it stands in for what failed."""
        outcome, rule = self.outcome, self.hit.rule
        serves = rule.ours and self._is_ours and not outcome.amd and outcome.facts.can_run_ours
        if not serves or self.package.name == UNNAMED or (outcome.cargo and not outcome.candle):
            return []
        return [LINK if outcome.cargo else _INSTALL]

    def _carried(self, command: str) -> str:
        """The command for this machine; what it installs by no name is what the failed command installs; CMake forgets what it found."""
        failed = self.failed
        if _INSTALLS.search(failed) and (unnamed := _UNNAMED.search(command)):
            options = [word for word in unnamed[1].split() + unnamed[2].split() if word not in failed.split()]
            command = _UNNAMED.sub(lambda _: " ".join([failed, *options]), command)
        named = f"pip install {self.package.name} --no-build-isolation"
        if named in command and _OF_A_PLACE.search(failed):
            isolated = "" if "--no-build-isolation" in failed else " --no-build-isolation"
            command = re.sub(rf"(?:\buv )?{re.escape(named)}", lambda _: f"{failed}{isolated}", command)
        elif release := self._release:
            command = command.replace(named, named.replace(" --", f"=={release} --"))
        if whole := failed or failed_command(self.outcome):
            command = command.replace("THE_COMMAND", whole)
        if _PROGRAM.match(failed):
            command = command.replace("python ...", failed)
        if _ONLY_SETS.fullmatch(code := code_of(command)):
            run = f" && {failed}" if failed and not self.shell.windows else ""
            command = f"export {code}{run}{command[len(code) :]}"
        command = self.shell.carried(_set_once(_THEN_UNNAMED.sub("", command)), self.tool)
        code = code_of(command)
        folder = (
            _BUILD_FOLDER.search(failed) if self.tool == "cmake" and is_command(code) and not _looks(code) else None
        )
        if folder and "rm -rf" not in code and not _UNFILLED.search(code) and folder[1] not in code:
            command = f"{code} && rm -rf {folder[1]}/CMakeCache.txt {folder[1]}/CMakeFiles{command[len(code) :]}"
        return command

    @property
    def _release(self) -> str:
        """The release that was being built, where another would not help and may not be what is asked for."""
        step, name = self.hit.step, self.package.name
        same = step is not None and step.package.lower().replace("_", "-") == name and self.hit.rule.id in _ANY_RELEASE
        return step.version if step and same and _RELEASE.fullmatch(step.version) else ""

    def _of_what_was_found(self, advice: Sequence[str], *, all_else: bool) -> Sequence[str]:
        """Advice without what names a thing that is not known here, such as another one of the rule's than the log names.

        :param all_else: whether all of it is given where nothing is left.
        """
        known = self.values.keys() | _MAY_BE_LEFT
        found = [c for c in advice if known.issuperset(NAME.findall(c)) or self.settings.at_fault(c)]
        return found or (advice if all_else else ())

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
            if BRINGS_CUDA.match(c) or not (is_of_other(c) and found.isdisjoint(NAME.findall(raw)))
        ]
        return kept or fix

    def _place(self, command: str) -> tuple[bool, ...]:
        """Where a command stands: what fixes before what has to be filled in or is prose, and that before what only looks."""
        code = code_of(command)
        prose = not is_command(code.replace("THE_COMMAND", "python"))
        lacks = self.shell.lacks(command)
        return (
            not self.settings.at_fault(command),
            _LONG in code,
            _looks(code),
            lacks,
            prose or _UNFILLED.search(code.replace("THE_COMMAND", "")) is not None,
        )


def _set_once(command: str) -> str:
    """The command without what the failed one in it sets of the variables that stand first: that would undo them."""
    start = _FIRST_SETTINGS.match(command)
    for name in re.findall(r"([A-Z][A-Z0-9_]*)=", start[0]) if start else ():
        first, sets, rest = command.partition(f"{name}=")
        again = rf"\bexport {name}=[^\s$]+ (?:&&|;) |(?<=[\s;&]){name}=[^\s$]+ "
        command = f"{first}{sets}{re.sub(again, '', rest)}"
    return command


def _run(command: str) -> str:
    """What a command runs, whichever Python is named before it."""
    return code_of(command).removeprefix("python -m ")


def _looks(code: str) -> bool:
    """Whether it only looks, and changes nothing."""
    parts = (part[match.end() :] for part in _PART.split(code) if (match := _SETTINGS.match(part)))
    return all(map(_LOOKS.match, parts))
