"""Installing a wheel: all of it and proved, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from flashdepot.families import oldest_gpu
from flashdepot.install.inspection import inspect
from flashdepot.install.installers import put_wheel
from flashdepot.install.obstacles import environment_of
from flashdepot.install.present import places, present_version
from flashdepot.install.proof import Imported, Numbers, prove_import, prove_numbers
from flashdepot.install.rollback import Rollback
from flashdepot.install.wheel_file import WheelFile
from flashdepot.model.host import HostRecord


class Installed(msgspec.Struct, frozen=True):
    """A wheel that works: by which installer, what import and computation showed, and the version that it replaced."""

    installer: str
    imported: Imported
    numbers: Numbers
    replaced: str | None


def install_wheel(wheel: WheelFile, record: HostRecord, on_note: Callable[[str], None]) -> Installed:
    """Check a wheel, put it into an environment, import it there and, with a GPU, compute with it, in fresh processes.

    Whatever goes wrong, the environment is put back as it was, with the flash-attn that it had.

    :param record: of this machine, with the environment.
    :param on_note: called with a sentence for what is good to know: an earlier installation that was undone.
    :raises UsageError: when no environment is known, or it has a flash-attn that could not be put back.
    :raises IncompatibleError: when wheel and environment do not fit, or the installer refuses.
    :raises MissingToolError: when torch, einops or an installer is missing, or the disk cannot be written.
    :raises IntegrityError: when it is not what it says, does not import, or computes wrong numbers.
    """
    environment = environment_of(record)
    version = inspect(wheel, environment, record, on_note)
    has_gpu = any(gpu.architecture >= oldest_gpu() for gpu in record.gpus)
    with Rollback(environment.prefix, on_note) as rollback:
        replaced = present_version(environment)
        rollback.protect(places(environment, wheel.path))
        installer = put_wheel(environment, wheel.path, rollback.working)
        imported = prove_import(environment, version)
        return Installed(installer, imported, prove_numbers(environment, imported, has_gpu=has_gpu), replaced)
