"""Installing a wheel: all of it and proved, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flashdepot.install.environment import Environment
from flashdepot.install.inspection import inspect
from flashdepot.install.installers import put_wheel
from flashdepot.install.present import places, present_version
from flashdepot.install.proof import Imported, Numbers, prove_import, prove_numbers
from flashdepot.install.requirements import require_environment
from flashdepot.install.rollback import Rollback
from flashdepot.install.wheel_file import WheelFile
from flashdepot.model.architecture import KERNEL_FLOOR
from flashdepot.model.host import HostRecord


@dataclass(frozen=True)
class Installed:
    """A wheel that works: by which installer, what import and computation showed, and the version that it replaced."""

    installer: str
    imported: Imported
    numbers: Numbers
    replaced: str | None


def install_wheel(
    wheel: WheelFile, environment: Environment, record: HostRecord, on_note: Callable[[str], None]
) -> Installed:
    """Check a wheel, put it into an environment, import it there and, with a GPU, compute with it, in fresh processes.

    Whatever goes wrong, the environment is put back as it was, with the flash-attn that it had.

    :param record: of this machine.
    :param on_note: called with a sentence for what is good to know: an earlier installation that was undone.
    :raises UsageError: for the system's own Python, or a flash-attn that could not be put back.
    :raises IncompatibleError: when wheel and environment do not fit, or the installer refuses.
    :raises MissingToolError: when torch, einops or an installer is missing, or the disk cannot be written.
    :raises IntegrityError: when it is not what it says, does not import, or computes wrong numbers.
    """
    require_environment(environment)
    version = inspect(wheel, environment, record, on_note)
    has_gpu = any(gpu.architecture >= KERNEL_FLOOR for gpu in record.gpus)
    with Rollback(environment.prefix, on_note) as rollback:
        replaced = present_version(environment)
        rollback.protect(places(environment, wheel.path))
        installer = put_wheel(environment, wheel.path, rollback.working)
        imported = prove_import(environment, version)
        return Installed(installer, imported, prove_numbers(environment, imported, has_gpu=has_gpu), replaced)
