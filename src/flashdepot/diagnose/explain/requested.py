"""Which projects an index was asked for: by an installer's command line, its own lines, and a resolver's words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from flashdepot.model.wheel import canonical_name

_REQUIREMENT = re.compile(
    r"[\"']?(?:[\w.-]+::)?(?P<package>[A-Za-z][\w.-]*)(?:\[[^\]]*\])?"
    r"(?P<spec>(?:(?:==(?P<version>[\w.]+)|[>~=<!]=?|@|;)[^\s\"']*)?)[\"']?$"
)
"""A path or an address does not match: a ``/`` follows its first word."""
FROM_INDEX = re.compile(
    r"(?:Collecting |- Installing )(?P<package>[A-Za-z][\w.-]*)(?:\[[^\]]*\])?(?P<spec>[<>=~!]=?[\w.*]\S*)?"
    r"(?: \(from .*| \((?P<version>[\w.+]+)\).*|)$"
)
BUILT_BY_UV = re.compile(r".*[`'](?P<package>[A-Za-z][\w.-]*)(?P<spec>==(?P<version>[\w.+]+))[`']")
"""How pip, Poetry and uv name what an index is asked for, and not a folder or a repository."""
FILES = (".whl", ".txt", ".toml", ".in", ".gz", ".zip", ".yml", ".yaml")
"""What a word ends with that names a file, and no project."""
_VALUED = frozenset({
    "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c", "-n", "--python", "-p", "--python-platform", "--python-version", "--platform", "--target", "-t",
    "--channel", "-r", "--name", "--extra", "--group", "--only-group", "--index", "--with", "--from", "--config-settings", "-C",
})  # fmt: skip
"""Options of installers that take the next word."""
_SPEC = r"(?:[<>=!~]=?=? ?v?\d[\w.*+!]*(?:, ?[<>=!~]=?=? ?v?\d[\w.*+!]*)*)"
_NAME = r"(?P<name>[A-Za-z][\w.-]*?)(?:\[[\w,.-]*\])?"
_OF_A_RESOLVER = tuple(
    re.compile(pattern.replace("NAME", _NAME).replace("SPEC", f"(?P<spec>{_SPEC})"))
    for pattern in (
        r"(?:satisfies the requirement|No matching distribution found for) NAMESPEC?(?=[\s;,(]|$)",
        r"(?:installation candidates for|matching version of package) NAME \((?P<version>[\w.+!]+)\)",
        r"matching version of package NAME \(SPEC\)",
        r"[Bb]ecause NAMESPEC? (?:has|have) no (?:usable )?wheels",
        r"Distribution [`']NAMESPEC @ registry",
        r"(?:[Bb]ecause|and) NAME was not found in the package registry",
        r"[Tt]here (?:is|are) no versions? (?:of|for) NAME(?: \()?SPEC?(?=[\s,)])",
        r"(?:you require|project depends on|requirements? on) NAMESPEC(?=[\s,])",
        r"(?:[Bb]ecause|and) NAMESPEC depends on Python\b",
        r"Package [`']NAME[`'] requires a different Python",
    )
)
"""How a resolver says which project it asked an index for."""


class Requested(msgspec.Struct, frozen=True):
    """A project by its name on an index, and the releases of it that were asked for (PEP 440)."""

    name: str
    spec: str = ""

    def __str__(self) -> str:
        return f"{self.name}{self.spec}"


def package_in(command: str) -> tuple[str, str]:
    """The package that an installer's command line asks for, torch only where it asks for nothing else."""
    asked = [(found["package"], found["version"] or "") for found in requirements_in(command)]
    wanted = [
        one for one in asked if one[0] not in ("torch", "torchvision", "torchaudio", "numpy", "ninja", "packaging")
    ]
    return (wanted or asked or [("", "")])[-1]


def requirements_in(command: str) -> Iterator[re.Match[str]]:
    """The words of an installer's command line that name a package."""
    words = iter(re.split(r"\s(?:&&|;|\||#|2>)", command, maxsplit=1)[0].split()[1:20])
    for word in words:
        if word in _VALUED:
            next(words, "")
        elif word not in ("install", "add", "sync", "pip", "create", "update", "lock", "env") and (
            found := _REQUIREMENT.match(word)
        ):
            yield found


def in_words(text: str) -> Iterable[Requested]:
    """What a resolver's words name."""
    for pattern in _OF_A_RESOLVER:
        if (found := pattern.search(text)) and not found["name"].endswith(FILES):
            said = found.groupdict()
            spec = (said.get("spec") or "").replace(" ", "")
            yield Requested(canonical_name(said["name"]), f"=={said['version']}" if said.get("version") else spec)
