"""What is installed where the command failed, what else of it is here, and where the user's own files ask for FlashAttention."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from flashdepot.diagnose.explain.channels import OfConda
from flashdepot.diagnose.explain.hint import TYPED
from flashdepot.diagnose.explain.machine import built_for, named
from flashdepot.diagnose.explain.releases import Here, wheel_serves
from flashdepot.diagnose.explain.steps import commands_of
from flashdepot.errors import UsageError
from flashdepot.model.target import Version
from flashdepot.model.wheel import WheelName, numbers_of, version_key

_SOURCES = ("*.py", "*/*.py", "*/*/*.py", "config.json", "*/config.json", "*/*/config.json", "*.sh", "*/*.sh", "*.y*ml", "*/*.y*ml")  # fmt: skip
_ASKS_FOR_FLASH = re.compile(
    r"(?P<name>attn[_-]implementation[\"']?\s*[:= ]\s*[\"']?)flash_attention_[23]|(?P<switch>\buse_flash_attention_2\s*=\s*)True"
    r"|(?P<word>(?:--|^\s*)flash_attn[:= ]+)(?:fa2|on)\b|(?P<lower>^\s*flash_attention:\s*)true"
)
"""How programs of the field take FlashAttention: what stands before the value, by the kind of value."""
_SINCE = (4, 36)
"""The release of transformers that knows attn_implementation."""
_OLD_ABI = "2.6"
"""The last torch whose wheels on PyPI have the old C++ ABI."""
_WITH_WHEELS = {
    "cupy": "cupy-cuda12x",
    "faiss": "faiss-cpu",
    "faiss-gpu": "faiss-gpu-cu12",
    "tensorflow-gpu": "tensorflow",
}
"""Projects of an index that have source only or no more, and those that have their wheels."""
_LISTED = 2
"""Wheels that are named of those that are here."""
_IN_SOURCES = re.compile(r"sed -i\.bak 's/(?P<old>[^/]+)/.* \*\.py$")

_INSTALLS_ONE = re.compile(
    r"(?:(?:python -m |uv )?pip install|cargo add) (?:-U |--only-binary :all: )*'?(?P<name>[A-Za-z][\w.-]*)(?P<spec>[<>=!~][^'\s]*)?'?"
)
"""A command that installs one package, of a release or of any."""
_OF_A_PROJECT = re.compile(r"pip install|\b(?:uv|poetry|pdm) (?:add|sync|lock|run|pip|install|update)|\bconda ")
_TABLES = ("pyproject.toml", "Pipfile", "pixi.toml")
"""What names packages by the keys of a table."""


class OfInstalled(OfConda):
    """A project, by what is installed where it runs."""

    def local_wheels(self, name: str) -> list[str]:
        """The commands that install wheels of a package that are here and fit, the one that is installed last."""
        spelled, there = re.sub(r"[-_.]+", "[-_]", name), self.shell.installed(name).partition("+")[0]
        libc = self.shell.host.libc if self.shell.host else None
        fits: dict[str, str] = {}
        for path in (*self.files.find(f"{spelled}-*.whl"), *self.files.find(f"*/{spelled}-*.whl")):
            try:
                wheel = WheelName.parse(Path(path).name)
            except UsageError:
                continue
            if wheel_serves(wheel, Here(self.shell.minor, self.shell.platform, libc)):
                fits[wheel.version] = path
        versions = sorted(fits, key=lambda version: (version != there, version_key(version)), reverse=True)[:_LISTED]
        install = "pip install --no-deps --force-reinstall"
        return [
            f"{install} {shlex.quote(f'./{fits[version]}')}   # a wheel of {name} that is here" for version in versions
        ]

    def required(self, command: str) -> str:
        """A command that installs one package as a change of the file, or of the failed command, that asks for another release of it."""
        code, _, remark = command.partition("   # ")
        found = _INSTALLS_ONE.fullmatch(code)
        installs = _OF_A_PROJECT.search(f"{self.failed} {self.shell.command}") or (
            not self.failed and {"PIP", "UV"} & self.shell.tools
        )
        if not found or "THE_" in code or not installs:
            return command
        return self.at_release(found["name"], found["spec"] or "", remark) or command

    def at_release(self, name: str, spec: str, remark: str) -> str:
        """The file, or the failed command, that bounds a package's release, with other bounds or with none; empty where none does."""
        listed = self.written(bounded(name), rf"\g<name>{spec}", remark, self.lists)
        return listed or self.written(_in_table(name), rf"\g<entry>{spec or '*'}", remark, _TABLES)

    def in_sources(self, command: str) -> str:
        """A command that changes ``*.py``, for the files here that have what it changes; empty where none has."""
        code, mark, remark = command.partition("   # ")
        if not (found := _IN_SOURCES.match(code)) or not self.files.here:
            return command
        old = re.sub(r"\\b|\\", "", found["old"])
        files = (path for pattern in _SOURCES[:3] for path in self.files.find(pattern))
        having = [shlex.quote(path) for path in files if old in self.files.text(path)]
        return f"{code.removesuffix('*.py')}{' '.join(having)}{mark}{remark}" if having else ""

    def _attention(self, _given: str, _groups: Mapping[str, str]) -> str:
        """What asks for FlashAttention, in the command or, where it names a file that is here, in the files, with another attention in its place."""
        own = [path for pattern in ("modeling_*.py", "*/modeling_*.py") for path in self.files.find(pattern)]
        value = "eager" if own and not any("sdpa" in self.files.text(path).lower() for path in own) else "sdpa"
        kinds = {"name": value, "switch": "False", "word": value, "lower": "false"}

        def other(found: re.Match[str]) -> str:
            kind = next(kind for kind in kinds if found[kind])
            return found[kind] + kinds[kind]

        sources = _SOURCES if any(self.files.find(glob.escape(word)) for word in self.failed.split()) else ()
        if changed := self.written(_ASKS_FOR_FLASH, other, "where it need not be FlashAttention", sources):
            return changed
        there = self.shell.installed("transformers")
        known = not self.files.here or (there and numbers_of(there) >= _SINCE)
        return 'attn_implementation="sdpa"   # transformers: where it need not be FlashAttention' if known else ""

    def _atleast(self, _given: str, groups: Mapping[str, str]) -> str:
        """A newer release of a package that a line names, where it says from which on."""
        package = named(groups["name"]).name
        command = self.required(f"pip install '{package}>={groups['number']}'   # what the line asks for")
        return self.shell.carried(command, "python")

    def _csrc(self, _given: str, groups: Mapping[str, str]) -> str:
        """A part of FlashAttention that is a package of its own, from its folder where that is here."""
        folders = (
            path for depth in ("", "*/", "*/*/") for path in self.files.find(f"{depth}csrc/{groups['name']}/setup.py")
        )
        place = next((str(Path(path).parent) for path in folders), "")
        command = f"pip install --no-build-isolation ./{place}" if place else named(_CSRC[groups["name"]]).rebuild
        return self.shell.carried(
            f"{command}   # a package of its own, which flash-attn's wheel does not have", "python"
        )

    def _hash(self, _given: str, groups: Mapping[str, str]) -> str:
        """The file of hashes that has another one than that of the file that was taken."""
        if not {"expected", "got"} <= groups.keys():
            return ""
        remark = "the file's own, where it is the one that is meant; else: pip cache purge"
        locks = (*self.requirements, "Pipfile.lock", "poetry.lock", "uv.lock", "pylock*.toml", "*/requirements*.txt")
        return self.written(re.compile(groups["expected"]), groups["got"], remark, locks)

    def _spelled(self, _given: str, groups: Mapping[str, str]) -> str:
        """The failed command with the option as programs spell it: with hyphens, and without blanks before its value."""
        option = groups.get("option", "")
        hyphens = option.replace("_", "-")
        asked = re.compile(rf"(?<!\S){re.escape(option)}(?:\s*=\s*|(?=\s|$))")
        changed = asked.sub(lambda found: f"{hyphens}{'=' if '=' in found[0] else ''}", self.failed)
        if "_" not in option or (self.failed and changed == self.failed):
            return ""
        return f"{changed or f'{hyphens} in place of {option}'}   # with hyphens, and no blanks around ="

    def _wheels(self, _given: str, groups: Mapping[str, str]) -> str:
        """What has wheels in place of a project that has source only, and would be built against CUDA here."""
        package = groups["package"]
        name, new = next(((old, new) for old, new in _WITH_WHEELS.items() if package in (old, new)), ("", ""))
        if not name:
            return ""
        asked = re.compile(rf"(?<![\w./=-]){name}(?![\w-])\s*(?:[<>=!~][^'\";#\s]*)?")
        return self.written(asked, new, f"{name} is source, {new} has its wheels", self.lists)

    def _uncached(self, _given: str, _groups: Mapping[str, str]) -> str:
        """The command of pip's in what was run that is to build, and not to take what it built before."""
        asked = next((part.command for part in commands_of(self.shell.command) if "pip install" in part.command), "")
        options = [option for option in ("--force-reinstall", "--no-cache-dir") if option not in asked]
        if not (asked and options and TYPED.fullmatch(asked)):
            return ""
        return f"{asked} {' '.join(options)}   # built again: pip keeps what it built without CUDA"

    def _plain(self, _given: str, groups: Mapping[str, str]) -> str:
        """A release without the local version that only torch's own index has."""
        return self.at_release(groups["name"], f"=={groups['number']}", "a build with + is in torch's own index only")

    def _companion(self, _given: str, groups: Mapping[str, str]) -> str:
        """The release of torchvision or torchaudio that belongs to the torch that is there, where another one is."""
        name, torch = groups["package"], self.shell.installed("torch").partition("+")[0]
        numbers = numbers_of(torch) if torch else ()
        if name not in ("torchvision", "torchaudio") or len(numbers) < _SHOWN or numbers[0] != _MAJOR:
            return ""
        belongs = torch if name == "torchaudio" else f"0.{numbers[1] + _AHEAD}.{numbers[2]}"
        there = self.shell.installed(name).partition("+")[0]
        command = self.required(
            f"pip install {name}=={belongs}   # {there} is there, and torch {torch}: the one that belongs to it"
        )
        return self.shell.carried(command, "python") if belongs != there else ""

    def _torch(self, _given: str, groups: Mapping[str, str]) -> str:
        """The torch that a compiled module was built for, where its symbol tells which and it is another than the one there."""
        torch, there = built_for(groups.get("symbol", "")), self.shell.installed("torch")
        if torch is None or (there and torch.cxx11_abi is None and torch.holds(Version.parse(there.partition("+")[0]))):
            return ""
        last = torch.last.text if torch.last else _OLD_ABI if torch.cxx11_abi is False else ""
        spec = f"=={last}.*" if last else f">={torch.first}" if torch.first else ""
        pair = [name for name in ("torchvision", "torchaudio") if self.shell.installed(name)]
        command = f"pip install {shlex.quote(f'torch{spec}')} {' '.join(pair)}".rstrip()
        return self.shell.carried(f"{command}   # the torch that the module was built for", "python") if spec else ""


