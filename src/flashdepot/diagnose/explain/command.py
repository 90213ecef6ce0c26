"""A command as it is printed: what runs, behind ``   # `` what is said of it, and how cmd.exe takes what is written for a POSIX shell."""

from __future__ import annotations

import re

_SETTING = re.compile(r"^((?:[A-Z][A-Z0-9_]*=(?:'[^']*'|\"[^\"]*\"|[^\s'\"]+)(?:\s+|$))+)(.*)$")
_PROGRAMS = (
    "apt|apt-file|call|cargo|cd|cmake|conda|cp|curl|df|dmesg|dnf|docker|echo|eval|export|file|flashdepot|for|free|g\\+\\+|gcc"
    "|git|hash|hf|id|ldd|ls|make|mv|nvcc|nvidia-smi|pip|python3?|reg|rm|rustc|rustup|sed|set|sha256sum|sudo|taskkill|torchrun"
    "|uname|unset|uv|vllm|where|which|winget"
)
_COMMAND = re.compile(rf"(?:[A-Z][A-Z0-9_]*=|\. \S+$|(?:{_PROGRAMS})(?: |$)(?!.*(?:,|(?<!:all):) ))")
_IN_QUOTES = re.compile(r"'[^']*'|\"[^\"]*\"")
_EXPORT = re.compile(r"\bexport ((?:[A-Z][A-Z0-9_]*=\S+\s*)+)")
_IN_CMD = (
    (r"/(\w+):\$(\w+)", r"\\\1;%\2%"),
    (r"\$HOME/|~/", r"%USERPROFILE%\\"),
    (r"(?:^|(?<= ))\. (\S+)/bin/activate", r"\1\\Scripts\\activate"),
    (r"\bpython3 -m venv\b", "python -m venv"),
    (r"\bls -l |\bls (?=\w)", "dir "),
    (r"\bwhich -a ", "where "),
    (r"\bgrep -i -E |\bgrep -i |\bgrep (?=\w)", "findstr /i "),
    (r"\brm -rf (build) [^;&]*|\brm -rf ", r"rmdir /s /q \1"),
    (r"\bunset ((?:[A-Z_]+ ?)+)", lambda found: "&& ".join(f"set {name}=" for name in found[1].split())),
    (r"; (?=pip |rocminfo|dir |findstr )", "&& "),
)
"""What cmd.exe has for what a POSIX shell has."""
_POSIX_ONLY = re.compile(
    r"\bsudo |\bapt|\bLD_|\bldd |\bdmesg|/dev/|\$\(|/opt/|/usr/|\bfind / |\$(?:USER|PWD)\b|\bCPATH=|\bLIBRARY_PATH="
)


def code_of(command: str) -> str:
    """A command without what is said of it."""
    return command.partition("   # ")[0]


def is_command(code: str) -> bool:
    """Whether it begins with a setting or a program; other words are prose, in which a semicolon ends no command."""
    return _COMMAND.match(_IN_QUOTES.sub("''", code)) is not None


def is_for_posix(command: str) -> bool:
    """Whether it speaks of what Windows has not: packages of a distribution, its loader, devices, folders of root."""
    return bool(_POSIX_ONLY.search(code_of(command)))


def for_windows(command: str) -> str:
    """A command for a POSIX shell as cmd.exe takes it; what is for POSIX only stays.

    No blank stands before ``&&``: to cmd it would be the end of the value.
    """
    if is_for_posix(command):
        return command
    code, mark, comment = command.partition("   # ")
    parts = re.split(r"\s*(?:;|&&)\s+", code)
    if '"' not in code and all(map(is_command, parts)):
        code = "&& ".join(map(_one, parts)).replace("'", '"')
    for posix, windows in _IN_CMD:
        code = re.sub(posix, windows, code)
    return code + mark + comment


def _one(code: str) -> str:
    if found := _EXPORT.match(code):
        return "&& ".join(f"set {setting}" for setting in found[1].split())
    if found := _SETTING.match(code):
        settings = re.findall(r"""[A-Z][A-Z0-9_]*=(?:'[^']*'|"[^"]*"|\S+)""", found[1])
        return "&& ".join([*(f"set {setting}" for setting in settings), *filter(None, [found[2]])])
    return code
