"""The C layer over stand-ins: kernels that only record, a CUDA runtime without a GPU."""

import ctypes
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flashdepot.kernels import family_of
from flashdepot.kernels.actions import CONFIG_HEADER, config_header
from flashdepot.kernels.fa4.actions import config_lines
from flashdepot.kernels.fa4.units import HOPPER, Kernel, code_for, is_made, kernels_of, unit_of
from flashdepot.kernels.fa4.variants import Variant
from flashdepot.model import selection as wanted
from flashdepot.model.recipe import UpstreamId
from flashdepot.model.selection import ALL_FEATURES, Unit
from flashdepot.upstream import Identified
from support.fa_abi import BackwardArgs, ForwardArgs, Library
from support.recipes import architectures, make_recipe
from support.tools import run_program

SASS = architectures("90,100,120")


def _units(variants: Sequence[Variant]) -> frozenset[Unit]:
    arches = map(code_for, SASS)
    return frozenset(unit_of(v, arch) for arch in arches for v in variants if arch == HOPPER or is_made(arch, v))


def fa4_lines(variants: Sequence[Variant]) -> Iterable[str]:
    """What fa_config.h says of a library with these kernels, and their helpers; a measurement is made up."""
    source = Identified(UpstreamId("4.0.0b36", "0" * 64), frozenset(), frozenset())
    yield from config_lines(wanted.Selection(_units(variants), ALL_FEATURES), SASS, source)
    yield "#undef FA4_CONFIG_SLOWER"
    slower = ("90, fwd, 128, causal, dense, 0, 3, 3000, 6000", "90, fwd, 128, full, cache, 0, 9, 0, 200")
    yield f"#define FA4_CONFIG_SLOWER(X) {' '.join(f'X({row})' for row in slower)}"


def parameters(variant: Variant, *, walks: bool, has_sink: bool = True) -> list[tuple[str, str]]:
    """Name and kind of each parameter that the kernel's function in the worker has: a tensor's rank, or f, i, p."""
    packed_q, packed_k = "packed" in variant.layout, variant.layout == "packed"
    q, k, row = ("3", "3" if packed_k else "4", "2") if packed_q else ("4", "4", "3")
    softcap = [("softcap", "f")] if variant.softcap else []
    window = [("window_left", "i"), ("window_right", "i")] if variant.mask == "local" else []
    cu = [("cu_seqlens_q", "1")] if packed_q else []
    stream = [("stream", "p")]
    if variant.kernel == "fwd":
        cu += [("cu_seqlens_k", "1")] if packed_k else []
        used = [("seqused_k", "1")] if variant.layout == "used" or "paged" in variant.layout else []
        pages = [("page_table", "2")] if "paged" in variant.layout else []
        tensors = [("q", q), ("k", k), ("v", k), ("o", q), ("lse", row)]
        pages += [("sink", "1")] if has_sink else []
        blocks = [("blocks", "i")] if walks else []
        return [*tensors, *cu, *used, *pages, ("scale", "f"), *softcap, *window, *blocks, *stream]
    if variant.kernel == "pre":
        tensors = [("o", q), ("d_o", q), ("softmax_d", row), ("lse", row), ("lse_log2", row), ("dq_sum", row)]
        return [*tensors, *cu, *stream]
    if variant.kernel in ("bwd", "whole"):
        is_whole, gradient = variant.kernel == "whole", row if variant.several_heads and not variant.grouped else q
        tensors = [("q", q), ("k", q), ("v", q), ("d_o", q), ("lse", row), *([("d_lse", row)] if is_whole else [])]
        tensors += [("softmax_d", row), ("dq", q if is_whole else row), ("dk", gradient), ("dv", gradient)]
        cu += [("cu_seqlens_k", "1")] if packed_q else []
        return [*tensors, *cu, ("scale", "f"), *softcap, *window, *stream]
    return [
        ("gradient_sum", row),
        ("gradient", q),
        *([("cu_seqlens", "1")] if packed_q else []),
        ("scale", "f"),
        *stream,
    ]


