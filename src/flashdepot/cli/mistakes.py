"""What was probably meant by a command line that cannot be understood: one that can, from the words that people know from other tools."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from flashdepot.cli.options import Joined
from flashdepot.errors import GET_NEWER, nearest
from flashdepot.link.library import Shell
from flashdepot.model.limits import joined
from flashdepot.model.selection import PROFILES

_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "flashdepot": {
        "flash-attn": "install", "flash_attn": "install", "upgrade": "install", "add": "install", "pip": "", "uv": "",
        "download": "get", "fetch": "get", "compile": "build", "search": "catalog ls", "cache": "depot", "test": "verify",
        "info": "host", "version": "--version", "help": "",
    },
    "flashdepot catalog": {"search": "ls", "find": "ls", "refresh": "update"},
    "flashdepot depot": {
        "rm": "gc --remove", "remove": "gc --remove", "delete": "gc --remove", "prune": "gc", "du": "usage",
        "size": "usage", "info": "show",
    },
    "flashdepot keys": {
        "add": "trust", "rm": "revoke", "remove": "revoke", "delete": "revoke", "create": "new", "generate": "new",
        "gen": "new",
    },
    "flashdepot link": {"rust": "cargo", "c++": "flags", "g++": "flags", "gcc": "flags"},
    "flashdepot remote": {"remove": "rm", "delete": "rm", "set-url": "add"},
}  # fmt: skip
"""Commands of other tools, by group, and what they are here."""

_OTHERWISE = {
    **dict.fromkeys(["uninstall", "remove"], "What was installed is removed with: pip uninstall flash-attn"),
    **dict.fromkeys(["self", "self-update"], f"A newer flashdepot {GET_NEWER}"),
    "farm": "It is an option: flashdepot build --farm ADDRESS",
}
"""Commands that others have, and how it is done here."""

_LEAVE_OUT = ""
_ARGUMENT = "argument"
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(["-o", "-d", "-w", "--output", "--outdir", "--out-dir", "--dest", "--prefix"], ("--out", _ARGUMENT)),
    **dict.fromkeys(["--out", "--name", "--dir"], (_ARGUMENT,)),
    **dict.fromkeys(["--version", "-V"], ("--candle-version", "--upstream")),
    **dict.fromkeys(["-n", "--simulate"], ("--dry-run",)),
    **dict.fromkeys(["--gpu", "--sm", "--gpu-arch", "--cuda-arch"], ("--arch", "--gpu")),
    **dict.fromkeys(["-p", "--interpreter", "--venv"], ("--python",)),
    **dict.fromkeys(["--threads", "--parallel", "-J"], ("--jobs",)),
    **dict.fromkeys(
        [
            "-U", "--upgrade", "-I", "--force-reinstall", "--force", "--reinstall", "--no-build-isolation", "--no-cache-dir",
            "--no-cache", "--no-deps", "--pre", "--user", "--system", "--break-system-packages", "--release",
        ],
        (_LEAVE_OUT,),
    ),
    "--arch": ("--gpu",),
    "--assume-yes": ("--yes",),
    "--cache-dir": ("--depot",),
    "--cuda": ("--torch-cuda",),
    "--debug": ("--verbose",),
    "--frozen": ("--locked",),
    "--no-build": ("--build=never",),
    "--python": ("--python-tag",),
    "--remote": ("--to",),
    "--upstream": ("--version",),
}  # fmt: skip
"""Options of other tools, and what they are here: the first that the command has."""

_FOLDER = ("-C", "--directory", "--project")
_INDEX = ("-i", "--index-url", "--default-index")
_OF_OTHER_PACKAGES = ("-r", "--requirement", "-e", "--editable", "-c", "--constraint")
_DASHES = re.compile("^[-\u2010-\u2015\u2212]*[\u2010-\u2015\u2212][-\u2010-\u2015\u2212]*(?=\\w)")


def called(app: click.Group, words: Iterable[str]) -> tuple[click.Context, list[str], list[str]]:
    """The command that words call, as far as they name one; the words up to its name, and those after."""
    context, before, rest = app.context_class(app, info_name="flashdepot"), list[str](), list(words)
    while isinstance(group := context.command, click.Group):
        at = next((place for place, word in enumerate(rest) if not word.startswith("-")), len(rest))
        found = group.get_command(context, rest[at]) if at < len(rest) else None
        if found is None or not set(rest[:at]) <= _options(group).keys():
            break
        before, rest = [*before, *rest[: at + 1]], rest[at + 1 :]
        context = found.context_class(found, info_name=before[-1], parent=context)
    return context, before, rest


def hint_for(app: click.Group, words: list[str]) -> str:
    """What to type in place of words that cannot be understood: the command that was probably meant, else how to find it."""
    context, _, rest = called(app, words)
    takes = f"What it takes: {context.command_path} --help"
    if missing_value(app, words):
        return takes
    if meant := _as_meant(app, words):
        return meant
    if not isinstance(context.command, click.Group) or not (word := _wrong_word(context, rest)) or word.startswith("-"):
        return takes
    of_groups = [f"{context.command_path} {inside}" for inside in _in_groups(context, word)]
    near = (
        "Did you mean one of these?" if of_groups else f"There are {', '.join(context.command.list_commands(context))}."
    )
    return "\n".join([near, *of_groups, takes])


def missing_value(app: click.Group, words: list[str]) -> str:
    """A sentence about the option that took another one for its value; empty where none did."""
    context, _, rest = called(app, words)
    options = _options(context.command)
    for word, after in itertools.pairwise(rest):
        option = options.get(word)
        if isinstance(option, click.Option) and not option.is_flag and after in options:
            return f"Option '{word}' requires an argument, and '{after}' follows it."
    return ""


def with_right_word(words: Iterable[str], wrong: str, right: str) -> str:
    """The command line with one value, or one of a list of values, replaced; empty where it has no such value."""
    part = re.compile(rf"(?<![^\s,;=]){re.escape(wrong)}(?![^\s,;])")
    given = list(words)
    changed = [part.sub(lambda _: right, word) for word in given] if right else given
    return joined(["flashdepot", *changed]) if changed != given else ""


def _as_meant(app: click.Group, words: list[str]) -> str:
    line = [_DASHES.sub("--", word) for word in ([*words[1:], "--help"] if words[:1] == ["help"] else words)]
    for _ in range(len(words) + 2):  # each round corrects one word
        context, before, rest = called(app, line)
        wrong = _wrong_word(context, rest)
        if wrong is None:
            return joined(["flashdepot", *line]) if line != words else ""
        if not wrong:
            return ""
        at = rest.index(wrong) if wrong in rest else [word.startswith(wrong) for word in rest].index(True)
        if said := _said_otherwise(before, rest, at):
            return said
        if isinstance(context.command, click.Group):
            changed = _with_its_command(context, rest, at)
        else:
            changed = (_with_its_option if wrong.startswith("-") else _as_option)(context, rest, at)
        if changed is None:
            return ""
        line = [*before, *changed]
    return ""


def _wrong_word(context: click.Context, rest: list[str]) -> str | None:
    """The beginning of the first word that the command does not take, empty where one is missing; ``None`` where it takes them all."""
    is_group = isinstance(context.command, click.Group)
    if "--help" in rest and not is_group:
        return None
    try:
        _, left, _ = context.command.make_parser(context).parse_args(list(rest))
    except click.NoSuchOption as error:
        return error.option_name
    except click.UsageError:
        return ""
    return left[0] if left else "" if is_group and "--help" not in rest else None


def _with_its_command(context: click.Context, rest: list[str], at: int) -> list[str] | None:
    known = context.command.list_commands(context)  # type: ignore[attr-defined]
    if rest[at].startswith("-"):  # it stands before its command
        name = next((place for place, word in enumerate(rest) if word in known), None)
        return None if name is None else [*rest[name:], *rest[:name]]
    word, *more = rest[at].split()
    inside = _in_groups(context, word)
    meant = word if more else _COMMANDS.get(context.command_path, {}).get(word)
    if meant is None:
        meant = "ls" if word == "list" and "ls" in known else inside[0] if len(inside) == 1 else ""
        if not meant and not (meant := "" if inside else nearest(word, known)):
            return None
    return [*rest[:at], *meant.split(), *more, *rest[at + 1 :]]


def _with_its_option(context: click.Context, rest: list[str], at: int) -> list[str] | None:
    options = _options(context.command)
    name, equals, value = rest[at].partition("=")
    takes_words = any(isinstance(parameter, click.Argument) for parameter in context.command.params)
    near = nearest(name.lstrip("-"), [option[2:] for option in options if option.startswith("--")], like=0.7)
    for right in (f"-{name}", *_OPTIONS.get(name, ()), f"--{near}"):
        if right.partition("=")[0] in options:
            return [*rest[:at], f"{right}{equals}{value}", *rest[at + 1 :]]
        if right == _LEAVE_OUT or (right == _ARGUMENT and takes_words):
            return [*rest[:at], *([value] if equals and right else []), *rest[at + 1 :]]
    return None


def _as_option(context: click.Context, rest: list[str], at: int) -> list[str] | None:
    """The words, with one that is not an argument as the option, the value or the part of a value that it probably is."""
    options, word, before, after = _options(context.command), rest[at], rest[:at], rest[at + 1 :]
    if word == "help" or f"--{word}" in options:
        return [*before, f"--{word}", *after]
    taking = options.get(before[-2]) if len(before) > 1 else None
    if taking is not None and (taking.name == "memory" or isinstance(taking, Joined)):
        return [*before[:-1], f"{before[-1]}{',' if isinstance(taking, Joined) else ''}{word}", *after]
    package = re.fullmatch(r"flash[-_]attn(?:\[\w*\])?(?:==(\w+(?:\.\w+)*))?,?", word, re.IGNORECASE)
    if package and not package[1]:
        return [*before, *after]
    version = package[1] if package else word if re.fullmatch(r"\d+(\.\w+)+", word) else ""
    small = word.replace("_", "-")
    for option, value in (
        *((option, version) for option in ("--version", *_OPTIONS["--version"])),
        ("--names", small if small in {"flash-attn-3", "flash-attn-4"} else ""),
        ("--wheel", word if word.endswith(".whl") else ""),
        ("--profile", word if word in PROFILES else ""),
        ("--library", word if Path(word).is_dir() or {"/", "\\"} & {*word} else ""),
        ("--out", word if word == "dist" or {"/", "\\"} & {*word} else ""),
    ):
        if value and option in options:
            return [*before, option, value, *after]
    return None


def _said_otherwise(before: list[str], rest: list[str], at: int) -> str:
    """What none of our options says: the folder, the index, other packages; empty for all else."""
    name, _, value = rest[at].partition("=")
    value, after = (value, rest[at + 1 :]) if value else (" ".join(rest[at + 1 : at + 2]), rest[at + 2 :])
    line = joined(["flashdepot", *before, *rest[:at], *after])
    if name in _FOLDER and value:
        return f"{joined(['cd', value])} && {line}"
    if name in _INDEX and value:
        return f"{Shell.here().assignment('PIP_INDEX_URL', value)} && {line}"
    if (said := _OTHERWISE.get(name)) and not before:
        return said
    other = re.fullmatch(r"(?!flash[-_]attn|help$)[A-Za-z][\w-]*([<>=!~]=?[\w.]*)?", name)
    if before[-1:] == ["install"] and (name in _OF_OTHER_PACKAGES or (other and not Path(name).exists())):
        return f"flashdepot installs only flash-attn. For others: {joined(['pip', 'install', *rest[at:]])}"
    return ""


def _in_groups(context: click.Context, word: str) -> list[str]:
    """The commands of that name in a group's groups."""
    found, name = [], "ls" if word == "list" else word
    for command in context.command.list_commands(context):  # type: ignore[attr-defined]
        inside = context.command.get_command(context, command)  # type: ignore[attr-defined]
        if isinstance(inside, click.Group) and name in inside.list_commands(context):
            found.append(f"{command} {name}")
    return found


def _options(command: click.Command) -> dict[str, click.Parameter | None]:
    """A command's options, by each of their names."""
    named = {name: option for option in command.params for name in [*option.opts, *option.secondary_opts]}
    return {"-h": None, "--help": None, **{name: option for name, option in named.items() if name.startswith("-")}}
