"""Source trees that look like flash-attention's: in folders, repositories and sdists, and a toy to compile."""

import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from flashdepot.kernels.fa2 import Fa2, Fa2Layout, make_unit
from flashdepot.model.codec import digest_of
from flashdepot.model.selection import HALVES, Pass
from flashdepot.upstream import SourceTree
from flashdepot.upstream.source import is_kept
from support.tools import write_files

UNITS = frozenset(make_unit(p, 64, d, causal=c) for p in Pass for d in HALVES for c in (False, True))
CUTLASS_COMMENT = """/***************
 * Copyright (c) 2017 - 2025 NVIDIA CORPORATION & AFFILIATES. All rights reserved.
 *
 * Redistribution and use in source and binary forms, with or without
 * 1. modification
 **************/

/*! \\file
    \\brief Basic include.
*/
"""


def cutlass_files(prefix=""):
    return {
        f"{prefix}include/cutlass/cutlass.h": CUTLASS_COMMENT,
        f"{prefix}include/cutlass/numeric_types.h": "#pragma once\n",
        f"{prefix}include/cute/tensor.hpp": "#pragma once\n",
        f"{prefix}test/unit/test.cu": "not needed\n",
    }


def tree_files(version="9.9.9"):
    """flash-attention without CUTLASS: text by name."""
    source = "csrc/flash_attn/src"
    macros = "".join(f"#ifdef FLASHATTENTION_DISABLE_{name}\n#endif\n" for name in ("DROPOUT", "ALIBI", "BACKWARD"))
    return {
        **{f"{source}/{unit.name}.cu": f"// {unit}\n" for unit in UNITS},
        f"{source}/flash.h": "#pragma once\n",
        f"{source}/static_switch.h": macros,
        "csrc/flash_attn/flash_api.cpp": "// binding\n",
        "csrc/composable_kernel/big.hpp": "not needed\n",
        "hopper/setup.py": "# not needed\n",
        "flash_attn/__init__.py": f'__version__ = "{version}"\n',
        "tests/test_flash_attn.py": "# tests\n",
        "setup.py": "# setup\n",
        "LICENSE": "BSD 3-Clause License\n\nCopyright (c) 2022, the respective contributors\n",
    }


def make_folder(root):
    return write_files(root, tree_files() | cutlass_files("csrc/cutlass/"))


def make_sdist(version="9.9.9", files=None):
    """Make the bytes of an sdist."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in (files or tree_files(version) | cutlass_files("csrc/cutlass/")).items():
            info = tarfile.TarInfo(f"flash_attn-{version}/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def _tree_of(data):
    """The digest of what flashdepot takes of an sdist."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        kept = {
            m.name: archive.extractfile(m).read() for m in archive if is_kept(Fa2Layout(), m.name.partition("/")[2])
        }
    return digest_of({name: hashlib.sha256(content).hexdigest() for name, content in kept.items()})


def sdists_toml(path, version, data):
    """Write a data file that pins one synthetic sdist."""
    path.write_text(
        f"""project = "flash-attn"
[[sdist]]
version = "{version}"
filename = "flash_attn-{version}.tar.gz"
sha256 = "{hashlib.sha256(data).hexdigest()}"
size = {len(data)}
tree = "{_tree_of(data)}"
head_dims = {{ fwd = [64], splitkv = [64], bwd = [64] }}
dtypes = ["bf16", "fp16"]
features = ["dropout", "alibi"]
"""
    )


def run_git(folder, *arguments):
    identity = {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *arguments]
    done = subprocess.run(command, env=os.environ | identity, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit_all(repository, message="change"):
    run_git(repository, "add", "--all")
    run_git(repository, "commit", "--quiet", "--message", message)
    return run_git(repository, "rev-parse", "HEAD")


def make_repository(folder, files):
    folder.mkdir(parents=True)
    run_git(folder, "init", "--quiet", "--initial-branch=main")
    write_files(folder, files)
    commit_all(folder)
    return folder


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


LAYOUT = Fa2.sources.layout
identify = Fa2.sources.identify
obtain = Fa2.sources.obtain
known_versions = Fa2.sources.known_versions
default_version = Fa2.sources.default_version
find_sdist = Fa2.sources.find_sdist


def licences(tree: SourceTree) -> Mapping[str, str]:
    """Return the licence texts of a tree."""
    return Fa2().licences(tree.files)
