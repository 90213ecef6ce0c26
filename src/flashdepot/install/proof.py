"""Whether flash_attn imports in an environment, and computes the right numbers, in fresh processes of its interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from flashdepot.errors import FlashdepotError, IntegrityError
from flashdepot.model.python_environment import PythonEnvironment
from flashdepot.prove.environment import run_script
from flashdepot.system.python import ask_python

_TIMEOUT = 300
"""Importing torch from a cold network disk takes minutes."""

_OTHER_COPY = "Another copy stands before it on sys.path: remove that one."

_IMPORT = """
import json, sys
import torch
import flash_attn, flash_attn_2_cuda
from importlib.metadata import version
print(sys.argv[1] + json.dumps({
    "version": version("flash_attn"),
    "torch": torch.__version__,
    "sees_gpu": torch.cuda.is_available(),
    "package": flash_attn.__file__,
    "module": flash_attn_2_cuda.__file__,
    "operator": str(getattr(torch.ops.flash_attn, "_flash_attn_forward", "")),
}))
"""

_FIND = """
import json, sys
from importlib.util import find_spec
found = [find_spec(name) for name in ("flash_attn", "flash_attn_2_cuda")]
print(sys.argv[1] + json.dumps([spec.origin for spec in found if spec and spec.has_location]))
"""
"""Says where the modules are without importing them."""


class Imported(msgspec.Struct, frozen=True):
    """What an import showed: versions, where the module came from, and whether torch sees a GPU."""

    version: str
    torch: str
    module: Path
    sees_gpu: bool


class Numbers(msgspec.Struct, frozen=True):
    """What the numeric proof showed: the GPU, and how many results were right and how many left out.

    ``not_run`` is the reason why it was not run, empty when it was.
    """

    gpu: str = ""
    right: int = 0
    skipped: int = 0
    not_run: str = ""

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def prove_import(environment: PythonEnvironment, version: str) -> Imported:
    """Import flash_attn in a new process, without a GPU being needed.

    :param version: the one that was installed.
    :raises IntegrityError: when it does not import, or something else than what was installed does.
    """
    answer = ask_python(environment.executable, _IMPORT, timeout=_TIMEOUT)
    if answer.document is None:
        places = ask_python(environment.executable, _FIND, timeout=_TIMEOUT).document or []
        if others := [place for place in places if not _is_inside(environment, place)]:
            raise IntegrityError(
                f"flash_attn {version} was installed into {environment.platlib}, and {environment.executable} finds "
                f"{others[0]} first, with which it does not import: {answer.last_words}.",
                hint=_OTHER_COPY,
            )
        raise IntegrityError(
            f"flash_attn {version} was installed into {environment.prefix} and does not import there: "
            f"{answer.last_words}.",
            hint=f"The environment is as it was. See whether torch works: {environment.executable} -c 'import torch'",
        )
    seen = answer.document
    inside = all(_is_inside(environment, seen[name]) for name in ("module", "package"))
    if seen["version"] != version or not inside:
        raise IntegrityError(
            f"flash_attn {version} was installed into {environment.platlib}, and {environment.executable} imports "
            f"{seen['version']} from {seen['package']}.",
            hint=_OTHER_COPY,
        )
    return Imported(seen["version"], seen["torch"], Path(seen["module"]), seen["sees_gpu"])


def _is_inside(environment: PythonEnvironment, place: str) -> bool:
    return any(site in Path(place).parents for site in (environment.platlib, environment.purelib))


def prove_numbers(environment: PythonEnvironment, imported: Imported, *, has_gpu: bool) -> Numbers:
    """Compare what flash_attn computes on this machine's GPU with float64, as ``flashdepot verify`` does.

    :param has_gpu: whether the machine has a GPU that the kernels run on.
    :raises IntegrityError: when a result is wrong, or the computation fails for another reason than a lack of memory.
    """
    if not has_gpu:
        return Numbers(not_run="there is no GPU here")
    if not imported.sees_gpu:
        return Numbers(not_run=f"torch {imported.torch} sees no GPU")
    try:
        document = run_script(environment.executable, "numeric.py", timeout=_TIMEOUT)
    except FlashdepotError as error:
        if "out of memory" in error.message:
            return Numbers(not_run="the GPU has no memory to spare now")
        raise IntegrityError(
            f"flash_attn {imported.version} imports in {environment.prefix} and does not compute: {error.message}",
            hint="The environment is as it was. 'flashdepot check' tells whether the wheel has code for this GPU.",
        ) from error
    rows = document["rows"]
    if wrong := [row for row in rows if row["ok"] is False]:
        raise IntegrityError(
            f"flash_attn {imported.version} computes wrong numbers on {document['gpu']}: {len(wrong)} of {len(rows)}; "
            f"the first: {wrong[0]['dtype']} {wrong[0]['what']}.",
            hint="The environment is as it was. Do not use that wheel on this GPU.",
        )
    right = sum(row["ok"] is True for row in rows)
    return Numbers(gpu=document["gpu"], right=right, skipped=len(rows) - right)
