"""What can be proven of a wheel on any machine: that its bytes are whole, and hold what its manifest says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from flashdepot.binary.fatbin import CodeKind
from flashdepot.binary.kind import FileKind
from flashdepot.doctor.check.subject import Binary, read_subject
from flashdepot.errors import IntegrityError
from flashdepot.model.architecture import spell
from flashdepot.model.library_names import names_of
from flashdepot.model.manifest import Manifest

_KINDS = {"linux": FileKind.ELF_SHARED, "windows": FileKind.PE_LIBRARY}


def prove(wheel: Path, manifest: Manifest) -> None:
    """Read every byte of a wheel and compare it with the manifest of its library.

    :raises IntegrityError: with all that is not as it should be.
    """
    subject = read_subject(wheel)
    problems = [*(subject.wheel.problems if subject.wheel else ()), *library_problems(subject.binaries, manifest)]
    if problems:
        raise IntegrityError(
            f"{wheel.name} is not what its manifest says: {'; '.join(problems)}.",
            hint="Nothing of it was pushed. Make it again; if it stays so, report it with 'flashdepot depot verify --json'.",
        )


def library_problems(binaries: tuple[Binary, ...], manifest: Manifest) -> Iterator[str]:
    """What is wrong with the library among the compiled files of a wheel."""
    name = names_of(manifest.platform.system).shared
    found = [binary for binary in binaries if PurePosixPath(binary.name).name == name]
    if len(found) != 1:
        yield f"it has {len(found) or 'no'} {name}"
        return
    (library,) = found
    if library.kind is not _KINDS[manifest.platform.system]:
        yield f"{name} is {library.kind.value}, and it is for {manifest.platform}"
    if library.machines != {manifest.platform.machine}:
        yield f"{name} is for {', '.join(sorted(library.machines))}, not {manifest.platform.machine}"
    code = library.architectures(CodeKind.SASS)
    if set(code) != set(manifest.sass):
        yield f"{name} has machine code for {spell(code) or 'no GPU'}, and its manifest says {spell(manifest.sass)}"
    if library.torch_symbols:
        yield f"{name} takes {min(library.torch_symbols)} from torch, and works with any torch only without"
