"""Installing a wheel: all of it and proved, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from flashdepot.errors import IntegrityError
from flashdepot.families import oldest_gpu
from flashdepot.install.change import EnvironmentChange
from flashdepot.install.entry_points import require_own_name
from flashdepot.install.inspection import inspect
from flashdepot.install.installers import put_wheel
from flashdepot.install.obstacles import environment_of
from flashdepot.install.present import own_files, owner_of, present_version
from flashdepot.install.proof import Imported, Numbers, prove_import, prove_numbers
from flashdepot.install.requirements import add_missing
from flashdepot.install.wheel_file import WheelFile
from flashdepot.model.host import HostRecord
from flashdepot.model.python_environment import PythonEnvironment


class Installed(msgspec.Struct, frozen=True):
    """A wheel that works: by which installer, what import and computation showed, the version that it replaced.

    ``added`` are the requirements that were installed with it.
    """

    installer: str
    imported: Imported
    numbers: Numbers
    replaced: str | None
    added: tuple[str, ...] = ()


def install_wheel(wheel: WheelFile, record: HostRecord, on_note: Callable[[str], None]) -> Installed:
    """Check a wheel, put it into an environment, import it there and, with a GPU, compute with it, in fresh processes.

    Whatever goes wrong, the environment is put back as it was, with the flash-attn that it had.

    :param record: of this machine, with the environment.
    :param on_note: called with a sentence for what is good to know: an earlier installation that was undone.
    :raises UsageError: when no environment is known, or it has a flash-attn that could not be put back.
    :raises IncompatibleError: when wheel and environment do not fit, or the installer refuses.
    :raises MissingToolError: when torch, einops or an installer is missing, or the disk cannot be written.
    :raises NetworkError: when something that it requires cannot be had.
    :raises IntegrityError: when it is not what it says, does not import, or computes wrong numbers.
    """
    environment = environment_of(record)
    version = inspect(wheel, environment, record, on_note)
    has_gpu = any(gpu.architecture >= oldest_gpu() for gpu in record.gpus)
    with EnvironmentChange(environment.prefix, on_note) as change:
        replaced, old = present_version(environment), own_files(environment)
        installer = put_wheel(environment, wheel.path, change.staged)
        if added := add_missing(environment, change.staged):
            on_note(f"flash-attn requires {', '.join(added)}: it comes from your index.")
        _require_own(change, old, environment, wheel.path.name)
        change.swap(old)
        imported = prove_import(environment, version)
        return Installed(
            installer, imported, prove_numbers(environment, imported, has_gpu=has_gpu), replaced, tuple(added)
        )


def _require_own(change: EnvironmentChange, old: list[Path], environment: PythonEnvironment, wheel: str) -> None:
    """Refuse programs of reserved names, and files that are there and no earlier flash-attn's.

    It judges what the installer wrote, not what the wheel seems to say.
    """
    for path in change.added():
        if path.parent == environment.scripts:
            require_own_name(path.name, wheel)
    for path in change.in_the_way(old):
        owner = owner_of(path, environment)
        whose = f"is a file of {owner}" if owner else "is there already and no file of flash-attn"
        raise IntegrityError(
            f"{wheel} is refused: it brings {path}, which {whose}.",
            hint="Nothing was changed. Take another wheel, or remove that file first if it is yours.",
        )
