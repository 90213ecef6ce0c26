// Kernels that only write down what they were asked to do: one JSON object a launch.
#include <c10/cuda/CUDAException.h>
#include <flash.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "combine_parts.h"
#include "empty_keys.h"
#include "error.h"
#include "fa2/gathering.h"
#include "fa2/group_sum.h"
#include "fa2/packed_lse.h"
#include "fa_config.h"
#include "lengths.h"
#include "softmax_rows.h"
#include "stub.h"
#include "widths.h"
#include "zeros.h"

namespace cutlass {
struct half_t;
struct bfloat16_t;
}  // namespace cutlass

namespace {

using FLASH_NAMESPACE::Flash_bwd_params;
using FLASH_NAMESPACE::Flash_fwd_params;

std::string launches;
bool only_loads;

class Record {
 public:
  explicit Record(const char *kind) {
    text_ = launches.empty() ? "{" : ",{";
    text_ += "\"kind\":\"" + std::string(kind) + "\"";
    add("current_device", stub_current_device());
    if (only_loads) {
      add("only_loads", true);
    }
  }
  ~Record() { launches += text_ + "}"; }

  void add(const char *name, double value) {
    char digits[64];
    std::snprintf(digits, sizeof digits, "%.17g", value);
    text_ += ",\"" + std::string(name) + "\":" + digits;
  }
  void add(const char *name, std::int64_t value) {
    text_ += ",\"" + std::string(name) + "\":" + std::to_string(value);
  }
  void add(const char *name, int value) { add(name, std::int64_t{value}); }
  void add(const char *name, unsigned char value) { add(name, std::int64_t{value}); }
  void add(const char *name, bool value) { add(name, std::int64_t{value}); }
  void add(const char *name, float value) { add(name, static_cast<double>(value)); }
  void add(const char *name, std::uint64_t value) { add(name, static_cast<std::int64_t>(value)); }
  void add(const char *name, const void *value) {
    add(name, static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(value)));
  }

 private:
  std::string text_;
};

void add_forward(Record &launch, const Flash_fwd_params &params) {
#define FIELD(name) launch.add(#name, params.name)
  FIELD(q_ptr); FIELD(k_ptr); FIELD(v_ptr); FIELD(o_ptr); FIELD(oaccum_ptr); FIELD(p_ptr);
  FIELD(q_batch_stride); FIELD(k_batch_stride); FIELD(v_batch_stride); FIELD(o_batch_stride);
  FIELD(q_row_stride); FIELD(k_row_stride); FIELD(v_row_stride); FIELD(o_row_stride);
  FIELD(q_head_stride); FIELD(k_head_stride); FIELD(v_head_stride); FIELD(o_head_stride);
  FIELD(h); FIELD(h_k); FIELD(h_h_k_ratio);
  FIELD(softmax_lse_ptr); FIELD(softmax_lseaccum_ptr);
  FIELD(b); FIELD(seqlen_q); FIELD(seqlen_k); FIELD(seqlen_knew); FIELD(d);
  FIELD(seqlen_q_rounded); FIELD(seqlen_k_rounded); FIELD(d_rounded); FIELD(rotary_dim);
  FIELD(total_q); FIELD(scale_softmax); FIELD(scale_softmax_log2);
  FIELD(cu_seqlens_q); FIELD(cu_seqlens_k); FIELD(leftpad_k); FIELD(seqused_k); FIELD(blockmask);
  FIELD(knew_ptr); FIELD(vnew_ptr); FIELD(knew_batch_stride); FIELD(vnew_batch_stride);
  FIELD(knew_row_stride); FIELD(vnew_row_stride); FIELD(knew_head_stride);
  FIELD(vnew_head_stride); FIELD(rotary_cos_ptr); FIELD(rotary_sin_ptr);
  FIELD(cache_batch_idx); FIELD(block_table); FIELD(block_table_batch_stride);
  FIELD(page_block_size); FIELD(p_dropout); FIELD(p_dropout_in_uint8_t); FIELD(rp_dropout);
  FIELD(scale_softmax_rp_dropout); FIELD(window_size_left); FIELD(window_size_right);
  FIELD(softcap); FIELD(rng_state); FIELD(is_bf16); FIELD(is_causal);
  FIELD(is_seqlens_k_cumulative); FIELD(is_rotary_interleaved); FIELD(num_splits);
  FIELD(alibi_slopes_ptr); FIELD(alibi_slopes_batch_stride); FIELD(unpadded_lse);
  FIELD(seqlenq_ngroups_swapped);
#undef FIELD
  launch.add("philox_captured", params.philox_args.captured);
  launch.add("philox_seed", params.philox_args.seed.value);
  launch.add("philox_offset", params.philox_args.offset.value);
  launch.add("philox_offset_intragraph", params.philox_args.offset_intragraph);
}

