// The backward pass by FlashAttention-4's kernels: one before the main one, two or three after it; one alone
// where a tile of it has all keys.
#include <algorithm>

#include "buffers.h"
#include "divide.h"
#include "error.h"
#include "fa4/statistics.h"
#include "fa4/passes.h"
#include "fa4/problem.h"
#include "fa4/speed.h"
#include "fa4/sums.h"
#include "fa4/tensors.h"

namespace flashdepot::fa4 {
namespace {

struct Units {
  const Unit *pre;
  const Unit *bwd;
  const Unit *dq;
  const Unit *dkv;    // nullptr where bwd does not sum dk and dv of several query heads in memory
  const Unit *whole;  // nullptr where the call is left to the others
  bool sums_heads;

  bool complete() const {
    return pre != nullptr && bwd != nullptr && dq != nullptr && (dkv != nullptr || !sums_heads);
  }
};

// Of a sequence, whichever are more, by which full or half tiles are chosen.
std::int64_t rows_of(const Problem &problem) {
  const std::int64_t sequences = std::max(problem.batch, 1);
  return problem.packed() ? std::max(problem.total_q, problem.total_k) / sequences
                          : std::max(problem.seqlen_q, problem.seqlen_k);
}

Units units_for(const Problem &problem, const DeviceFacts *gpu) {
  Key key{Kernel::bwd,
          problem.dtype,
          unit_head_dim(problem.head_dim),
          problem.head_dim_v,
          problem.packed() ? Layout::packed : Layout::dense,
          mask_of(problem),
          problem.softcap > 0.0f,
          false,
          0,
          0,
          rows_of(problem),
          problem.heads_q / std::max(problem.heads_k, 1)};
  Units units{};
  const auto takes_all_heads = [&](const Unit *unit) {
    return unit != nullptr && takes_groups(*unit) && ends_sooner(problem, gpu, tiles_of(*unit));
  };
  units.bwd = find_unit(gpu, key);
  if (several_heads(problem) && !takes_all_heads(units.bwd)) {
    key.several_heads = true;
    units.bwd = find_unit(gpu, key);
    if (units.bwd != nullptr && takes_groups(*units.bwd) && !takes_all_heads(units.bwd)) {
      key.rows = 0;  // full tiles, which do not
      units.bwd = find_unit(gpu, key);
    }
    units.sums_heads = units.bwd != nullptr && !takes_groups(*units.bwd);
  }
  if (units.bwd == nullptr) {
    return units;
  }
  const Tiles tiles = tiles_of(*units.bwd);
  const auto find = [&](Kernel kernel, std::int32_t tile) {
    key.kernel = kernel;
    key.tile = tile;
    return find_unit(gpu, key);
  };
  units.pre = find(Kernel::pre, tiles.m);
  units.dq = find(Kernel::dq, tiles.m);
  units.dkv = units.sums_heads ? find(Kernel::dkv, tiles.n) : nullptr;
  key.several_heads = false;
  constexpr std::int32_t kRows = 64;
  units.whole = ends_sooner(problem, gpu, {kRows, problem.seqlen_k}) ? find(Kernel::whole, problem.seqlen_k) : nullptr;
  return units;
}

// Rows of a head of all sequences, each with room up to the next multiple of a tile
// (interface.py 2670 of flash-attn-4 4.0.0b36), or of a head of one sequence.
std::int64_t padded(bool packed, std::int64_t rows, std::int32_t batch, std::int32_t tile) {
  return packed ? round_up(rows + std::int64_t{batch} * tile, tile) : round_up(rows, tile);
}

// The workspace, all of it floats: where each part starts, in bytes. Sums of dk and dv are there
// while several query heads add to them.
struct Buffers {
  std::int64_t rows_q, rows_k;  // of a head
  std::int64_t columns_q, columns_k;  // of a head, in the sums
  std::uint64_t lse, softmax_d, dq, dk, dv, bytes;
};

Buffers buffers_of(const Problem &problem, const Units &units) {
  constexpr std::int64_t kFloats = 64;  // that each part starts at a multiple of
  const Tiles tiles = tiles_of(*units.bwd);
  const std::int32_t dim = unit_head_dim(problem.head_dim);
  const bool packed = problem.packed();
  const std::int64_t batch = packed ? 1 : problem.batch;
  Buffers buffers{};
  if (units.whole != nullptr) {
    return buffers;
  }
  buffers.rows_q =
      padded(packed, packed ? problem.total_q : problem.seqlen_q, problem.batch, tiles.m);
  buffers.rows_k =
      padded(packed, packed ? problem.total_k : problem.seqlen_k, problem.batch, tiles.n);
  buffers.columns_q = buffers.rows_q * dim;
  buffers.columns_k = buffers.rows_k * dim;
  const auto place = [&](std::int64_t floats) {
    const std::uint64_t start = buffers.bytes;
    buffers.bytes += static_cast<std::uint64_t>(round_up(floats, kFloats)) * sizeof(float);
    return start;
  };
  const std::int64_t heads_k = units.sums_heads ? problem.heads_k : 0;
  buffers.lse = place(batch * problem.heads_q * buffers.rows_q);
  buffers.softmax_d = place(batch * problem.heads_q * buffers.rows_q);
  buffers.dq = place(batch * problem.heads_q * buffers.columns_q);
  buffers.dk = place(batch * heads_k * buffers.columns_k);
  buffers.dv = place(batch * heads_k * buffers.columns_k);
  return buffers;
}

// One call: the launches differ in what they are given of this.
class Call {
 public:
  Call(const BackwardCall &call, const Units &units, const Buffers &buffers)
      : args_(call.args),
        problem_(call.problem),
        units_(units),
        buffers_(buffers),
        packed_(call.problem.packed()),
        stream_(call.args.stream),
        cu_seqlens_q_(list(call.args.cu_seqlens_q, call.problem.batch + 1)),
        cu_seqlens_k_(list(call.args.cu_seqlens_k, call.problem.batch + 1)) {}

