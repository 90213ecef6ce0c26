"""What replaces the names of a rule's texts: what the log, its packages and this machine say."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping

from flashdepot.diagnose.explain.cuda import cuda_values, minor, root_of
from flashdepot.diagnose.explain.hint import TYPED
from flashdepot.diagnose.explain.machine import (
    FROM_SOURCE,
    UNNAMED,
    Package,
    cuda_wheel,
    how_to_install,
    is_published,
    named,
    of_debian,
    wheel_with,
)
from flashdepot.diagnose.explain.match import RuleOutcome
from flashdepot.diagnose.explain.piece import Hit
from flashdepot.diagnose.explain.releases import PYTHONS, chosen, holds
from flashdepot.diagnose.explain.shell import UserShell
from flashdepot.diagnose.explain.steps import COMMAND_KEPT, NODES, commands_of
from flashdepot.model.host import HostRecord

SHOWN = 300
"""Characters of a line, or of what it puts into a command, that are shown."""

OURS = ("flash-attn", "flash-attn-3", "flash-attn-4")
"""Packages in whose place flashdepot has something; the first is meant where a log speaks only of FlashAttention."""

FOR_AMD = "FLASH_ATTENTION_TRITON_AMD_ENABLE=TRUE pip install flash-attn --no-build-isolation"
"""What brings upstream's own backend for AMD's GPUs, in Triton."""

_JOB_BYTES = 7 * 10**9  # the largest unit needs 6.6 GB: benchmarks/README.md
_JOBS = re.compile(r" (?:-j ?\d*|--(?:parallel|jobs)(?:[ =]\d+)?)(?= |$)")
NAME = re.compile(r"\{(\w+)\}")

TOOLS = {
    **dict.fromkeys(
        ("pip", "uv", "poetry", "pdm", "pipenv", "pixi", "maturin", "python", "torchrun", "server"), "python"
    ),
    **{name: name for name in ("cargo", "conda", "cmake", "git", "compiler")},
    "nvcc": "compiler",
}
"""Whose commands help where a step is of that tool."""
_OF_A_PROJECT = frozenset({"cmake", "make", "ninja"})
"""Commands that build the user's own folder, not a package."""
_OPTIONS = ("option", "other", "clap", "flag", "choice", "msvc", "gnu")
_OF_TORCH = frozenset({*OURS, UNNAMED, "torch", "torchvision", "torchaudio", "triton"})
"""What an upgrade by itself breaks, or compiles for an hour."""
_ARCHITECTURES = re.compile(r" (?:-arch|-code|-gencode|--gpu-(?:architecture|code))[= ]\S+")
"""What a command line of nvcc says of GPUs."""
_OF_GIT = "fatal: "
_IN_LINE = {
    "path": re.compile(r"(?:^|[\s'\"`(=])(/(?!usr/bin|bin/)[^\s'\"`:,;)]+)"),
    "url": re.compile(r"https?://[^\s'\"`,;)]+"),
}
_REQUIREMENT = re.compile(
    r"(?<![\w.-])([A-Za-z][\w.-]*(?:\[[\w,]+\])?(?: ?(?:[<>=!~]=|[<>]) ?\d[\w.*]*,?)+)(?=['\"`\s;:.)]|$)"
)
_PIN = re.compile(r"(?<=[ '\"])([A-Za-z][\w.-]*(?:\[[\w,-]+\])?)(?:[=<>!~]=?\d[^\s'\"]*)")
"""A package in a command, with the versions that it may have."""
_LOCAL = re.compile(r"\b([A-Za-z][\w.-]*==\d[\w.]*)\+\w")
_FREE = re.compile(r"Free memory on device.{0,20}\((\d+\.?\d*)/([1-9]\d*\.?\d*) GiB\)")
"""Free and whole memory of a GPU, as vLLM says them."""
_VERSIONS = re.compile(
    r"\(from versions: (?:.*, )?(\d[\w.]*)\)|candidate versions found which didn.t match: (\d[\w.]*)"
    r"|ecause only [\w.-]+?[<=]=(\d[\w.]*) (?:is|are) available"
)
"""The newest of the versions that pip, cargo and uv list."""
_CUDA_FEATURE = re.compile(r"\bcuda-(1\d{4})\b")
_OLDER_CUDA = 12080
"""The release of CUDA, as cudarc spells it, that every toolkit and driver of the last years serves."""
UNKNOWN = {"path": ".", "folder": ".", "url": "THE_URL"}
"""What stands for what a line does not name."""


_BOUNDS = re.compile(r"[<>=~!]=? ?3\.\d+(?:\.\*)?")


def _release_for(line: str, failed: int) -> str:
    """The usual release of Python that a line's bounds leave, not that which failed."""
    spec = ",".join(_BOUNDS.findall(line))
    return chosen(frozenset(n for n in PYTHONS if holds(spec, f"3.{n}.30")), failed) or "3.12"