_MAJOR, _SHOWN, _AHEAD = 2, 3, 15
"""torch 2.N belongs to torchvision 0.(N + 15) and torchaudio 2.N (torch's table of releases)."""
_CSRC = {
    "layer_norm": "dropout-layer-norm",
    "rotary": "rotary-emb",
    "xentropy": "xentropy-cuda-lib",
    "fused_dense_lib": "fused-dense-lib",
}
"""The packages of FlashAttention's folder csrc."""


def any_spelling(name: str) -> str:
    """A pattern for the name of a package, however it is spelled."""
    return "[-_.]".join(map(re.escape, re.split(r"[-_.]+", name)))


def bounded(name: str) -> re.Pattern[str]:
    """A requirement of a package that bounds its release; ``name`` is what stands before the bounds."""
    return re.compile(
        rf"(?<![\w.-])(?P<name>{any_spelling(name)}(?:\[[\w,.-]+\])?)\s*(?:[<>=!~]=|[<>]|=(?=\d))[^'\";#\n]*?(?=\s*(?:['\";#]|$)|\s+[^\s<>=!~\d])",
        re.IGNORECASE,
    )


def _in_table(name: str) -> re.Pattern[str]:
    """A release of a package in a table of Poetry's, Pipenv's or pixi's; ``entry`` is what stands before it."""
    return re.compile(
        rf"^(?P<entry>\s*[\"']?{any_spelling(name)}[\"']?\s*=\s*(?:\{{.*?\bversion\s*=\s*)?[\"'])[^\"']*", re.IGNORECASE
    )