  fa_status run() {
    if (units_.whole != nullptr) {
      return differentiate();
    }
    const auto stream = static_cast<cudaStream_t>(stream_);
    if (units_.dkv != nullptr) {
      FLASHDEPOT_TRY(launch_zeros({at(buffers_.dk), buffers_.bytes - buffers_.dk}, stream));
    }
    FLASHDEPOT_TRY(prepare());
    if (args_.d_lse != nullptr) {
      FLASHDEPOT_TRY(subtract_d_lse(stream));
    }
    FLASHDEPOT_TRY(differentiate());
    FLASHDEPOT_TRY(finish(*units_.dq, sum_of_queries(buffers_.dq), queries(args_.dq, problem_.head_dim_q),
                          cu_seqlens_q_, problem_.scale));
    if (units_.dkv != nullptr) {
      FLASHDEPOT_TRY(finish(*units_.dkv, sum_of_keys(buffers_.dk), keys(args_.dk, problem_.head_dim_q), cu_seqlens_k_,
                            problem_.scale));
      FLASHDEPOT_TRY(
          finish(*units_.dkv, sum_of_keys(buffers_.dv), keys(args_.dv, problem_.head_dim_v), cu_seqlens_k_, 1.0f));
    }
    if (args_.softmax_d == nullptr) {
      return FA_STATUS_OK;
    }
    return launch_statistics(
        {static_cast<const float *>(at(buffers_.softmax_d)), buffers_.rows_q, args_.softmax_d,
         args_.cu_seqlens_q, problem_.batch, problem_.heads_q, problem_.seqlen_q,
         tiles_of(*units_.bwd).m, problem_.total_q},
        stream);
  }

 private:
  void *at(std::uint64_t offset) const { return static_cast<char *>(args_.workspace) + offset; }

