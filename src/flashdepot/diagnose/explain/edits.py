"""The edit of the user's project, or of the failed command, that fixes what a line tells of.

The rows of ``sentences.toml`` name an edit by ``@``, with its arguments; each is a method here or, where it is about where a file
is, in :mod:`flashdepot.diagnose.explain.places`. An edit for which the files, the variables and the command have nothing is empty.
"""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Mapping
from os.path import normpath
from pathlib import Path

from flashdepot.diagnose.explain.hint import SAFE
from flashdepot.diagnose.explain.installed import OfInstalled, any_spelling, bounded
from flashdepot.diagnose.explain.machine import is_published, known_names, named
from flashdepot.diagnose.explain.project import ALIKE, HARMLESS, filled, most_alike

_NEARLY = 1.8
"""How much a name that nothing lists must be like another, of 2: by what they have in common and by how they begin."""
_LISTED = 6
_IN_SOURCE = re.compile(r"\.(?:c\w{0,3}|h\w{0,2}|rs)[:(]\d+[:,)]")
"""A place in a source file."""
_SYSTEMS = {"win": "win32", "lin": "linux", "man": "linux", "mac": "darwin"}


class Edits(OfInstalled):
    """The edits of one project."""

    def edit(self, how: str, groups: Mapping[str, str]) -> str:
        """The command that a row asks for by ``@name arguments``, with what its line names."""
        name, _, given = how.partition(" ")
        return str(getattr(self, f"_{name}")(given, groups))

    def _swap(self, given: str, groups: Mapping[str, str]) -> str:
        """Another value in place of one that was refused: the one that the line names, or the most alike of those that there are.

        :param given: the file and the table whose keys are those.
        """
        accepted = [name for name in dict.fromkeys(self.keys(given, groups)) if HARMLESS.fullmatch(name)]
        meant = groups.get("meant") or groups.get("good", "")
        refused = groups.get("refused") or groups.get("other", "")
        if meant and not refused:
            words = [*re.split(r"[\s,=]+", self.failed), *re.split(r"[\s'\"`,]+", self.settings.said)]
            quoted = [word for word in re.findall(r"[`'\"]([\w.-]+)[`'\"]", self.settings.said) if word in words]
            near = most_alike(meant, [word for word in words if word not in (meant, "")], ALIKE)
            refused = near or (quoted or [""])[0]
        new = meant or most_alike(refused, [word for word in accepted if word != refused])
        if not new:
            return ""
        more = ", ..." if len(accepted) > _LISTED else ""
        remark = f"one of {', '.join(accepted[:_LISTED])}{more}" if accepted else "as the log itself says"
        old = re.compile(rf"(?<![\w.-]){re.escape(refused)}(?![\w-]|\.\w)")
        written = self.written(old, new, remark) if refused else ""
        if _IN_SOURCE.search(self.settings.said):
            return written  # a compiler's guess at a name: right only for a word that is the user's
        sure = "meant" in groups or len(accepted) == 1 or most_alike(refused, accepted, ALIKE)
        prose = f"{new} in place of {refused or 'what it has'}   # {remark}"
        return written or ("" if self.failed or not sure else prose)

    def _replace(self, given: str, groups: Mapping[str, str]) -> str:
        """Other words, or none, in place of some that the files or the command have."""
        old, _, new = filled(given, groups).partition(" ")
        option = re.escape(groups.get("option", ""))
        words = re.compile(rf"(?<![\w-]){re.escape(old)}(?:{option})?(?![\w=-])")
        return self.written(words, new, f"{new} in place of {old}" if new else f"without {old}")

    def _either(self, given: str, groups: Mapping[str, str]) -> str:
        """An extra of the project that was asked for as a group, or a group as an extra.

        :param given: the table that has those of the other kind, the option that was used, and the one to use.
        """
        table, used, other = given.split()
        if groups["name"] not in self.keys(f"pyproject.toml:{table}", {}):
            return ""
        words = re.compile(rf"{used}[ =]{re.escape(groups['name'])}(?![\w-])")
        return self.written(words, f"{other} {groups['name']}", f"{groups['name']} is of {table}")

    def _instead(self, given: str, groups: Mapping[str, str]) -> str:
        """What is installed in place of a package that is not what was meant, or is for another system."""
        new, _, why = given.partition(" ")
        if "Windows" in why and self.shell.elsewhere:
            return ""
        asked = re.compile(rf"(?<![\w./=-]){re.escape(groups['name'])}(?:\s*[<>=!~][^'\";#\s]*)?(?=[\s'\";,#]|$)")
        if written := self.written(asked, new, f"{groups['name']} {why}", self.lists):
            return written
        command = f"pip install -U {new}   # {groups['name']} {why}"
        return (
            self.shell.carried(command, "python") if "Windows" in why and self.shell.windows and not self.failed else ""
        )

    def _drop(self, _given: str, groups: Mapping[str, str]) -> str:
        """A requirements file without a package that no index has."""
        asked = re.compile(rf"^{any_spelling(groups['name'])}\b(?![-.\w]).*$", re.IGNORECASE)
        found = next((line for line in self.lines(self.requirements) if asked.match(line[2])), None)
        remark = f"no index has {groups['name']}: without it; where another has it: --extra-index-url, or its repository, {groups['name']} @ git+"
        return self.replaced(found[0], found[1], "", remark) if found else ""

    def _unsource(self, _given: str, groups: Mapping[str, str]) -> str:
        """A project of uv's that takes a package from the usual index, where its own has no wheel for this system."""
        asked = re.compile(rf"^{any_spelling(groups['name'])} *= *(?:\{{|\[\{{).*index.*$")
        return self.written(asked, "", f"the index of {groups['name']} has no wheel for this system: the usual one")

    def _config(self, _given: str, _groups: Mapping[str, str]) -> str:
        """The failed command with its options for setup.py as newer pips hand them on."""
        option = re.compile(r"--(?:global|build)-option[= ][\"']?(--[\w-]+)[\"']?")
        parts = self.shell.command.split(" && ")
        pip = next((code for code in parts if option.search(code) and SAFE.fullmatch(code)), "")
        new = option.sub(r'--config-settings "--build-option=\1"', pip)
        return (
            f"{new} --force-reinstall   # pip hands --global-option on no more where there is a pyproject.toml"
            if pip
            else ""
        )

    def _setting(self, _given: str, groups: Mapping[str, str]) -> str:
        """A setting before a command, which cmd.exe takes for a program."""
        asked = re.compile(rf"(?<![\w%]){groups['name']}=(?:\"([^\"]*)\"|(\S+)) +(?!&)")
        remark = "cmd.exe has no setting before a command"
        return self.written(
            asked, lambda found: f"set {groups['name']}={found[1] or found[2]}&& ", remark, ("*.bat", "*.cmd")
        )

    def _script(self, _given: str, groups: Mapping[str, str]) -> str:
        """A module that a script with a header of its own does not ask for: uv runs it without the project's environment."""
        script = re.match(r"uv run (?:--script )?([\w./-]+\.py)\b", self.failed)
        if not script or "# /// script" not in self.files.text(script[1]) or not is_published(groups["module"]):
            return ""
        return (
            f"uv add --script {script[1]} {named(groups['module']).name}   # the script's own header has what it needs"
        )

    def _include(self, _given: str, groups: Mapping[str, str]) -> str:
        """A header that a file needs and does not include: in the file, or, where it is another's, for every file."""
        header, file = groups["header"], groups["file"]
        if file.startswith("/") or not self.files.find(glob.escape(file)):
            return f"export CXXFLAGS='-include {header}'   # {file} needs it and does not include it; then from an empty build folder"
        return f"sed -i.bak '1i #include <{header}>' {file}   # {file} needs it; then the same command"

    def _branch(self, _given: str, groups: Mapping[str, str]) -> str:
        """A crate or package of a repository without the branch or tag that the repository has not."""
        name = re.escape(groups["name"])
        named = re.compile(rf',?\s*(?:branch|tag|rev)\s*=\s*"{name}"|(?<=\w)@{name}(?![\w.-])')
        return self.written(named, "", f"the repository has no {groups['name']}: its own branch")

    def _program(self, _given: str, groups: Mapping[str, str]) -> str:
        """A program of a package, by uv, where the package has none of its own name."""
        package = re.search(r"not provided by package [`'\"]([\w.-]+)", self.settings.lines_said)
        return (
            f"uvx --from {package[1]} {groups['name']}   # with the arguments as before"
            if package and "name" in groups
            else ""
        )

    def _order(self, _given: str, _groups: Mapping[str, str]) -> str:
        """The command that links, with its libraries behind the files that use them."""
        words = self.failed.split()
        libraries = [word for word in words if re.match(r"-l\w|\S+\.a$", word)]
        if not libraries or not re.match(r"\S*(?:\+\+|cc|clang)\s", self.failed):
            return ""
        code = " ".join([*(word for word in words if word not in libraries), *libraries])
        return f"{code}   # libraries behind what uses them" if code != self.failed else ""

    def _add(self, given: str, groups: Mapping[str, str]) -> str:
        """A line in a table of a TOML file, behind the table's head where it is there."""
        place, _, rest = given.partition(":")
        table, _, entry = rest.partition(":")
        packages = (path for place in ("*", "src/*") for path in self.files.find(f"{place}/__init__.py"))
        folders = ", ".join(f'"{Path(path).parent.as_posix()}"' for path in packages)
        named = f"name *= *[\"']{any_spelling(groups.get('name', '-'))}[\"']"
        projects = (path for depth in ("*/", "*/*/") for path in self.files.find(f"{depth}pyproject.toml"))
        member = next((str(Path(path).parent) for path in projects if re.search(named, self.files.text(path))), "")
        member = member or groups.get("name", "")
        entry = filled(entry, {**groups, "packages": folders, "member": member}).replace(
            "packages = []", "bypass-selection = true"
        )
        text = self.files.text(place)
        if self.lacks_sed:
            return f"{place}: [{table}]  {entry}   # then the same command"
        head = next((n for n, line in enumerate(text.splitlines(), 1) if line.strip() == f"[{table}]"), 0)
        code = (
            f"sed -i.bak {shlex.quote(f'{head}a {entry}')} {place}"
            if head
            else f"printf '%s\\n' '' '[{table}]' {shlex.quote(entry)} >> {place}"
        )
        return f"{code}   # then the same command"

    def _loosen(self, _given: str, groups: Mapping[str, str]) -> str:
        """A requirement of the user's own, which nothing else agrees with, without its bounds; not where only wheels are missing."""
        if (
            "Wheels are available for" in self.settings.lines_said
            or " wheels with the following" in self.settings.lines_said
            or "+" in groups.get("spec", "")
        ):
            return ""
        return self.written(
            bounded(groups["name"]),
            r"\g<name>",
            f"{groups['name']}{groups.get('spec', '')} is what the others do not agree with",
            self.lists,
        )

    def _marker(self, given: str, groups: Mapping[str, str]) -> str:
        """A requirement that is for one system only, with a marker that says so."""
        sign, _, named = given.partition(" ")
        system = _SYSTEMS.get((named or groups["system"]).lower()[:3], "")
        marker = f"; sys_platform {sign} '{system}'"
        asked = re.compile(rf"^\s*{any_spelling(groups['name'])}(?![\w-])[^'\"#;\n]*", re.IGNORECASE)
        within = re.compile(rf"(?<=['\"]){any_spelling(groups['name'])}(?![\w-])[^'\"#;\n]*(?=['\"])", re.IGNORECASE)
        for place, number, line in self.lines(self.lists) if system else ():
            found = (within if place.endswith(".toml") else asked).search(line)
            if found and ";" not in line:
                mark = marker.replace("'", '"') if line[found.start() - 1 : found.start()] == "'" else marker
                new = f"{line[: found.end()].rstrip()}{mark}{line[found.end() :]}"
                return self.replaced(place, number, new, f"{groups['name']} is not for this system")
        without = re.sub(rf"\s{any_spelling(groups['name'])}(?![\w-])\S*", "", self.failed)
        left = without != self.failed and not without.endswith(("install", "add"))
        return f"{without}   # without {groups['name']}, which is not for this system" if left else ""

    def _crate(self, _given: str, groups: Mapping[str, str]) -> str:
        """One version of a crate: that which the project's dependency takes, in its own Cargo.toml."""
        name = groups["name"]
        asked = re.compile(rf"^\s*{re.escape(name)}\s*=")
        lines = [line for line in self.lines(("Cargo.toml", "*/Cargo.toml", "*/*/Cargo.toml")) if asked.match(line[2])]
        own = next((line for line in lines if line[0] == "Cargo.toml"), None)
        other = next((line for line in lines if line[0] != "Cargo.toml" and own and line[2] != own[2]), None)
        if own and other:
            folder = str(Path(other[0]).parent)
            new = re.sub(
                r'(?<=path)( *= *")([^"]+)', lambda found: found[1] + normpath(f"{folder}/{found[2]}"), other[2]
            )
            return self.replaced("Cargo.toml", own[1], new, f"the {name} that {other[0]} takes")
        locked = self.document("Cargo.lock").get("package", [])
        ours = self.document("Cargo.toml").get("package", {}).get("name")
        taken = {need for package in locked if package["name"] == ours for need in package.get("dependencies", ())}
        versions = [package["version"] for package in locked if package["name"] == name]
        free = (version for version in versions if f"{name} {version}" not in taken)
        there = next((version for version in free if HARMLESS.fullmatch(version)), "")
        return f"cargo add {name}@{there}   # one {name}: that of the other crate" if own and there else ""

    def _feature(self, _given: str, groups: Mapping[str, str]) -> str:
        """A feature that a dependency has and the project does not: by the dependency's name."""
        feature, needs = groups["refused"], self.document("Cargo.toml").get("dependencies", {})
        for name, need in needs.items():
            own = f"{need['path']}/Cargo.toml" if isinstance(need, dict) and "path" in need else ""
            has = self.keys(f"{own or 'Cargo.toml'}:features", {} if own else {"crate": name})
            if HARMLESS.fullmatch(name) and feature in has:
                asked = re.compile(rf"(?<![\w/-]){re.escape(feature)}(?![\w-])")
                code = asked.sub(f"{name}/{feature}", self.failed)
                return f"{code}   # {name} has the feature, and this project does not" if code != self.failed else ""
        return ""

    def _needs(self, _given: str, groups: Mapping[str, str]) -> str:
        """What a package needs to be built and does not say, in uv's project: torch as the project has it."""
        project, name = self.files.text("pyproject.toml"), groups["name"]
        if not project or not self.failed.startswith("uv ") or not HARMLESS.fullmatch(name + groups["need"]):
            return ""
        pinned = re.search(rf"(?<![\w-]){re.escape(groups['need'])}==[\d.]+\w*", project)
        entry = f'"{pinned[0] if pinned else groups["need"]}"'
        if groups["need"] == "torch" and not pinned:
            entry = '{ requirement = "torch", match-runtime = true }'
        return self._add(f"pyproject.toml:tool.uv.extra-build-dependencies:{name} = [{entry}]", {})

    def _architecture(self, _given: str, groups: Mapping[str, str]) -> str:
        """The list of GPU architectures without one that nvcc does not know; another in its place where it is the only one."""
        old = groups["number"]
        gpus = self.shell.host.gpus if self.shell.host else ()
        new = str(gpus[0].architecture) if gpus and str(gpus[0].architecture) != old else "80"
        asked = re.compile(
            rf" -gencode[= ]arch=compute_{old},code=\S+(?=.* -gencode)|(?P<of>CUDA_ARCHITECTURES[ =\"]+(?:\w+[ ;])*){old}[ ;](?=\d)|(?P<by>\b(?:compute_|sm_)|CUDA_ARCHITECTURES[ =\"]+(?:\w+[ ;])*){old}\b"
        )
        remark = f"this nvcc does not know {old}"
        return self.written(asked, lambda found: f"{found['by']}{new}" if found["by"] else found["of"] or "", remark)

    def _known(self, _given: str, groups: Mapping[str, str]) -> str:
        """The package of the field that was meant by a name that no index has."""
        name = groups.get("refused", "") or groups["other"]
        meant = most_alike(name.replace("_", "-"), known_names(), _NEARLY)
        if not meant or is_published(name.replace("-", "_")):
            return ""
        asked = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-])")
        return self.written(asked, meant, f"there is no {name}, and this", (*self.lists, "*.sh"))

    def _constraint(self, _given: str, groups: Mapping[str, str]) -> str:
        """The failed command of uv's with a bound that it says itself."""
        bound = shlex.quote(groups["bound"].replace(" ", ""))
        inner = re.match(r"uv (?:pip install|add)\b", self.failed)
        return f"{f'{self.failed} {bound}' if inner else f'uv add {bound}'}   # as the log itself says"
