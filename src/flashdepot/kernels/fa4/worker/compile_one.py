"""One job to one object file."""

import importlib
import tempfile
from pathlib import Path
from typing import Any

import cutlass.cute as cute
import quack.dsl  # noqa: F401  # adds to CuTe what upstream writes: tensor[..., i]
from any_host import without_host

_MODULES = {"sm_90a": "sm90", "sm_100f": "sm100", "sm_110f": "sm100", "sm_120f": "sm120"}
_FUNCTION = "run"


def compile_one(job: dict[str, Any], target: Path) -> None:
    """Writes the object ``target``, whole or not at all.

    It defines _mlir_PREFIX_cuda_init, _mlir_PREFIX_cuda_load_to_device and _mlir_PREFIX__mlir_ciface_run, each with an
    array of pointers to its arguments; those of the last are the parameters of the kernel's function here, less those
    that are None, and the result.
    """
    # Another architecture's module is not imported: it would be an input of this kernel's key.
    kernels = importlib.import_module(_MODULES[job["arch"]]).KERNELS
    entry = kernels[job["kernel"]](job)
    entry.function.set_name_prefix(_FUNCTION, remove_cutlass_symbol=True, keep_mangled_name=False)
    options = f"--host-target 'llvm -mtriple={job['triple']} -mcpu={job['cpu']}'"
    compiled = cute.compile(entry.function, *entry.arguments, options=options)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        compiled.export_to_c(folder, "unit", job["prefix"])
        unit = Path(folder, "unit.o")
        unit.write_bytes(without_host(unit.read_bytes()))
        unit.replace(target)
