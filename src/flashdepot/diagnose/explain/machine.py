"""What a log says of the machine that wrote it, and of the packages that it is about."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.diagnose.explain.lines import begin_of_line, end_of_line
from flashdepot.diagnose.explain.pattern import Pattern
from flashdepot.diagnose.explain.rules import SENTENCES
from flashdepot.diagnose.explain.steps import NODES, Step
from flashdepot.errors import UsageError
from flashdepot.facts import torch_symbol_patterns
from flashdepot.facts.gpus import parse_architecture
from flashdepot.files.documents import read_toml
from flashdepot.model.target import Architecture, Version

_SIGNS = {name: Pattern.parse(text) for name, text in SENTENCES.machine_signs.items()}
_GPU, _NOT_HERE = _SIGNS["gpu"], _SIGNS["not_here"]
_FACTS = {name: Pattern.parse(text) for name, text in SENTENCES.machine.items()}
_CPU_BUILD = _SIGNS["cpu_build"]
PATTERNS = (_GPU, _CPU_BUILD, *_FACTS.values())
"""All that is looked for in a log."""

UNNAMED = "THE_PACKAGE"

FROM_SOURCE = "cd THE_SOURCE && pip install --force-reinstall --no-deps --no-build-isolation ."
"""How a module is built again of which no package is known: it may be the user's own, and PyPI's of its name a stranger's."""

_GPUS_KEPT = 8
_OF_CUDA = re.compile(
    r"(?:lib)?(cublas|cudart|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|nccl|nvjitlink|nvrtc|nvshmem)(?:.*\.so\.(\d+))?"
)
_PARTS = {"cudart": "cuda_runtime", "nvrtc": "cuda_nvrtc", "cupti": "cuda_cupti"}
_READ = 100
"""Places of a piece of a log that are read for a GPU."""


_OF_A_TAG = re.compile(r"^3(\d+)$")
"""A version of Python as wheels have it in their names, ``310``."""


class MachineFacts(msgspec.Struct):
    """What the log itself names, each as it spells it; empty where it does not."""

    gpus: dict[str, Architecture | None] = {}
    driver: str = ""
    torch: str = ""
    cuda: str = ""
    python: str = ""
    os: str = ""
    index: str = ""
    prefix: str = ""
    cpu_builds: list[str] = []
    """Packages of which an installer took, or is to take, a build for the CPU."""

    def read(self, text: bytes, possible: set[Pattern]) -> None:
        """Take what a piece of a log says: of each fact but the GPUs, what it says first."""
        for name, pattern in _FACTS.items():
            if not getattr(self, name) and pattern in possible and (found := pattern.search(text)):
                value = next(v for v in found.groupdict().values() if v).decode(errors="replace")
                setattr(self, name, _OF_A_TAG.sub(r"3.\1", value) if name == "python" else value)
        for found in islice(_CPU_BUILD.each(text), _READ) if _CPU_BUILD in possible else ():
            name = next(v for v in found.groupdict().values() if v).decode(errors="replace")
            if name not in self.cpu_builds:
                self.cpu_builds.append(name)
        for found in islice(_GPU.each(text), _READ) if _GPU in possible and len(self.gpus) < _GPUS_KEPT else ():
            line = text[begin_of_line(text, found.start()) : end_of_line(text, found.end())]
            if not _NOT_HERE.search(line[:400]):
                name = (found.groupdict()["gpu"] or b"").decode(errors="replace")
                plain = re.sub(r"^(?:GPUs?:? |\d ?[x\u00d7] ?|on (?:an? )?)", "", name)
                self.gpus.setdefault(plain, _architecture(plain))

    @property
    def can_run_ours(self) -> bool:
        """Whether a GPU that the log names may run FlashAttention-2, or it names none, and no system that has no such GPU."""
        return self.os != "macOS" and (
            not self.gpus or any(gpu is None or gpu >= Architecture(8, 0) for gpu in self.gpus.values())
        )

    def to_json(self) -> dict[str, Any]:
        """The facts in the document of ``--json``."""
        return {**msgspec.structs.asdict(self), "gpus": list(self.gpus)}


_VOLTA = re.compile(r"\b(?:V100|TITAN V)\b", re.IGNORECASE)
_BEFORE_VOLTA = re.compile(r"\b(?:[PKM]\d{2,3}|GTX (?:9|10)\d\d|TITAN Xp?)\b", re.IGNORECASE)


def _architecture(name: str) -> Architecture | None:
    if _VOLTA.search(name):
        return Architecture(7, 0)
    if _BEFORE_VOLTA.search(name):
        return Architecture(5, 0)
    try:
        return parse_architecture(name)
    except UsageError:
        return None


