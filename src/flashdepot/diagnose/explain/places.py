"""Where a file is that the failed command, a build or an import did not find, and the command that takes it from there.

The rows of ``sentences.toml`` name each by ``@``, as they do the edits of :mod:`flashdepot.diagnose.explain.edits`; a new one is a method here.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from flashdepot.diagnose.explain.project import ALIKE, HARMLESS, ProjectFiles, filled, most_alike

_LIBRARIES = tuple(
    f"{root}/{folder}/"
    for root in ("$CUDA_HOME", "$CUDA_PATH", "/usr/local/cuda", "$CONDA_PREFIX")
    for folder in ("lib64", "lib", "lib64/stubs", "lib/stubs")
)
_OF_SYSTEM = ("/usr/lib/x86_64-linux-gnu/", "/usr/lib64/", "/usr/lib/wsl/lib/")
"""Where libraries are that no linker looks for by itself, or by a name without a number only; those of stubs stand for the driver's."""


class Places(ProjectFiles):
    """A project, by where its files are."""

    def _wheel(self, _given: str, groups: Mapping[str, str]) -> str:
        """The wheel of the same release for this Python and system, where it is next to the one that is for another."""
        place, _, name = groups["file"].rpartition("/")
        python = self.shell.host.python if self.shell.host else None
        tag = "cp{}{}".format(*python.version.numbers[:2]) if python else "-"
        folders = [f"{glob.escape(place)}/"] if place else ["", "*/", "~/Downloads/"]
        found = (
            path for folder in folders for path in self.files.find(f"{folder}{glob.escape(name.split('-')[0])}-*.whl")
        )
        system = "win" if os.name == "nt" else "linux"
        fits = [
            path for path in found if (f"-{tag}-" in path or "-py3-" in path) and (system in path or "-any" in path)
        ]
        asked = re.compile(rf"\S*{re.escape(name)}")
        if not (there := next((path for path in fits if not path.endswith(name)), "")):
            other = re.search(r"-cp3(\d+)-.*-(?:any|(?:many)?linux\w*)\.whl$", name)
            if not other or f"-{tag}-" in name or os.name == "nt":
                return ""
            make = f"uv venv --clear --seed --python 3.{other[1]} && . .venv/bin/activate"
            return self.shell.carried(f"{make}   # the Python that the wheel is for; then the same command", "python")
        return f"{asked.sub(lambda _: shlex.quote(there), self.failed) if self.failed else f'pip install {shlex.quote(there)}'}   # the one of this Python and system"

    def _source(self, _given: str, groups: Mapping[str, str]) -> str:
        """The failed command of CMake's for the folder, below the one that it names, that has a CMakeLists.txt."""
        below = (f"{glob.escape(groups['folder'])}/{depth}CMakeLists.txt" for depth in ("*/", "*/*/"))
        there = next((str(Path(path).parent) for pattern in below for path in self.files.find(pattern)), "")
        if there and not self.failed:
            return f"cmake -S {shlex.quote(there)} -B {shlex.quote(groups['folder'])}/build   # its CMakeLists.txt is there"
        source = re.compile(r"(?<=\s)(?:-S ?\S+|\.\.?/?)(?=\s|$)")
        code = source.sub(lambda _: f"-S {shlex.quote(there)}", self.failed, count=1)
        return f"{code}   # its CMakeLists.txt is there" if there and code != self.failed else ""

    def _with(self, given: str, groups: Mapping[str, str]) -> str:
        """A command for a project that has a file."""
        place, _, command = given.partition(":")
        return filled(command, groups) if self.files.find(place) else ""

    def _dll(self, _given: str, groups: Mapping[str, str]) -> str:
        """The DLL that a module needs and that is not next to it, where it is below this folder: copied there."""
        depths = [f"{top}{'*/' * depth}" for top in ("", ".venv/") for depth in range(5)]
        kinds = ("*.pyd", ".dll")
        for module in (
            path for depth in depths for kind in kinds for path in self.files.find(f"{depth}{groups['module']}{kind}")
        ):
            for dll in dict.fromkeys(re.findall(r"([\w.+-]+\.dll)\0", self.files.text(module))):
                near = self.files.find(f"{Path(module).parent}/{dll}")
                there = next((path for depth in depths for path in self.files.find(f"{depth}{dll}")), "")
                if there and not near and not dll.startswith("python3"):
                    copy = "copy" if os.name == "nt" else "cp"
                    return f"{copy} {shlex.quote(there)} {shlex.quote(str(Path(module).parent))}   # {module} needs it; or: os.add_dll_directory of its folder before the import"
        return ""

    def _found(self, _given: str, groups: Mapping[str, str]) -> str:
        """The failed command with the place where a file is that it names and that is not there; or the command that looks for it."""
        name = groups["file"].replace("\\", "/").rpartition("/")[2]
        word = next((word for word in self.failed.split() if word.rpartition("/")[2] == name), "")
        set_here = any(groups["file"] in value for value in self.shell.variables.values())
        if not name or not self.files.here or set_here or self.files.find(glob.escape(word or groups["file"])):
            return ""
        places = (
            f"{folder}{glob.escape(name)}"
            for folder in ("", "*/", "*/*/", "*/*/*/", "../", "../*/", "~/", "~/Downloads/")
        )
        there = next((path for pattern in places for path in self.files.find(pattern)), "")
        if there and word:
            return f"{self.failed.replace(word, shlex.quote(there))}   # {name} is there"
        asked = re.compile(
            rf"(?<![\w/-]){re.escape(groups['file'])}(?![\w-])|(?<=[\"'])\.{{1,2}}/[\w./-]*{re.escape(name)}(?=/?[\"'])"
        )
        if there and (own := self.written(asked, there, f"{name} is there")):
            return own
        if there:
            return f"ls -l {shlex.quote(there)}   # {name} is there: name it so, or run the command in its folder"
        files = [path for pattern in ("*.*", "*/*.*", "*/*/*.*") for path in self.files.find(pattern)]
        like = most_alike(name, [path for path in files if Path(path).suffix[:2] == Path(name).suffix[:2]], ALIKE)
        if like and not word:
            return f"{like} in place of {name}   # there is no {name} here, and this"
        if like and word:
            return f"{self.failed.replace(word, shlex.quote(like))}   # there is no {name} here, and this"
        return f"find . ~ -name {shlex.quote(name)} -not -path '*/.*'   # where it is; then the same command with that path, or in that folder"

    def _below_setting(self, library: str, name: str) -> str:
        """A setting that is to name the folder of a library and names one above it."""
        for _, place, number, line in self.settings.lines():
            value = next(iter(re.findall(r"(/[^\s'\"]+)[\"']?\s*[,}]?\s*$", line)), "")
            if not value or library not in line.lower():
                continue
            found = (
                path
                for depth in ("*/", "*/*/", "*/*/*/")
                for path in self.files.find(f"{glob.escape(value)}/{depth}{name}")
            )
            if there := next(found, ""):
                return self.replaced(
                    place, number, line.replace(value, str(Path(there).parent)), f"{Path(there).name} is there"
                )
        return ""

    def _cd(self, given: str, _groups: Mapping[str, str]) -> str:
        """The failed command in the folder below this one that has the project's file, where one has."""
        there = (
            path for name in given.split() for depth in ("*/", "*/*/") for path in self.files.find(f"{depth}{name}")
        )
        folders = (Path(path).parent.as_posix() for path in there if "venv" not in path)
        folder = next((folder for folder in folders if HARMLESS.fullmatch(folder)), "")
        if not folder or self.failed.startswith("git ") or any(self.files.find(name) for name in given.split()):
            return ""
        if (place := re.search(r"(?<= )(?:-e )?\.(?=/? |/?$|\[)", self.failed)) is not None:
            return f"{self.failed[: place.end() - 1]}./{folder}{self.failed[place.end() :]}   # the project is there"
        return f"cd {shlex.quote(folder)} && {self.failed or 'THE_COMMAND'}   # the project is there"

    def _notfound(self, _given: str, groups: Mapping[str, str]) -> str:
        """The failed command of CMake's with the place of a library or of headers that a variable of its own has not."""
        variable = groups.get("variable", "")
        name = re.sub(r"_?(?:LIBRAR(?:Y|IES)|LIB|INCLUDE_DIRS?)$", "", variable).rpartition("CUDA_")[2].lower()
        if not name or not self.failed.startswith("cmake "):
            return ""
        file = f"{name}*.h" if "INCLUDE" in variable else f"lib{name}.so"
        homes = [
            value for key, value in self.shell.variables.items() if key.endswith(("_HOME", "_ROOT", "_PATH", "_DIR"))
        ]
        roots = (
            *map(glob.escape, homes),
            "/usr/local/cuda*",
            "/opt/cuda*",
            "*",
            "*/*",
            "../*",
            "../*/*",
            "$CONDA_PREFIX",
            "/usr",
        )
        folders = (
            ("include",)
            if "INCLUDE" in variable
            else ("lib64", "lib", "lib64/stubs", "lib/stubs", "lib/x86_64-linux-gnu")
        )
        found = (path for root in roots for folder in folders for path in self.files.find(f"{root}/{folder}/{file}"))
        place = next(found, "")
        there = str(Path(place).parent) if "INCLUDE" in variable else place
        stub = "; the driver's own is taken where the program runs" if "/stubs/" in place else ""
        return (
            f"{self.failed} -D{variable}={shlex.quote(str(Path.cwd() / there))}   # {variable} was not found, and is there{stub}"
            if place
            else ""
        )

    def _folder(self, given: str, groups: Mapping[str, str]) -> str:
        """The folder below this one that has a header or a library, in the variable by which it is looked for there."""
        name = groups.get("file") or f"lib{groups['lib']}.[sa]*"
        if (library := groups.get("lib", "").lower()) and (own := self._below_setting(library, name)):
            return own
        found = (
            path
            for depth in ("*/", "*/*/", "*/*/*/", *((*_LIBRARIES, *_OF_SYSTEM) if "lib" in groups else ()))
            for path in self.files.find(f"{depth}{name if 'lib' in groups else glob.escape(name)}")
        )
        place = next((path for path in found if "CMakeFiles" not in path and HARMLESS.fullmatch(path)), "")
        folder = place[: -len(name) - 1] if "file" in groups else str(Path(place).parent)
        variable, flag = filled(given, groups), "-L native=" if given == "RUSTFLAGS" else ""
        kept = f"${{{variable}:+:${variable}}}" if variable.endswith("PATH") else ""
        named = not place or "file" in groups or place.endswith((".so", ".a"))  # a linker wants no number behind it
        link = "" if named else f"ln -sf {shlex.quote(Path(place).name)} {folder}/lib{groups['lib']}.so && "
        code = f'{link}export {variable}="{flag}{"" if folder.startswith("/") else "$PWD/"}{folder}{kept}"'
        return f"{code}   # {place} is there; then the same command" if place else ""
