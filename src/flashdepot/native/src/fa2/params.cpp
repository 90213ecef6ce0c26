#include "fa2/params.h"

namespace flashdepot::fa2 {

constexpr double kLog2E = 1.4426950408889634074;

ForwardParams shape_params(const UnitProblem &problem, std::int32_t unit_dim) {
  ForwardParams params{};
  params.is_bf16 = problem.dtype == FA_DTYPE_BF16;
  params.b = problem.batch;
  params.h = problem.heads_q;
  params.h_k = problem.heads_k;
  params.h_h_k_ratio = problem.heads_q / problem.heads_k;
  params.seqlen_q = problem.seqlen_q;
  params.seqlen_k = problem.seqlen_k;
  params.seqlen_q_rounded = static_cast<int>(padded_rows(problem.seqlen_q));
  params.seqlen_k_rounded = static_cast<int>(padded_rows(problem.seqlen_k));
  params.d = problem.head_dim;
  params.d_rounded = unit_dim;

  // With softcap the kernels compute scale_softmax * tanh(softcap * score), so the two change
  // places.
  const bool capped = problem.softcap > 0.0f;
  params.softcap = capped ? problem.scale / problem.softcap : 0.0f;
  params.scale_softmax = capped ? problem.softcap : problem.scale;
  params.scale_softmax_log2 = static_cast<float>(params.scale_softmax * kLog2E);

  // Here p_dropout is the probability of keeping. Random bytes up to its 255ths are kept.
  params.p_dropout = problem.keep;
  params.p_dropout_in_uint8_t =
      static_cast<std::uint8_t>(static_cast<double>(problem.keep) * 255.0);
  params.rp_dropout = 1.0f / problem.keep;
  params.scale_softmax_rp_dropout = params.rp_dropout * params.scale_softmax;

  params.is_causal = problem.causal;
  params.window_size_left = problem.window_left;
  params.window_size_right = problem.window_right;
  params.is_seqlens_k_cumulative = true;

  if (problem.packed()) {
    params.unpadded_lse = true;
    params.total_q = static_cast<int>(problem.total_q);
  }
  return params;
}

}  // namespace flashdepot::fa2