void add_backward(Record &launch, const Flash_bwd_params &params) {
#define FIELD(name) launch.add(#name, params.name)
  FIELD(do_ptr); FIELD(dq_ptr); FIELD(dk_ptr); FIELD(dv_ptr);
  FIELD(dq_accum_ptr); FIELD(dk_accum_ptr); FIELD(dv_accum_ptr);
  FIELD(do_batch_stride); FIELD(do_row_stride); FIELD(do_head_stride);
  FIELD(dq_batch_stride); FIELD(dk_batch_stride); FIELD(dv_batch_stride);
  FIELD(dq_row_stride); FIELD(dk_row_stride); FIELD(dv_row_stride);
  FIELD(dq_head_stride); FIELD(dk_head_stride); FIELD(dv_head_stride);
  FIELD(dsoftmax_sum); FIELD(deterministic); FIELD(dq_accum_split_stride);
#undef FIELD
}

void add_unit(Record &launch, const char *dtype, int head_dim, bool causal, cudaStream_t stream) {
  launch.add("dtype_is_bf16", dtype[0] == 'b');
  launch.add("unit_head_dim", head_dim);
  launch.add("unit_is_causal", causal);
  launch.add("stream", stream);
}

void record(const char *kind, const char *dtype, int head_dim, bool causal,
            const Flash_fwd_params &params, cudaStream_t stream) {
  {
    Record launch(kind);
    add_unit(launch, dtype, head_dim, causal, stream);
    add_forward(launch, params);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void record_backward(const char *dtype, int head_dim, bool causal, const Flash_bwd_params &params,
                     cudaStream_t stream) {
  {
    Record launch("bwd");
    add_unit(launch, dtype, head_dim, causal, stream);
    add_forward(launch, params);
    add_backward(launch, params);
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

#define ELEMENT_fp16 cutlass::half_t
#define ELEMENT_bf16 cutlass::bfloat16_t

}  // namespace

namespace FLASH_NAMESPACE {

#define FWD(dtype, head_dim, causal)                                                        \
  template <>                                                                               \
  void run_mha_fwd_<ELEMENT_##dtype, head_dim, causal>(Flash_fwd_params & params,           \
                                                       cudaStream_t stream) {               \
    record("fwd", #dtype, head_dim, causal, params, stream);                                \
  }
#define SPLITKV(dtype, head_dim, causal)                                                    \
  template <>                                                                               \
  void run_mha_fwd_splitkv_dispatch<ELEMENT_##dtype, head_dim, causal>(                     \
      Flash_fwd_params & params, cudaStream_t stream) {                                     \
    record("splitkv", #dtype, head_dim, causal, params, stream);                            \
  }
#define BWD(dtype, head_dim, causal)                                                        \
  template <>                                                                               \
  void run_mha_bwd_<ELEMENT_##dtype, head_dim, causal>(Flash_bwd_params & params,           \
                                                       cudaStream_t stream) {               \
    record_backward(#dtype, head_dim, causal, params, stream);                              \
  }
FA2_CONFIG_FWD_UNITS(FWD)
FA2_CONFIG_SPLITKV_UNITS(SPLITKV)
FA2_CONFIG_BWD_UNITS(BWD)

}  // namespace FLASH_NAMESPACE

fa_status flashdepot::launch_empty_keys(const EmptyKeys &output, cudaStream_t stream) {
  {
    Record launch("empty_keys");
    launch.add("stream", stream);
    launch.add("o", output.o.data);
    launch.add("batch_stride", output.o.batch_stride);
    launch.add("row_stride", output.o.row_stride);
    launch.add("head_stride", output.o.head_stride);
    launch.add("lse", output.lse);
    launch.add("batch", output.batch);
    launch.add("rows", output.rows);
    launch.add("heads", output.heads);
    launch.add("head_dim", output.head_dim);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

namespace {

void add_gradient(Record &launch, const flashdepot::Gradient &gradient) {
  launch.add("data", gradient.tensor.data);
  launch.add("batch_stride", gradient.tensor.batch_stride);
  launch.add("row_stride", gradient.tensor.row_stride);
  launch.add("head_stride", gradient.tensor.head_stride);
  launch.add("batch", gradient.batch);
  launch.add("rows", gradient.rows);
  launch.add("heads", gradient.heads);
  launch.add("head_dim", gradient.head_dim);
}

}  // namespace

fa_status flashdepot::launch_zeros(const Gradient &gradient, cudaStream_t stream) {
  {
    Record launch("zeros");
    launch.add("stream", stream);
    add_gradient(launch, gradient);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::fa2::launch_group_sum(const Gradient &sum, const void *expanded, std::int32_t group,
                                  std::int32_t dtype, cudaStream_t stream) {
  {
    Record launch("group_sum");
    launch.add("stream", stream);
    launch.add("expanded", expanded);
    launch.add("group", group);
    launch.add("dtype", dtype);
    add_gradient(launch, sum);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::fa2::launch_packed_lse(const PackedLse &copy, cudaStream_t stream) {
  {
    Record launch("packed_lse");
    launch.add("stream", stream);
    launch.add("padded", copy.padded);
    launch.add("packed", copy.packed);
    launch.add("cu_seqlens_q", copy.cu_seqlens_q);
    launch.add("batch", copy.batch);
    launch.add("heads", copy.heads);
    launch.add("rows", copy.rows);
    launch.add("total_q", copy.total_q);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::launch_combine(const Combination &c, cudaStream_t stream) {
  {
    Record launch("combine");
    launch.add("stream", stream);
    launch.add("parts", c.parts);
    launch.add("parts_dtype", c.parts_dtype);
    launch.add("dtype", c.dtype);
    launch.add("batch", c.batch);
    launch.add("rows", c.rows);
    launch.add("heads", c.heads);
    launch.add("head_dim", c.head_dim);
    launch.add("empty_is_negative", c.empty < 0);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::launch_finish_rows(const SoftmaxRows &rows, cudaStream_t stream) {
  {
    Record launch("finish_rows");
    launch.add("stream", stream);
    launch.add("o", rows.o.data);
    launch.add("lse", rows.lse);
    launch.add("sink", rows.sink);
    launch.add("cu_seqlens", rows.cu_seqlens);
    launch.add("batch", rows.batch);
    launch.add("rows", rows.rows);
    launch.add("heads", rows.heads);
    launch.add("head_dim", rows.head_dim);
    launch.add("sequences", rows.sequences);
    launch.add("empty_is_negative", rows.empty < 0);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

namespace {

void add_sums(Record &launch, const flashdepot::SoftmaxSums &sums) {
  launch.add("softmax_d", sums.softmax_d);
  launch.add("columns", sums.columns);
  launch.add("lse", sums.lse);
  launch.add("d_lse", sums.d_lse);
  launch.add("tile", sums.tile);
  launch.add("step", sums.step);
  launch.add("keep", sums.keep);
}

}  // namespace

fa_status flashdepot::launch_subtract_d_lse(const SoftmaxSums &sums, cudaStream_t stream) {
  {
    Record launch("subtract_d_lse");
    launch.add("stream", stream);
    add_sums(launch, sums);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::launch_d_sink(const SoftmaxSums &sums, const float *sink, float *d_sink,
                                    cudaStream_t stream) {
  {
    Record launch("d_sink");
    launch.add("stream", stream);
    launch.add("sink", sink);
    launch.add("d_sink", d_sink);
    add_sums(launch, sums);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::launch_positive_infinity(float *to, const float *from, std::int64_t count,
                                               cudaStream_t stream) {
  {
    Record launch("positive_infinity");
    launch.add("stream", stream);
    launch.add("to", to);
    launch.add("from", from);
    launch.add("count", count);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::launch_widths(const Widths &copy, cudaStream_t stream) {
  {
    Record launch("widths");
    launch.add("stream", stream);
    launch.add("from", copy.from.data);
    launch.add("to", copy.to.data);
    launch.add("cu_seqlens", copy.cu_seqlens);
    launch.add("rows", copy.batch * copy.rows);
    launch.add("heads", copy.heads);
    launch.add("from_dim", copy.from_dim);
    launch.add("to_dim", copy.to_dim);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::launch_lengths(const Lengths &l, cudaStream_t stream) {
  {
    Record launch("lengths");
    launch.add("stream", stream);
    launch.add("lengths", l.lengths);
    launch.add("cu_seqlens", l.cu_seqlens);
    launch.add("all", l.all);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::fa2::launch_gathering(const Gathering &g, cudaStream_t stream) {
  {
    Record launch("gathering");
    launch.add("stream", stream);
    launch.add("from", g.from.data);
    launch.add("to", g.to.data);
    launch.add("block_table", g.block_table);
    launch.add("batch_idx", g.batch_idx);
    launch.add("lengths", g.lengths);
    launch.add("page_size", g.page_size);
    launch.add("rows", std::int64_t{g.batch} * g.rows);
    launch.add("from_dim", g.from_dim);
    launch.add("to_dim", g.to_dim);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

fa_status flashdepot::fa2::launch_starts(std::int32_t *starts, std::int32_t batch,
                                         std::int32_t rows, cudaStream_t stream) {
  {
    Record launch("starts");
    launch.add("stream", stream);
    launch.add("starts", starts);
    launch.add("batch", batch);
    launch.add("rows", rows);
  }
  return flashdepot::check_cuda(cudaGetLastError(), "kernel launch");
}

extern "C" {

void stub_load_only(int on) { only_loads = on != 0; }

void stub_record_fill(void *to, int value, std::size_t bytes, void *stream) {
  Record fill("fill");
  fill.add("stream", stream);
  fill.add("to", to);
  fill.add("value", value);
  fill.add("bytes", static_cast<std::int64_t>(bytes));
}

void stub_record_copy(void *to, const void *from, std::size_t bytes, int kind, void *stream) {
  Record copy("copy");
  copy.add("stream", stream);
  copy.add("to", to);
  copy.add("from", from);
  copy.add("bytes", static_cast<std::int64_t>(bytes));
  copy.add("direction", kind);
}

// Upstream's own count of the current device's SMs, and the code of the error that it met, as a
// launcher would come by them.
int stub_upstream_multiprocessors(int *failure) {
  const int count = get_num_sm(get_current_device());
  *failure = flashdepot::fa2::take_failure().code;
  return count;
}

void stub_record_text(const char *fields) {
  launches += (launches.empty() ? "{" : ",{") + std::string(fields) + "}";
}

// What was launched since stub_clear, the objects of a JSON list.
const char *stub_launches() { return launches.c_str(); }

void stub_clear() { launches.clear(); }

}  // extern "C"
