"""An available nvcc: its version, what it can target, which options it has, and what it is given for any source."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from flashdepot.errors import MissingToolError
from flashdepot.facts.gpus import codes_of
from flashdepot.files.disk import sha256_file, text_of
from flashdepot.model.codec import digest_of
from flashdepot.model.host import CudaToolkit
from flashdepot.model.target import Architecture, Version


class Nvcc(msgspec.Struct, frozen=True):
    """An nvcc and its toolkit. ``codes`` are the architectures it makes SASS for, ``options`` its long options.

    ``missing`` names the files of the toolkit that a build needs and that are not there. ``newest_gcc`` and
    ``newest_clang`` are the major versions that its ``crt/host_config.h`` accepts.
    """

    root: Path
    version: Version
    codes: tuple[Architecture, ...]
    options: frozenset[str] = frozenset()
    newest_gcc: int | None = None
    newest_clang: int | None = None
    missing: tuple[str, ...] = ()

    def toolkit(self, found_by: str) -> CudaToolkit:
        """What a host's record has of it."""
        return CudaToolkit(
            str(self.root), self.version, found_by, self.missing, self.codes, self.newest_gcc, self.newest_clang
        )

    @property
    def program(self) -> Path:
        """The compiler driver."""
        return _program(self.root)

    @property
    def include(self) -> Path:
        """The folder of ``cuda_runtime.h``."""
        return next(iter(self.includes), self.root / "include")

    @property
    def includes(self) -> tuple[Path, ...]:
        """Every folder of the toolkit that has ``cuda_runtime.h``: several names of one folder, usually."""
        folders = (self.root / "include", *sorted(self.root.glob("targets/*/include")))
        return tuple(folder for folder in folders if (folder / "cuda_runtime.h").is_file())


def tools_of(root: Path) -> tuple[Path, ...]:
    """Every program, settings file and library of device code that takes part in a compile, headers aside.

    No list of what a compiler read has these, so their bytes are part of every key.
    """
    exe = _program(root).suffix
    programs = [root / "bin" / f"{name}{exe}" for name in ("nvcc", "cudafe++", "ptxas", "fatbinary")]
    device = (root / "nvvm" / "bin" / f"cicc{exe}", root / "nvvm" / "libdevice" / "libdevice.10.bc")
    return (*programs, root / "bin" / "nvcc.profile", *device)


def _program(root: Path) -> Path:
    windows = root / "bin" / "nvcc.exe"
    return windows if windows.is_file() else root / "bin" / "nvcc"


def named_root(folder: Path) -> Path:
    """The root of a toolkit that ``--cuda`` names."""
    return Path(os.path.realpath(folder.expanduser()))  # Path.resolve raises for a link that leads to itself


def named_compiler(folder: Path) -> str:
    """The digest of the nvcc in a folder that ``--cuda`` names, as :attr:`ToolchainId.device_compiler` has it.

    Nothing of it is run.
    """
    root = named_root(folder)
    program(root)
    return digest_of({p.name.removesuffix(".exe"): sha256_file(p) for p in tools_of(root) if p.is_file()})


def program(root: Path) -> Path:
    """The compiler driver of a toolkit; :raises MissingToolError: when there is none."""
    path = _program(root)
    if not path.is_file():
        raise MissingToolError(
            f"{root} holds no CUDA toolkit: {path} is not there.", hint="Name the folder that has bin/nvcc in it."
        )
    return path


def inspect(root: Path) -> Nvcc:
    """Ask the nvcc of a toolkit's root folder what it is and what it can do."""
    from flashdepot.process.run import run  # noqa: PLC0415  (what is foreseen from a record starts no program)

    nvcc = program(root)
    version = re.search(r"\bV(\d+\.\d+\.\d+)", run([str(nvcc), "--version"]).stdout)
    codes = run([str(nvcc), "--list-gpu-code"])
    if version is None or codes.status != 0:
        raise MissingToolError(f"{nvcc} does not answer as nvcc does: {codes.output.strip()[:200]}")
    help_text = run([str(nvcc), "--help"]).stdout
    headers = (root / "include/crt/host_config.h", *root.glob("targets/*/include/crt/host_config.h"))
    accepted = next(filter(None, map(text_of, headers)), "")
    gcc, clang = re.search(r"#if __GNUC__ > (\d+)", accepted), re.search(r"#if \(__clang_major__ >= (\d+)\)", accepted)
    found = Nvcc(
        root=root,
        version=Version(version[1]),
        codes=tuple(sorted(Architecture.parse(line) for line in codes.stdout.split())),
        options=frozenset(re.findall(r"^(--[a-z][\w-]*)", help_text, re.MULTILINE)),
        newest_gcc=int(gcc[1]) if gcc else None,
        newest_clang=int(clang[1]) - 1 if clang else None,
    )
    needed = [*tools_of(root), found.include / "cuda_runtime.h", found.include / "cuda_fp16.h"]
    missing = [path.relative_to(root).as_posix() for path in needed if not path.is_file()]
    return replace(found, missing=tuple(missing))