  template <typename Tensor>
  Rows queries(const Tensor &tensor, std::int32_t head_dim) const {
    return {packed_, tensor, problem_.batch, packed_ ? problem_.total_q : problem_.seqlen_q,
            problem_.heads_q, head_dim};
  }
  template <typename Tensor>
  Rows keys(const Tensor &tensor, std::int32_t head_dim) const {
    return {packed_, tensor, problem_.batch, packed_ ? problem_.total_k : problem_.seqlen_k,
            problem_.heads_k, head_dim};
  }
  Floats statistics(std::uint64_t offset) const {
    return {packed_, at(offset), problem_.batch, problem_.heads_q, buffers_.rows_q};
  }
  Floats sum_of_queries(std::uint64_t offset) const {
    return {packed_, at(offset), problem_.batch, problem_.heads_q, buffers_.columns_q};
  }
  Floats sum_of_keys(std::uint64_t offset) const {
    return {packed_, at(offset), problem_.batch, problem_.heads_k, buffers_.columns_k};
  }

  // As the caller has them; a tensor without heads where there is none.
  Floats of_rows(const float *data, std::int64_t columns) const {
    return {packed_, data, problem_.batch, data == nullptr ? 0 : problem_.heads_q, columns};
  }

  fa_status prepare() {
    Rows o = queries(args_.o, problem_.head_dim_v);
    Rows d_o = queries(args_.d_o, problem_.head_dim_v);
    Floats softmax_d = statistics(buffers_.softmax_d);
    Floats lse(packed_, args_.lse, problem_.batch, problem_.heads_q,
               packed_ ? problem_.total_q : problem_.seqlen_q);
    Floats lse_log2 = statistics(buffers_.lse);
    Floats dq = sum_of_queries(buffers_.dq);
    Arguments arguments;
    o.add_to(arguments);
    d_o.add_to(arguments);
    softmax_d.add_to(arguments);
    lse.add_to(arguments);
    lse_log2.add_to(arguments);
    dq.add_to(arguments);
    arguments.add_if(packed_, cu_seqlens_q_);
    arguments.add(stream_);
    return launch(*units_.pre, arguments);
  }

  // Of softmax_d where the kernels have it, padded to their tiles.
  fa_status subtract_d_lse(cudaStream_t stream) {
    const std::int32_t tile = tiles_of(*units_.bwd).m;
    return launch_subtract_d_lse(
        {static_cast<float *>(at(buffers_.softmax_d)), buffers_.rows_q, args_.lse, args_.d_lse,
         args_.cu_seqlens_q, problem_.total_q, problem_.batch, problem_.heads_q, problem_.seqlen_q,
         tile, tile, 1.0f},
        stream);
  }

  fa_status differentiate() {
    const bool whole = units_.whole != nullptr;
    const std::int64_t rows = packed_ ? problem_.total_q : problem_.seqlen_q;
    const std::int64_t rounded = packed_ ? softmax_d_rows(problem_) : padded_rows(problem_.seqlen_q);
    Rows q = queries(args_.q, problem_.head_dim_q);
    Rows k = keys(args_.k, problem_.head_dim_q);
    Rows v = keys(args_.v, problem_.head_dim_v);
    Rows d_o = queries(args_.d_o, problem_.head_dim_v);
    Floats lse = whole ? of_rows(args_.lse, rows) : statistics(buffers_.lse);
    Floats d_lse = of_rows(args_.d_lse, rows);
    Floats softmax_d = whole ? of_rows(args_.softmax_d, rounded) : statistics(buffers_.softmax_d);
    Rows dq = queries(args_.dq, problem_.head_dim_q);
    Floats dq_sum = sum_of_queries(buffers_.dq);
    Rows dk = keys(args_.dk, problem_.head_dim_q);
    Rows dv = keys(args_.dv, problem_.head_dim_v);
    Floats dk_sum = sum_of_keys(buffers_.dk);
    Floats dv_sum = sum_of_keys(buffers_.dv);
    float scale = problem_.scale;
    float softcap = problem_.softcap;
    const bool local = mask_of(problem_) == Mask::local;
    Windows windows = local_ends(problem_);
    Arguments arguments;
    q.add_to(arguments);
    k.add_to(arguments);
    v.add_to(arguments);
    d_o.add_to(arguments);
    lse.add_to(arguments);
    if (whole) {
      d_lse.add_to(arguments);
    }
    softmax_d.add_to(arguments);
    if (whole) {
      dq.add_to(arguments);
    } else {
      dq_sum.add_to(arguments);
    }
    if (units_.dkv != nullptr && !whole) {
      dk_sum.add_to(arguments);
      dv_sum.add_to(arguments);
    } else {
      dk.add_to(arguments);
      dv.add_to(arguments);
    }
    arguments.add_if(packed_, cu_seqlens_q_).add_if(packed_, cu_seqlens_k_);
    arguments.add(scale);
    arguments.add_if(softcap > 0.0f, softcap);
    arguments.add_if(local, windows.left).add_if(local, windows.right);
    arguments.add(stream_);
    return launch(whole ? *units_.whole : *units_.bwd, arguments);
  }

