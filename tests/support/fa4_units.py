"""Stand-ins for the objects of FlashAttention-4: each writes down what it was launched with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flashdepot.kernels.fa4.actions import config_lines
from flashdepot.kernels.fa4.units import HOPPER, Kernel, code_for, is_made, kernels_of, unit_of
from flashdepot.kernels.fa4.variants import Variant
from flashdepot.model.selection import ALL_FEATURES, Selection, Unit
from flashdepot.model.target import parse_list

SASS = parse_list("90,100,120")


def _units(variants: Sequence[Variant]) -> frozenset[Unit]:
    arches = map(code_for, SASS)
    return frozenset(unit_of(v, arch) for arch in arches for v in variants if arch == HOPPER or is_made(arch, v))


def fa4_lines(variants: Sequence[Variant]) -> Iterable[str]:
    """What fa_config.h says of a library with these kernels, and their helpers; a measurement is made up."""
    yield from config_lines(Selection(_units(variants), ALL_FEATURES), SASS, "4.0.0b36")
    yield "#undef FA4_CONFIG_SLOWER"
    slower = ("90, fwd, 128, causal, dense, 0, 3, 3000, 6000", "90, fwd, 128, full, cache, 0, 9, 0, 200")
    yield f"#define FA4_CONFIG_SLOWER(X) {' '.join(f'X({row})' for row in slower)}"


def parameters(variant: Variant, *, walks: bool) -> list[tuple[str, str]]:
    """Name and kind of each parameter that the kernel's function in the worker has: a tensor's rank, or f, i, p."""
    packed_q, packed_k = "packed" in variant.layout, variant.layout == "packed"
    q, k, row = ("3", "3" if packed_k else "4", "2") if packed_q else ("4", "4", "3")
    softcap = [("softcap", "f")] if variant.softcap else []
    window = [("window_left", "i"), ("window_right", "i")] if variant.mask == "local" else []
    cu = [("cu_seqlens_q", "1")] if packed_q else []
    stream = [("stream", "p")]
    if variant.kernel == "fwd":
        cu += [("cu_seqlens_k", "1")] if packed_k else []
        used = [("seqused_k", "1")] if variant.layout in ("used", "paged") else []
        pages = [("page_table", "2")] if "paged" in variant.layout else []
        tensors = [("q", q), ("k", k), ("v", k), ("o", q), ("lse", row)]
        blocks = [("blocks", "i")] if walks else []
        return [*tensors, *cu, *used, *pages, ("scale", "f"), *softcap, *window, *blocks, *stream]
    if variant.kernel == "pre":
        tensors = [("o", q), ("d_o", q), ("softmax_d", row), ("lse", row), ("lse_log2", row), ("dq_sum", row)]
        return [*tensors, *cu, *stream]
    if variant.kernel == "bwd":
        gradient = row if variant.several_heads else q
        tensors = [("q", q), ("k", q), ("v", q), ("d_o", q), ("lse_log2", row), ("softmax_d", row), ("dq_sum", row)]
        cu += [("cu_seqlens_k", "1")] if packed_q else []
        return [*tensors, ("dk", gradient), ("dv", gradient), *cu, ("scale", "f"), *softcap, *window, *stream]
    return [
        ("gradient_sum", row),
        ("gradient", q),
        *([("cu_seqlens", "1")] if packed_q else []),
        ("scale", "f"),
        *stream,
    ]


def stand_ins(variants: Sequence[Variant]) -> str:
    """C++ that defines the functions of each object, and of the kernels beside them."""
    return _HEAD + "\n".join(map(_stand_in, kernels_of((unit.name for unit in _units(variants)), SASS)))


def _stand_in(kernel: Kernel) -> str:
    """It is recorded by its variant's name, and one for another GPU than Hopper by its architecture's too."""
    prefix = f"_mlir_fa4_sm{kernel.arch}_{kernel.variant.name}"
    name = kernel.variant.name if kernel.arch == "90a" else f"sm{kernel.arch}_{kernel.variant.name}"
    taken = parameters(kernel.variant, walks=kernel.walks)
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
fa_status launch_statistics(const Statistics &s, cudaStream_t) {
  stub_record_text(("\"kind\":\"statistics\",\"tile\":" + std::to_string(s.tile) + ",\"columns\":" + std::to_string(s.columns)).c_str());
  return FA_STATUS_OK;
}
}
"""
