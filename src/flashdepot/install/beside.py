"""The small wheels under other names, beside a flash-attn that was installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from flashdepot.errors import IntegrityError
from flashdepot.install.change import EnvironmentChange
from flashdepot.install.installers import put_wheel
from flashdepot.install.present import installed, owner_of
from flashdepot.model.python_environment import PythonEnvironment
from flashdepot.system.python import ask_python
from flashdepot.wheel import Name, build_names

_TIMEOUT = 300
_IMPORT = "import sys, {}; print(sys.argv[1] + 'true')"


def install_names(
    names: Sequence[Name], environment: PythonEnvironment, folder: Path, on_note: Callable[[str], None]
) -> tuple[str, ...]:
    """Make the wheels of some names, install them and import each in a fresh process: all of them or none.

    What has such a name already is replaced.

    :param folder: where the wheels are written.
    :returns: the distributions.
    :raises IntegrityError: when one does not import, or another distribution has one of its files.

    It raises what :func:`flashdepot.install.installers.put_wheel` raises as well.
    """
    with EnvironmentChange(environment.prefix, on_note) as change:
        for wheel in build_names(names, folder):
            put_wheel(environment, wheel.path, change.staged)
        old = _files(names, environment)
        for path in change.in_the_way(old):
            owner = owner_of(path, environment) or "no distribution"
            raise IntegrityError(
                f"{path} is there already, a file of {owner}: two distributions with one file break each other.",
                hint="flash-attn was installed, and nothing else was changed. Remove that file's distribution first.",
            )
        change.swap(old)
        for name in names:
            answer = ask_python(environment.executable, _IMPORT.format(name.imported), timeout=_TIMEOUT)
            if answer.document is None:
                raise IntegrityError(
                    f"{name.distribution} was installed into {environment.prefix}, and 'import {name.imported}' fails "
                    f"there: {answer.last_words}.",
                    hint="flash-attn stays installed, and the rest of the environment is as it was.",
                )
    return tuple(name.distribution for name in names)


def _files(names: Sequence[Name], environment: PythonEnvironment) -> list[Path]:
    """The files of the distributions that have these names now."""
    wanted = {canonicalize_name(name.distribution) for name in names}
    return [
        Path(os.path.normpath(str(distribution.locate_file(file))))
        for distribution in installed(environment)
        if canonicalize_name(distribution.metadata["Name"]) in wanted
        for file in distribution.files or ()
    ]