def package_meant(outcome: RuleOutcome) -> Package:
    """What advice speaks of where no line names a package."""
    if outcome.flash and next((step.tool for step in outcome.steps if step.command), "") not in _OF_A_PROJECT:
        return named(OURS[0])
    return Package(UNNAMED, named(UNNAMED).modules, FROM_SOURCE)


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

    return NAME.sub(value, text)


def tool_of(hit: Hit, outcome: RuleOutcome, package: Package) -> str:
    """Whose commands help: those of what began the work, of what the line's step runs, or of Python, which most logs are of.

    A compiler's own log is that of a package where it speaks of one: its command line is not the user's.
    """
    step, steps = hit.step, outcome.steps
    tools = [step.installer, step.tool] if step else []
    if outcome.cargo:
        return "cargo"
    if hit.line.text.startswith(_OF_GIT) or "git" in tools:
        return "git"
    known = [TOOLS[name] for name in (*tools, *(one.installer or one.tool for one in steps)) if name in TOOLS]
    if package.name == UNNAMED:
        return next((name for name in known if name != "compiler"), known[0] if known else "python")
    return "conda" if known[:1] == ["conda"] else "python"


def failed_command(outcome: RuleOutcome, tool: str = "") -> str:
    """The command that failed, of a tool or of any, where the log or the user has it, and it may be said again.

    Of several in one line it is the one of what failed: of a tool that wrote the last step, else the first that installs or builds.
    """
    steps = [step for step in outcome.steps if step.command and (not tool or TOOLS.get(step.tool) == tool)]
    if not steps or len(steps[-1].command) >= COMMAND_KEPT or steps[-1].command.endswith("successfully."):
        return ""
    parts = [part for part in commands_of(steps[-1].command) if not tool or TOOLS.get(part.tool) == tool]
    last = next((step.tool for step in reversed(outcome.steps) if not step.command), "")
    of_last = next((part for part in parts if part.tool == last), None)
    failed = of_last or next((part for part in parts if part.phase not in ("run", "import", "fetch")), None)
    command = (failed or parts[-1]).command if parts else steps[-1].command
    return command if TYPED.fullmatch(command) else ""


def values_of(hit: Hit, outcome: RuleOutcome, package: Package, tool: str, shell: UserShell) -> Mapping[str, str]:
    """All that is known, by the names that rules have for it."""
    usual = {"jobs": "2", "room": "/other/disk", "cuda_release": "==13.0.*", "for_amd": FOR_AMD}
    if shell.windows or shell.host is None:
        cuda = "%CUDA_PATH%" if shell.windows else "/usr/local/cuda"
        usual |= {"any_cuda": cuda, "cuda_home": cuda, "other_cuda_home": cuda, "cuda_lib": f"{cuda}/lib64"}
    values = {
        **usual,
        **({"room": shell.room} if shell.room else {}),
        **_of_host(shell.host),
        **_of_log(outcome),
        **package.values,
        **hit.groups,
    }
    if "only" in hit.groups:
        values["package"] = hit.groups["only"]
    values |= cuda_values(shell, outcome, hit.groups)
    values |= wheel_with(hit.groups.get("library") or hit.groups.get("symbol", "").lstrip("_"))
    values |= _in_line(hit.line.text)
    values["python_release"] = _release_for(hit.line.text, shell.minor)
    values["install"] = how_to_install(values["module"])
    top = values["module"].partition(".")[0]
    if top in sys.stdlib_module_names:
        values["own_module"] = top
    elif not is_published(top):
        values["unpublished"] = top
    asking = (hit.step and hit.step.package) or UNNAMED
    if asking.startswith(NODES):
        values["node"], asking = asking, UNNAMED
    values["asking"] = asking if asking == UNNAMED else named(asking).name
    theirs = top not in sys.stdlib_module_names and (is_published(top) or f"-packages/{top}" in hit.line.text)
    asked = named(top)
    values["both"] = _both(values["asking"], asked.name if theirs and asked.by_name else UNNAMED)
    values |= {} if asked.by_name else {"repository": asked.rebuild}
    pair = [name for name in values["both"].split() if name not in _OF_TORCH]
    values |= {"pair": " ".join(pair)} if pair and asking != UNNAMED else {}
    for name in ("header", "library", "tool", "program"):
        values |= of_debian(hit.groups.get(name, ""))
    values |= cuda_wheel(hit.groups.get("header") or hit.groups.get("library", ""))
    option = next((hit.groups[name] for name in _OPTIONS if name in hit.groups), "")
    values |= {"option": option} if option else {}
    values |= {name: values[name].lower() for name in ("program", "tool") if name in values}
    values["low"] = values.get("name", UNNAMED).lower()
    if headers := shell.python_headers:
        values["python_headers"] = shlex.quote(headers)
    if hit.step and hit.step.installer in ("pip", "uv") and package.name not in {*_OF_TORCH, "UNKNOWN"}:
        values["wheeled"] = package.name
    if not outcome.cargo:
        values["loaded"] = package.name
    if hit.step and hit.step.phase == "build" and hit.step.installer and "no-build-isolation" not in shell.command:
        values["isolated"] = failed_command(outcome, tool) or f"pip install {package.name}"
    if not shell.windows:
        values.pop("windows", "")  # what only Windows lacks
    failed = failed_command(outcome, tool)
    prefix = shell.host.python.prefix if shell.host and shell.host.python else None
    if prefix and hit.rule.id == "disk-full" and shell.files.is_full(str(prefix)):
        values.setdefault("site", str(prefix))
    last = failed or failed_command(outcome)
    last = "make -j2" if not _JOBS.search(last) and tool in ("cmake", "compiler") else last
    serial = _JOBS.sub(" -j1", last)
    if serial != last:
        values["serial"] = serial
    if (unpinned := _PIN.sub(r"\1", failed)) != failed:
        values["unpinned"] = unpinned
    values["again"] = failed or _usual_command(tool, package)
    values["for_gpu"] = _for_gpu(values, tool, package)
    return values