_SYMBOL_FLAGS = ("--static-global-template-stub", "--device-entity-has-hidden-visibility")
"""Keep kernel stubs local to their object. nvcc has them from 12.8 and turns them on itself from 13.0."""


def known(root: Path, version: Version) -> Nvcc:
    """The pinned nvcc for Linux as it answers there, where it does not run: what it has compiled is known by it."""
    options = {"--objdir-as-tempdir", "--frandom-seed", "--compress-mode", *_SYMBOL_FLAGS}
    return Nvcc(root, version, codes_of(version), frozenset(options))


NVCC = "{cuda}/bin/nvcc"

VARIABLES = (
    *("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "SOURCE_DATE_EPOCH"),
)
"""Those of the environment that change what nvcc and the clang that preprocesses for it write."""

# The two warnings are about glibc's noexcept on functions that NVIDIA's headers declare again: a thousand lines.
HOST_FLAGS = (
    "-Xcompiler=-include,{native}/device/prelude.h,-Wno-macro-redefined",
    "-diag-suppress=541",
    "--allow-unsupported-compiler",
)
"""What nvcc is given for the sake of zig's clang."""

SOURCE_NAME = ("-Xcudafe", "--orig_src_path_name {name}", "-Xcicc", "--orig_src_path_name {name}")
"""Arguments that make nvcc derive its internal names from our name instead of the source's absolute path.

They pass an option of nvcc's own phases through, which no manual promises: the probe finds out whether it works.
"""


def gencode(sass: Sequence[Architecture], virtual: Architecture | None) -> tuple[str, ...]:
    """The architectures to assemble for.

    :param virtual: the one that the front end compiles for, once for all of ``sass``; ``None``: for each by itself.
    """
    arguments = []
    for architecture in sass:
        arguments += ["-gencode", f"arch=compute_{virtual or architecture},code={architecture.sm}"]
    return tuple(arguments)


_CLASSIC = "classic"
"""The compression that nvcc had before ``--compress-mode``."""

_NEW_MODES = ("size", "balance", "speed")
"""Modes of compression that came with CUDA 12.8, and that the first drivers of CUDA 12 do not read."""


def usual_compression(cuda: Version) -> str:
    """The mode that makes the smallest code which every driver of a CUDA major version reads."""
    return "size" if cuda >= Version("13") else _CLASSIC


def compression(options: frozenset[str], mode: str) -> tuple[str, ...]:
    """The arguments that compress machine code inside the objects.

    :param mode: that of ``--compress-mode``, for an nvcc that has it, or what :func:`usual_compression` gave.
    """
    if "--compress-mode" in options and mode != _CLASSIC:
        return (f"--compress-mode={mode}",)
    return () if mode == "none" else ("-Xfatbin", "-compress-all")


def compresses_newly(flags: Sequence[str]) -> bool:
    """Whether what nvcc is given makes code that the first drivers of CUDA 12 do not read."""
    return any(f"--compress-mode={mode}" in flags for mode in _NEW_MODES)


def nvcc_flags(
    sass: Sequence[Architecture], *, virtual: Architecture | None, compress: str, options: frozenset[str]
) -> tuple[str, ...]:
    """What nvcc is given for a CUDA source of any family.

    :param virtual: as for :func:`gencode`.
    """
    symbols = tuple(f"{flag}=true" for flag in _SYMBOL_FLAGS if flag in options)
    return (*HOST_FLAGS, *symbols, *compression(options, compress), *gencode(sass, virtual))
