"""The C layer over stand-ins: kernels that only record, a CUDA runtime without a GPU."""

from __future__ import annotations

import ctypes
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashdepot.kernels.fa4.variants import Variant
from support.fa4_units import fa4_lines, stand_ins
from support.fa_abi import BackwardArgs, ForwardArgs, Library

NATIVE = Path(__file__).parents[2] / "src" / "flashdepot" / "native"
STUB = Path(__file__).parents[1] / "native" / "stub"
HEAD_DIMS = (32, 64, 96, 128, 192, 256)
FEATURES = ("DROPOUT", "ALIBI", "SOFTCAP", "LOCAL", "UNEVEN_K")

# The GPUs of stub/cudart.cpp: compute capability and number of SMs.
DEVICES = {0: (8, 0, 108), 1: (8, 9, 128), 2: (9, 0, 132), 3: (10, 0, 148), 4: (7, 5, 40), 5: (12, 1, 48)}


@dataclass(frozen=True)
class Selection:
    """What fa_config.h says that a library holds. Units are dtype, head dim, causal."""

    fwd: tuple[tuple[str, int, bool], ...] = ()
    splitkv: tuple[tuple[str, int, bool], ...] = ()
    bwd: tuple[tuple[str, int, bool], ...] = ()
    features: tuple[str, ...] = ()
    sass: tuple[int, ...] = (80, 90)
    head_dims: tuple[int, ...] = HEAD_DIMS
    upstream: str = "2.8.3.post2"
    dq_index_bits: int = 64
    families: tuple[str, ...] = ("fa2",)
    fa4: tuple[Variant, ...] = ()  # without any, a library of fa4 has the one of stub/fa4.cpp
    parts: tuple[Path, ...] = ()  # of further families: sources of their C layer, and objects of their kernels

    def header(self) -> str:
        def units(of: tuple[tuple[str, int, bool], ...]) -> str:
            return " ".join(f"X({dtype}, {dim}, {str(causal).lower()})" for dtype, dim, causal in of)

        lines = [
            '#define FA_CONFIG_FLASHDEPOT "0.1.0"',
            "#define FA_CONFIG_CUDA 13000",
            '#define FA_CONFIG_DRIVER "580"',
            f"#define FA_CONFIG_FAMILIES(X) {' '.join(f'X({family})' for family in self.families)}",
            f'#define FA2_CONFIG_UPSTREAM "{self.upstream}"',
            f"#define FA2_CONFIG_DQ_INDEX_BITS {self.dq_index_bits}",
            '#define FA2_CONFIG_DQ_INDEX_64_SINCE "2.8.3.post2"',
            f"#define FA2_CONFIG_SASS {', '.join(map(str, self.sass))}",
            f"#define FA2_CONFIG_HEAD_DIMS {', '.join(map(str, self.head_dims))}",
            *(f"#define FA2_CONFIG_HAS_{name} {int(name in self.features)}" for name in FEATURES),
            f"#define FA2_CONFIG_FWD_UNITS(X) {units(self.fwd)}",
            f"#define FA2_CONFIG_SPLITKV_UNITS(X) {units(self.splitkv)}",
            f"#define FA2_CONFIG_BWD_UNITS(X) {units(self.bwd)}",
            *(fa4_lines(self.fa4) if self.fa4 else ()),
        ]
        return "\n".join(lines) + "\n"


def units_of(
    head_dims: tuple[int, ...], dtypes: tuple[str, ...] = ("bf16", "fp16")
) -> tuple[tuple[str, int, bool], ...]:
    return tuple((dtype, dim, causal) for dtype in dtypes for dim in head_dims for causal in (False, True))


FULL = Selection(fwd=units_of(HEAD_DIMS), splitkv=units_of(HEAD_DIMS), bwd=units_of(HEAD_DIMS), features=FEATURES)