def stand_ins(variants: Sequence[Variant]) -> str:
    """C++ that defines the functions of each object, and of the kernels next to them."""
    return _HEAD + "\n".join(map(_stand_in, kernels_of((unit.name for unit in _units(variants)), SASS)))


def _stand_in(kernel: Kernel) -> str:
    """It is recorded by its variant's name, and one for another GPU than Hopper by its architecture's too."""
    prefix = f"_mlir_fa4_sm{kernel.arch}_{kernel.variant.name}"
    name = kernel.variant.name if kernel.arch == "90a" else f"sm{kernel.arch}_{kernel.variant.name}"
    taken = parameters(kernel.variant, walks=kernel.blocks > 0, has_sink=kernel.arch == HOPPER)
    listed = "".join(f"{{\"{name}\", '{kind}'}}, " for name, kind in taken)
    return f"""extern "C" void {prefix}_cuda_init(void **a) {{ *static_cast<int *>(a[1]) = stub_refuses("{name}"); }}
extern "C" void {prefix}_cuda_load_to_device(void **a) {{ *static_cast<int *>(a[2]) = 0; }}
extern "C" void {prefix}__mlir_ciface_run(void **a, int n) {{ run("{name}", {{{listed}}}, a, n); }}
"""


_HEAD = r"""
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>
#include "fa4/decode.h"
#include "fa4/shares.h"
#include "fa4/statistics.h"
#include "stub.h"
namespace {
struct Parameter { const char *name; char kind; };
std::string refused;
int stub_refuses(const char *name) { return refused == name ? 218 : 0; }
void run(const char *name, const std::vector<Parameter> &parameters, void **values, int count) {
  std::string text = std::string("\"kind\":\"") + name + "\",\"count\":" + std::to_string(count - 1);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const char kind = parameters[i].kind;
    text += std::string(",\"") + parameters[i].name + "\":";
    const char *at = static_cast<const char *>(values[i]);
    if (kind == 'f') { float f; std::memcpy(&f, at, 4); text += std::to_string(f); continue; }
    if (kind == 'i') { std::int32_t n; std::memcpy(&n, at, 4); text += std::to_string(n); continue; }
    std::int64_t pointer; std::memcpy(&pointer, at, 8);
    if (kind == 'p') { text += std::to_string(pointer); continue; }
    const int rank = kind - '0';
    text += "[" + std::to_string(pointer) + ",[";
    for (int d = 0; d < rank; ++d) { std::int32_t n; std::memcpy(&n, at + 8 + 4 * d, 4); text += (d ? "," : "") + std::to_string(n); }
    text += "],[";
    const int strides = (8 + 4 * rank + 7) / 8 * 8;
    for (int d = 0; d + 1 < rank; ++d) { std::int64_t n; std::memcpy(&n, at + strides + 8 * d, 8); text += (d ? "," : "") + std::to_string(n); }
    text += "]]";
  }
  stub_record_text(text.c_str());
  *static_cast<int *>(values[count - 1]) = 0;
}
}
extern "C" void stub_refuse_unit(const char *name) { refused = name; }
namespace flashdepot::fa4 {
fa_status launch_decoding(const Decoding &p, std::int32_t, cudaStream_t) {
  std::string text = "\"kind\":\"decode\"";
  const auto add = [&](const char *name, long long value) { text += ",\"" + std::string(name) + "\":" + std::to_string(value); };
  add("parts", p.parts), add("in_cluster", p.in_cluster), add("block", static_cast<int>(p.block)), add("group", p.group), add("heads_k", p.heads_k);
  add("used_k", reinterpret_cast<std::intptr_t>(p.used_k)), add("seqlen_new", p.seqlen_new), add("page_size", p.page_size);
  add("rotary_moves", p.rotary_moves), add("left", p.left), add("right", p.right), add("k_row", p.k.row);
  add("lse_parts", reinterpret_cast<std::intptr_t>(p.lse_parts) - reinterpret_cast<std::intptr_t>(p.o_parts));
  stub_record_text(text.c_str());
  return FA_STATUS_OK;
}
fa_status launch_zeros(const Sums &s, cudaStream_t) {
  stub_record_text(("\"kind\":\"zero_sums\",\"bytes\":" + std::to_string(s.bytes)).c_str());
  return FA_STATUS_OK;
}
bool map_keys(Shares &s, std::int32_t, std::int64_t) { return s.p.k.row > 0 && s.p.v.row > 0; }
fa_status launch_shares(const Shares &s, std::int32_t, cudaStream_t) {
  std::string text = "\"kind\":\"shares\"";
  const auto add = [&](const char *name, long long value) { text += ",\"" + std::string(name) + "\":" + std::to_string(value); };
  const auto at = [&](const void *pointer) { return reinterpret_cast<std::intptr_t>(pointer) - reinterpret_cast<std::intptr_t>(s.joints); };
  add("blocks", s.blocks), add("tiles", s.tiles), add("own", s.own), add("each", s.each), add("rest", s.rest), add("rows", s.rows);
  add("joins", s.tag == 0), add("flags", at(s.flags)), add("o_parts", at(s.p.o_parts)), add("lse_parts", at(s.p.lse_parts));
  stub_record_text(text.c_str());
  return FA_STATUS_OK;
}
fa_status launch_statistics(const Statistics &s, cudaStream_t) {
  stub_record_text(("\"kind\":\"statistics\",\"tile\":" + std::to_string(s.tile) + ",\"columns\":" + std::to_string(s.columns)).c_str());
  return FA_STATUS_OK;
}
}
"""


