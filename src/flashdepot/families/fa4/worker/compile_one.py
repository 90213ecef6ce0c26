"""One job to one object file."""

import tempfile
from pathlib import Path
from typing import Any

import cutlass.cute as cute
import quack.dsl  # noqa: F401  # adds to CuTe what upstream writes: tensor[..., i]
import sm90

_KERNELS = {
    "fwd": sm90.forward,
    "bwd": sm90.backward,
    "pre": sm90.before_backward,
    "post": sm90.after_backward,
}
_FUNCTION = "run"


def compile_one(job: dict[str, Any], target: Path) -> None:
    """Writes the object ``target``, whole or not at all.

    It defines _mlir_PREFIX_cuda_init, _mlir_PREFIX_cuda_load_to_device and _mlir_PREFIX__mlir_ciface_run, each with an
    array of pointers to its arguments; those of the last are the parameters of the kernel's function here, less those
    that are None, and the result.
    """
    entry = _KERNELS[job["kernel"]](job)
    entry.function.set_name_prefix(_FUNCTION, remove_cutlass_symbol=True, keep_mangled_name=False)
    options = f"--host-target 'llvm -mtriple={job['triple']} -mcpu={job['cpu']}'"
    compiled = cute.compile(entry.function, *entry.arguments, options=options)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        compiled.export_to_c(folder, "unit", job["prefix"])
        Path(folder, "unit.o").replace(target)