def _usual_command(tool: str, package: Package) -> str:
    usual = {
        "cargo": "cargo build",
        "cmake": "cmake -S . -B build",
        "compiler": "nvcc ...",
        "conda": "conda install ...",
    }
    return usual.get(tool, f"pip install {package.name} --no-build-isolation")


def _for_gpu(values: Mapping[str, str], tool: str, package: Package) -> str:
    """The command that failed, for one architecture: that of the GPU, or the oldest that these kernels are for."""
    arch, capability, again = values.get("gpu_arch", "80"), values.get("gpu_capability", "8.0"), values["again"]
    if tool == "cargo":
        return f"CUDA_COMPUTE_CAP={arch} {again}"
    if tool == "cmake":
        again = (
            re.sub(r" -DCMAKE_CUDA_ARCHITECTURES=\S*", "", again)
            if "--build" not in again
            else _usual_command(tool, package)
        )
        return f"rm -rf build; {again} -DCMAKE_CUDA_ARCHITECTURES={arch}"
    if tool == "compiler":
        return f"{_ARCHITECTURES.sub('', again)} -gencode arch=compute_{arch},code=sm_{arch}"
    flash = f"FLASH_ATTN_CUDA_ARCHS={arch} " if package.name in OURS else ""
    return f"{flash}TORCH_CUDA_ARCH_LIST={capability} {again}"


def _both(asking: str, asked: str) -> str:
    """The names of two packages that should be of one time; torch, which takes long, only by itself."""
    names = [name for name in dict.fromkeys((asking, asked)) if name not in ("torch", UNNAMED)]
    return " ".join(names) or (UNNAMED if UNNAMED in (asking, asked) else "torch")


def _in_line(text: str) -> dict[str, str]:
    """The last path and address that a line names, or what stands for them, and the first requirement."""
    found = {name: match[-1] for name, pattern in _IN_LINE.items() if (match := pattern.findall(text))}
    if (asked := _REQUIREMENT.search(text)) is not None:
        found["requirement"] = asked[1].rstrip(",")
    if (local := _LOCAL.search(text)) is not None:
        found["plain"] = local[1]
    if (there := _VERSIONS.search(text)) is not None:
        found["newest"] = next(filter(None, there.groups()))
    if numbers := sorted(map(int, _CUDA_FEATURE.findall(text))):
        found["cuda_feature"] = f"cuda-{next((n for n in reversed(numbers) if n <= _OLDER_CUDA), numbers[0])}"
    if (memory := _FREE.search(text)) is not None:
        found["utilization"] = f"{max(0.05, float(memory[1]) / float(memory[2]) - 0.02):.2f}"
    if "path" in found:
        found["folder"] = found["path"].rpartition("/")[0] or "/"
    return {**UNKNOWN, **found}


def _of_log(outcome: RuleOutcome) -> dict[str, str]:
    """What the log says of its own machine, which comes before what is known of this one."""
    gpus = {gpu for gpu in outcome.facts.gpus.values() if gpu is not None}
    if len(gpus) != 1 or None in outcome.facts.gpus.values():
        return {}
    gpu = gpus.pop()
    return {"gpu_arch": str(gpu), "gpu_capability": gpu.dotted}


def _of_host(host: HostRecord | None) -> dict[str, str]:
    if host is None:
        return {}
    values = {"jobs": str(max(1, min(host.cores, host.memory // _JOB_BYTES)))} if host.memory else {}
    if host.gpus:
        values["gpu_arch"] = str(host.gpus[0].architecture)
        values["gpu_capability"] = host.gpus[0].architecture.dotted
    if host.toolkits:
        values["cuda_home"] = root_of(host.toolkits[0])
        values["cuda_release"] = f"=={minor(host.toolkits[0].version)}.*"
    if host.compilers:
        values["compiler"] = host.compilers[0].path
    return values
