"""Whether flash_attn imports in an environment, in a fresh process of its interpreter."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from flashdepot.errors import IntegrityError
from flashdepot.install.environment import Environment
from flashdepot.system.process import run

_TIMEOUT = 300
"""Importing torch from a cold network disk takes minutes."""

_IMPORT = """
import json
import torch
import flash_attn, flash_attn_2_cuda
from importlib.metadata import version
print(json.dumps({
    "version": version("flash_attn"),
    "torch": torch.__version__,
    "package": flash_attn.__file__,
    "module": flash_attn_2_cuda.__file__,
    "operator": str(getattr(torch.ops.flash_attn, "_flash_attn_forward", "")),
}))
"""


@dataclass(frozen=True)
class Imported:
    """What an import showed: versions, and where the modules came from."""

    version: str
    torch: str
    module: Path


def prove_import(environment: Environment, version: str) -> Imported:
    """Import flash_attn in a new process, in an empty folder, without a GPU being needed.

    :param version: the one that was installed.
    :raises IntegrityError: when it does not import, or something else than what was installed does.
    """
    with tempfile.TemporaryDirectory() as empty:
        done = run([str(environment.python), "-I", "-B", "-c", _IMPORT], cwd=Path(empty), timeout=_TIMEOUT)
    if done.status != 0:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.status}"])[-1]
        raise IntegrityError(
            f"flash_attn {version} was installed into {environment.prefix} and does not import there: {said}.",
            hint=f"The environment is as it was. See whether torch works: {environment.python} -c 'import torch'",
        )
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    module = Path(seen["module"])
    inside = all(environment.platlib in Path(seen[name]).parents for name in ("module", "package"))
    if seen["version"] != version or not inside:
        raise IntegrityError(
            f"flash_attn {version} was installed into {environment.platlib}, and {environment.python} imports "
            f"{seen['version']} from {seen['package']}.",
            hint="Another copy stands before it on sys.path: remove that one.",
        )
    return Imported(seen["version"], seen["torch"], module)