def write_config(folder: Path) -> None:
    """Write the header of a library that holds every unit of every family."""
    families = {name: family_of(name) for name in ("fa2", "fa3", "fa4")}
    known = {name: f.sources.identify(f.sources.default_version(), folder) for name, f in families.items()}
    recipe = make_recipe("80,90", upstreams={name: source.id for name, source in known.items()})
    lines = [
        line
        for name, family in families.items()
        for line in family.compiler.config_lines(
            wanted.Selection(frozenset(family.full()), ALL_FEATURES), recipe.target.sass, known[name]
        )
    ]
    (folder / CONFIG_HEADER).write_text(config_header(recipe, lines))


def family_words(source: Path, trees: Mapping[str, Path]) -> list[str]:
    """What a source in a family's folder of the C layer is also compiled with."""
    if source.parent.parent != NATIVE / "src":
        return []
    return [word.format(**trees, native=NATIVE) for word in family_of(source.parent.name).c_layer_words]


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
    run_program(["g++", "-shared", "-Wl,--no-undefined", *map(str, objects), "-o", str(library)])
    return Stub(library)


def build_program(source: str, folder: Path, upstream: Path, cuda_include: Path, *options: str) -> Path:
    """Compile every unit and feature into a program with a source of stub/, all with more compiler options."""
    objects = _objects(FULL, folder, upstream, cuda_include, [source], options)
    program = folder / Path(source).stem
    run_program(["g++", *options, *map(str, objects), "-o", str(program)])
    return program


def _objects(
    selection: Selection, folder: Path, upstream: Path, cuda_include: Path, more: list[str], options: tuple[str, ...]
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
    jobs = [job for job in jobs if job[0].name not in ("runtime.cpp", "tensor_map.cpp")]  # what stand-ins do not call
    if selection.fa4:
        (folder / "fa4_units.cpp").write_text(stand_ins(selection.fa4))
        jobs.append((folder / "fa4_units.cpp", theirs))
    jobs += [(STUB / name, theirs) for name in stubs]
    jobs += [(part, ours) for part in selection.parts if part.suffix == ".cpp"]

    def compile_one(job: tuple[Path, list[str]]) -> Path:
        source, flags = job
        output = folder / f"{source.parent.name}_{source.stem}.o"
        run_program(["g++", *common, *flags, *options, "-c", str(source), "-o", str(output)])
        return output

    with ThreadPoolExecutor(max_workers=2) as pool:
        return [*pool.map(compile_one, jobs), *(part for part in selection.parts if part.suffix == ".o")]
