"""Installing a wheel: all of it and proved, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flashdepot.install.environment import Environment
from flashdepot.install.installers import put_wheel
from flashdepot.install.present import places, present_version
from flashdepot.install.proof import Imported, prove_import
from flashdepot.install.requirements import require_environment, require_platform
from flashdepot.install.rollback import Rollback
from flashdepot.model.manifest import Manifest
from flashdepot.wheel import Wheel


@dataclass(frozen=True)
class Installed:
    """A wheel that imports: by which installer, what the import showed, and the version that it replaced."""

    installer: str
    imported: Imported
    replaced: str | None


def install_wheel(
    wheel: Wheel, manifest: Manifest, environment: Environment, on_note: Callable[[str], None]
) -> Installed:
    """Put a wheel into an environment and import it there in a fresh process.

    Whatever goes wrong, the environment is put back as it was, with the flash-attn that it had.

    :param manifest: of the library in the wheel.
    :param on_note: called with a sentence when an earlier, interrupted installation was undone.
    :raises UsageError: for the system's own Python, or a flash-attn that could not be put back.
    :raises IncompatibleError: when wheel and environment do not fit, or the installer refuses.
    :raises MissingToolError: when torch, einops or an installer is missing, or the disk cannot be written.
    :raises IntegrityError: when it does not import.
    """
    require_environment(environment)
    require_platform(environment, manifest.platform, manifest.libc_floor)
    with Rollback(environment.prefix, on_note) as rollback:
        replaced = present_version(environment)
        rollback.protect(places(environment, wheel.path))
        installer = put_wheel(environment, wheel.path)
        return Installed(installer, prove_import(environment, wheel.version), replaced)
