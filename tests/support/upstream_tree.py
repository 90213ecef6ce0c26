"""Small source trees that look like flash-attention's, and repositories and sdists of them."""

import hashlib
import io
import os
import subprocess
import tarfile

from flashdepot.kernels.fa2.sources import Fa2Layout
from flashdepot.kernels.fa2.units import make_unit
from flashdepot.model.codec import digest_of
from flashdepot.model.selection import Dtype, Pass
from flashdepot.upstream.source import is_kept

UNITS = frozenset(make_unit(p, 64, d, causal=c) for p in Pass for d in Dtype for c in (False, True))
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


def write_files(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


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