_GENERATIONS = {b"turing": Architecture(7, 5), b"ampere": Architecture(8, 0), b"ada": Architecture(8, 9)}


def has_gpu_asked_for(line: str, facts: MachineFacts) -> bool:
    """Whether the GPUs that the log names have what the line asks for, as far as a newer one always has it."""
    text = line.lower().encode()
    needed = [gpu for name, gpu in _GENERATIONS.items() if re.search(rb"\b" + name + rb"\b", text)]
    if found := _SIGNS["needed"].search(text):
        groups = found.groupdict()
        needed.append(Architecture(int(groups["major"] or 0), int(groups["minor"] or 0)))
    return (
        bool(facts.gpus and needed)
        and min(needed) < Architecture(9, 0)
        and all(gpu is not None and gpu >= min(needed) for gpu in facts.gpus.values())
    )


class Package(msgspec.Struct, frozen=True):
    """A package by its name on an index, and the command that rebuilds it for the torch that is there."""

    name: str
    modules: tuple[str, ...]
    rebuild: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "rebuild", self.rebuild or f"python -m pip install -U {self.name}")

    @property
    def by_name(self) -> bool:
        """Whether an index has it under its name; what is built from a repository may be another project there."""
        return re.search(r"git\+|git clone|\./", self.rebuild) is None

    @property
    def values(self) -> Mapping[str, str]:
        """What the advice of a rule can have in braces."""
        return {"package": self.name, "rebuild": self.rebuild, "module": self.modules[0]}


def package_of(line: str, step: Step | None) -> Package | None:
    """The package whose file or module a line names, else the one that its step is about."""
    text = line.encode()
    if (found := _SIGNS["loaded"].search(text)) and (package := _table().get(_name(found, "module"))):
        if package.name not in ("torch", "setuptools") or step is None or not (step.installer or step.phase == "build"):
            return package
        return named(step.package) if step.package else None  # a build that lacks these is another package's
    if found := _SIGNS["module_file"].search(text):
        folder = _name(found, "folder")
        for name in (_name(found, "module"), folder):
            if package := _table().get(name):
                return package
        if folder:
            return named(folder) if is_published(folder) else Package(UNNAMED, (folder,), FROM_SOURCE)
        for part in reversed(re.split(r"[\\/]", text[: found.end()].decode(errors="replace"))[1:-1]):
            if package := _table().get(part.lower()):
                return package
    return named(step.package) if step and step.package else None


def package_in(sentence: str) -> Package | None:
    """The package that a person's sentence names, in one word or in two; torch, which most are about, only where no other is."""
    words = re.findall(r"[A-Za-z][\w-]*", sentence.lower())
    pairs = zip(words, [*words[1:], ""], strict=False)
    spelled = [name for one, other in pairs for name in (f"{one}-{other}", one + other, one)]
    spelled = [
        other
        for name in spelled
        for other in (name, name.replace("attention", "attn"), name.replace("attn", "attention"))
    ]
    found = [known for name in spelled if (known := _by_name().get(name.replace("_", "-")) or _table().get(name))]
    return next((package for package in found if package.name not in _GENERAL), found[0] if found else None)


_GENERAL = frozenset({"torch", "transformers", "numpy", "setuptools"})


def how_to_install(module: str) -> str:
    """The command that brings a module: the table's for its package, else pip's, with its name only where that is known to be the package's."""
    top = module.partition(".")[0]
    known = _table().get(top.lower()) if top != "torch" else None
    return known.rebuild if known else f"python -m pip install {top if is_published(top) else 'THE_DISTRIBUTION'}"


def is_published(module: str) -> bool:
    """Whether the package is known that has the module: of any other, PyPI's package of that name may be a stranger's."""
    return module.lower() in _table() or module in _same_names()


@cache
def known_names() -> Sequence[str]:
    """The packages of the field and of its programs, as an index spells them."""
    return (*_by_name(), *(name.replace("_", "-") for name in _same_names()))


@cache
def _same_names() -> frozenset[str]:
    return frozenset(_data()["same_name"]["modules"].split())