class Stub(Library):
    """A library of the C layer over the stand-ins."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.c.stub_launches.restype = ctypes.c_char_p
        if hasattr(self.c, "stub_upstream_bytes"):
            self.c.stub_upstream_bytes.restype = ctypes.c_int64

    def reset(self) -> None:
        self.c.stub_clear()
        self.c.stub_set_current_device(0)
        self.c.stub_set_last_error(0)
        self.c.stub_fail(b"", 0)

    def launches(self) -> list[dict[str, Any]]:
        """Return what was launched since the last call of this, in order."""
        launched: list[dict[str, Any]] = json.loads(f"[{self.c.stub_launches().decode()}]")
        self.c.stub_clear()
        return launched

    def fails(self, call: str, code: int) -> None:
        """From now on the CUDA function `call` (or a "kernel launch") answers with `code`."""
        self.c.stub_fail(call.encode(), code)

    def upstream_launches(
        self, args: ForwardArgs | BackwardArgs, scale: float, *, as_cache: bool = False
    ) -> list[dict[str, Any]]:
        """Return what upstream's flash_api.cpp launches for the same arguments. It wants a scale."""
        self.c.stub_set_current_device(args.device)  # upstream takes the current device
        if isinstance(args, ForwardArgs):
            raised = self.c.stub_upstream_fwd(ctypes.byref(args), ctypes.c_float(scale), as_cache)
        else:
            raised = self.c.stub_upstream_bwd(ctypes.byref(args), ctypes.c_float(scale))
        self.c.stub_set_current_device(0)
        assert not raised, "upstream raised"
        return self.launches()

    def upstream_bytes(self, address: int) -> int:
        """Return the size of the tensor that upstream allocated at an address in its last call."""
        size: int = self.c.stub_upstream_bytes(ctypes.c_int64(address))
        assert size >= 0, "not an address of upstream's"
        return size


def build(selection: Selection, folder: Path, upstream: Path, cuda_include: Path) -> Stub:
    """Compile a selection with the flags that flashdepot uses for the C layer. About two seconds."""
    stubs = ["upstream.cpp"] if selection == FULL else []
    objects = _objects(selection, folder, upstream, cuda_include, stubs, ())
    library = folder / "libstub.so"
    run(["g++", "-shared", "-Wl,--no-undefined", *map(str, objects), "-o", str(library)])
    return Stub(library)


def build_program(source: str, folder: Path, upstream: Path, cuda_include: Path, *options: str) -> Path:
    """Compile every unit and feature into a program with a source of stub/, all with more compiler options."""
    objects = _objects(FULL, folder, upstream, cuda_include, [source], options)
    program = folder / Path(source).stem
    run(["g++", *options, *map(str, objects), "-o", str(program)])
    return program


def _objects(
    selection: Selection,
    folder: Path,
    upstream: Path,
    cuda_include: Path,
    more: list[str],
    options: tuple[str, ...],
) -> list[Path]:
    csrc = upstream / "csrc"
    ours = ["-O2", "-Wall", "-Wextra", "-Werror", "-fno-exceptions", "-fno-rtti"]
    theirs = ["-O0", "-w", f"-I{STUB}", f"-I{STUB / 'torch'}", f"-I{csrc / 'flash_attn'}"]
    (folder / "fa_config.h").write_text(selection.header())
    common = [
        "-std=c++17",
        "-fPIC",
        "-DFLASH_NAMESPACE=flashdepot_fa2",
        f"-I{folder}",
        *(f"-I{NATIVE / name}" for name in ("include", "src", "shim", "driver")),
        f"-I{csrc / 'flash_attn' / 'src'}",
        f"-I{csrc / 'cutlass' / 'include'}",
        "-isystem",
        str(cuda_include),
    ]
    stubs = ["cudart.cpp", "kernels.cpp", *more]
    stubs += ["fa4.cpp"] if "fa4" in selection.families and not selection.fa4 else []
    folders = [NATIVE / "src", NATIVE / "src" / "fa2", *([NATIVE / "src" / "fa4"] if selection.fa4 else [])]
    jobs = [(source, ours) for part in folders for source in sorted(part.glob("*.cpp"))]
    jobs = [job for job in jobs if job[0].name != "runtime.cpp"]  # what the stand-ins for objects do not call
    if selection.fa4:
        (folder / "fa4_units.cpp").write_text(stand_ins(selection.fa4))
        jobs.append((folder / "fa4_units.cpp", theirs))
    jobs += [(STUB / name, theirs) for name in stubs]
    jobs += [(part, ours) for part in selection.parts if part.suffix == ".cpp"]

    def compile_one(job: tuple[Path, list[str]]) -> Path:
        source, flags = job
        output = folder / f"{source.parent.name}_{source.stem}.o"
        run(["g++", *common, *flags, *options, "-c", str(source), "-o", str(output)])
        return output

    with ThreadPoolExecutor(max_workers=2) as pool:
        return [*pool.map(compile_one, jobs), *(part for part in selection.parts if part.suffix == ".o")]


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[:4000]}"
    return done.stdout