  fa_status finish(const Unit &unit, Floats sum, Rows gradient, Tensor<1> &cu_seqlens,
                   float scale) {
    Arguments arguments;
    sum.add_to(arguments);
    gradient.add_to(arguments);
    arguments.add_if(packed_, cu_seqlens);
    arguments.add(scale);
    arguments.add(stream_);
    return launch(unit, arguments);
  }

  const fa_bwd_args &args_;
  const Problem &problem_;
  const Units &units_;
  const Buffers &buffers_;
  bool packed_;
  void *stream_;
  Tensor<1> cu_seqlens_q_, cu_seqlens_k_;
};

}  // namespace

Fit fits(const BackwardCall &call, const DeviceFacts *gpu, Text *why) {
  const Problem &problem = call.problem;
  const char *obstacle = common_obstacle(problem);
  if (obstacle == nullptr && problem.deterministic) {
    obstacle = "FA_FLAG_DETERMINISTIC";
  }
  if (obstacle != nullptr) {
    return decline(why, Fit::unsupported, "it has no %s", obstacle);
  }
  const Units units = units_for(problem, gpu);
  if (!units.complete()) {
    return decline_unit(why, gpu, problem, "backward");
  }
  if (zeros_whole_rows(*units.bwd) && unit_head_dim(problem.head_dim) != problem.head_dim) {
    return decline(why, Fit::unsupported,
                   "for this GPU it has no windows and no packed sequences at head dims between those "
                   "of its kernels where each query head has its own key head");
  }
  const Buffers buffers = buffers_of(problem, units);
  if (buffers.columns_q > INT32_MAX || buffers.columns_k > INT32_MAX) {
    return decline(why, Fit::unsupported,
                   "rows of a head (%lld, padded) x %d is 2^31 or more, which its kernels do not count",
                   static_cast<long long>(buffers.rows_q > buffers.rows_k ? buffers.rows_q
                                                                          : buffers.rows_k),
                   unit_head_dim(problem.head_dim));
  }
  for (const Unit *unit : {units.pre, units.bwd, units.dq, units.dkv, units.whole}) {
    if (gpu != nullptr && unit != nullptr && !load(*unit, *gpu)) {
      return decline_load(why, *unit);
    }
  }
  const char *reason = gpu == nullptr ? nullptr : drawback(call, *gpu);
  return reason == nullptr ? Fit::serves : decline(why, Fit::slower, "%s", reason);
}

Inside inside(const BackwardCall &call, const DeviceFacts &gpu) {
  return {false, has_todays_words(*units_for(call.problem, &gpu).bwd), true};
}

fa_status workspace(const BackwardCall &call, Workspace &needs) {
  DeviceFacts gpu;  // tiles differ from one architecture to the next
  FLASHDEPOT_TRY(read_device(call.args.device, gpu));
  needs = {buffers_of(call.problem, units_for(call.problem, &gpu)).bytes, 1};
  return FA_STATUS_OK;
}

fa_status launch(const BackwardCall &call, const DeviceFacts &gpu) {
  const Units units = units_for(call.problem, &gpu);
  const Buffers buffers = buffers_of(call.problem, units);
  FLASHDEPOT_TRY(
      check_workspace(call.args.workspace_bytes, buffers.bytes, "fa_bwd_workspace"));
  return Call(call, units, buffers).run();
}

}  // namespace flashdepot::fa4