def wheel_with(library: str) -> dict[str, str]:
    """The package of PyPI that has a library of CUDA's, and its module, for the names in advice; or that it is the driver's."""
    found = _OF_CUDA.match(library.lower())
    if not found:
        return {"driver_library": library} if library.partition(".")[0] in ("cuda", "libcuda") else {}
    name, soname = found.groups("")
    part = _PARTS.get(name, name)
    wheel = f"nvidia-{part.replace('_', '-')}"
    if name in ("cudart", "cublas") and soname == "13":
        return {"wheel": wheel, "wheel_module": "nvidia.cu13"}
    if name in ("cudart", "cublas"):
        return {"wheel": f"{wheel}-cu{soname or 12}", "wheel_module": f"nvidia.{part}"}
    release = f"=={soname}.*" if name == "cudnn" and soname else ""
    return {"own_wheel": shlex.quote(f"{wheel}-cu12{release}"), "wheel_module": f"nvidia.{part}"}


def _name(found: re.Match[bytes], group: str) -> str:
    return (found.groupdict()[group] or b"").decode(errors="replace").lower()


def named(name: str) -> Package:
    """The package of that name, of the table or with pip's own way to rebuild one."""
    if name.startswith(NODES):
        return Package(name, (name,), f"git -C {name} pull && python -m pip install -r {name}/requirements.txt")
    known = _table().get(name.lower().replace("-", "_")) or _by_name().get(name.lower().replace("_", "-"))
    rebuild = f"pip uninstall -y {name}; pip install {name} --no-build-isolation --no-cache-dir"
    return known or Package(name, (name.replace("-", "_"),), rebuild)


@cache
def _data() -> Mapping[str, Any]:
    return read_toml(Path(__file__).with_name("packages.toml"))


@cache
def _packages() -> tuple[Package, ...]:
    modules, rebuild = _data()["modules"], _data()["rebuild"]
    names = dict.fromkeys((*modules, *rebuild))
    return tuple(
        Package(name, tuple(modules.get(name, (name.replace("-", "_"),))), rebuild.get(name, "")) for name in names
    )


def of_debian(thing: str) -> dict[str, str]:
    """The package of Debian and Ubuntu that has a header, a library or a program, for the name in advice; nothing if not known."""
    found = _data()["debian"].get(thing)
    return {"debian": found} if found else {}


def cuda_wheel(header: str) -> dict[str, str]:
    """The part of PyPI's cuda-toolkit that has a header of CUDA, for the name in advice; nothing if not known."""
    part = next((part for part, begins in _data()["cuda_headers"].items() if header.startswith(tuple(begins))), "")
    if not part and (library := _OF_CUDA.match(header)) and library[1] not in ("cudnn", "nccl", "nvshmem"):
        part = library[1]
    return {"cuda_part": part} if part else {}


@cache
def _table() -> Mapping[str, Package]:
    return {module.lower(): package for package in _packages() for module in package.modules}


@cache
def _by_name() -> Mapping[str, Package]:
    return {package.name: package for package in _packages()}


class TorchRange(msgspec.Struct, frozen=True):
    """The torch minor releases that export a symbol, and the C++ ABI that it belongs to; ``None``: not known."""

    first: Version | None = None
    last: Version | None = None
    cxx11_abi: bool | None = None

    def holds(self, torch: Version) -> bool:
        """Whether that torch, as far as versions go, exports the symbol."""
        minor = torch.numbers[:2]
        after = self.first is None or self.first.numbers[:2] <= minor
        return after and (self.last is None or minor <= self.last.numbers[:2])

    def __str__(self) -> str:
        if self.first and self.last:
            return f"torch {self.first} to {self.last}"
        if self.first:
            return f"torch {self.first} or newer"
        if self.last:
            return f"torch {self.last} or older"
        return (
            f"a torch with the {'C++11' if self.cxx11_abi else 'old'} ABI (_GLIBCXX_USE_CXX11_ABI={self.cxx11_abi:d})"
        )


_OLD_STRING = re.compile(r"_ZN(?:K?3c10|2at|5torch)\w*E\w*Ss(?:$|[A-Z_\d])")
"""A function of torch's that takes a string of the old C++ ABI (Itanium C++ ABI, 5.1.8: Ss)."""


def built_for(symbol: str) -> TorchRange | None:
    """What the symbol tells, or ``None`` for one that tells nothing."""
    known = next((torch for pattern, torch in _torch_table() if pattern.search(symbol.encode())), None)
    return known or (TorchRange(cxx11_abi=False) if _OLD_STRING.match(symbol) else None)


@cache
def _torch_table() -> tuple[tuple[Pattern, TorchRange], ...]:
    rows = []
    for row in torch_symbol_patterns():
        first, last = (Version.parse(row[name]) if name in row else None for name in ("first", "last"))
        rows.append((Pattern.parse(row["pattern"]), TorchRange(first, last, row.get("cxx11_abi"))))
    return tuple(rows)
