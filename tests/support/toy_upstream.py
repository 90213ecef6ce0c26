"""A source tree with upstream's own parameter header and names, but kernels that compile in two seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

_UNIT = """\
#include "flash.h"
#include <cutlass/numeric_types.h>
#include "toy_{family}.h"
namespace FLASH_NAMESPACE {{
template<> void run_mha_{family}_<cutlass::{dtype}, {dim}, {causal}>(Flash_{family}_params &params, cudaStream_t stream) {{
    toy_{family}<{dim}><<<1, 1, 0, stream>>>(params.o_ptr);
}}
}}
"""

_HEADER = """\
#pragma once
template <int D> __global__ void toy_{family}(void *out) {{ if (out) *static_cast<int *>(out) = D; }}
#ifndef __CUDA_ARCH__
inline int only_the_host_sees_this() {{ return 1; }}
#endif
"""

_NUMERIC_TYPES = """\
#pragma once
namespace cutlass { struct half_t { unsigned short bits; }; struct bfloat16_t { unsigned short bits; }; }
"""


def make_toy_upstream(folder: Path, real: Path) -> Path:
    """Make a tree in ``folder``: units of head dims 32 and 64, bf16, forward and backward.

    :param real: an unpacked flash-attn, whose parameter structs and feature macros the toy shares.
    """
    source = folder / "csrc/flash_attn/src"
    source.mkdir(parents=True)
    for name in ("flash.h", "namespace_config.h", "static_switch.h"):
        shutil.copy(real / "csrc/flash_attn/src" / name, source / name)
    include = folder / "csrc/cutlass/include"
    (include / "cutlass").mkdir(parents=True)
    (include / "cute").mkdir()
    (include / "cutlass/numeric_types.h").write_text(_NUMERIC_TYPES)
    (include / "cutlass/cutlass.h").write_text(
        "/* Copyright NVIDIA. Redistribution of a toy is free. */\n#pragma once\n"
    )
    (include / "cute/tensor.hpp").write_text("#pragma once\n")
    (folder / "flash_attn").mkdir()
    (folder / "flash_attn/__init__.py").write_text('__version__ = "2.8.3.dev1"\n')
    (folder / "LICENSE").write_text("Copyright Tri Dao. BSD.\n")
    for family in ("fwd", "bwd"):
        (source / f"toy_{family}.h").write_text(_HEADER.format(family=family))
        for dim in (32, 64):
            for causal in (False, True):
                suffix = "_causal" if causal else ""
                text = _UNIT.format(family=family, dtype="bfloat16_t", dim=dim, causal=str(causal).lower())
                (source / f"flash_{family}_hdim{dim}_bf16{suffix}_sm80.cu").write_text(text)
    return folder
