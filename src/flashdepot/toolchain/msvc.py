"""Microsoft's compiler at hand: the programs beside ``cl``, and its environment, loaded without a developer prompt."""

from __future__ import annotations

import ntpath
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from flashdepot.errors import MissingToolError
from flashdepot.model.host import HostCompiler
from flashdepot.system.process import run
from flashdepot.toolchain.msvc_environment import (
    SCRIPT_NAME,
    MsvcToolset,
    load_script,
    merge,
    prompt_compiler,
    read_environment,
    require_usable,
    to_load_in,
)

_COMPILER_LIBRARIES = ("c1.dll", "c1xx.dll", "c2.dll")
"""What ``cl`` itself only starts: the front ends of C and C++, and the code generator."""

_SHELL = ("cmd.exe",)


def environment_for(cxx: HostCompiler, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a host compiler needs besides those of this process, their names in capitals.

    None for a compiler that needs none, nor in a developer prompt that has loaded this very ``cl``.

    :raises MissingToolError: when they cannot be loaded, with what the batch file of Visual Studio said.
    """
    if cxx.kind != "cl":
        return {}
    require_usable(environment)
    loaded = prompt_compiler(environment)
    if loaded is not None and ntpath.normcase(loaded) == ntpath.normcase(cxx.path):
        return {}
    toolset = MsvcToolset.of_compiler(cxx.path)
    if not Path(toolset.batch).is_file():
        raise MissingToolError(
            f"{toolset.batch} is not there, and it loads the environment of {cxx.path}.",
            hint='Repair "MSVC x64/x86 build tools" in the Visual Studio Installer, or name another cl: NVCC_CCBIN',
        )
    return load_environment(toolset, environment)


def load_environment(
    toolset: MsvcToolset, environment: Mapping[str, str], shell: Sequence[str] = _SHELL
) -> dict[str, str]:
    """What a toolset's batch file changes in an environment, ``PATH`` already put together from both.

    :param shell: the command that runs ``cmd``.
    :raises MissingToolError: when the batch file fails.
    """
    with tempfile.TemporaryDirectory(prefix="flashdepot-msvc-") as folder:
        (Path(folder) / SCRIPT_NAME).write_bytes(load_script(toolset).encode("ascii"))
        # The script by its name alone: no blank and no quote for cmd to take apart.
        done = run(
            [*shell, "/d", "/s", "/c", SCRIPT_NAME],
            cwd=Path(folder),
            env=to_load_in(environment, toolset),
            encoding="utf-8",
        )
    return merge(environment, read_environment(done.stderr + done.stdout, toolset))


def beside(cxx: HostCompiler, name: str) -> Path:
    """A program of the compiler's own folder: ``lib.exe``, ``link.exe``.

    :raises MissingToolError: when it is not there.
    """
    path = Path(cxx.path).with_name(name)
    if not path.is_file():
        raise MissingToolError(
            f"{path} is not there; it belongs to {cxx.path} and makes the libraries.",
            hint='Repair "MSVC x64/x86 build tools" in the Visual Studio Installer.',
        )
    return path


def compiler_libraries(cxx: HostCompiler) -> list[Path]:
    """The libraries beside ``cl`` that do its work, and so belong to its identity."""
    paths = (Path(cxx.path).with_name(name) for name in _COMPILER_LIBRARIES)
    return [path for path in paths if path.is_file()]
