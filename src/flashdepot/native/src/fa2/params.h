// The part of the kernels' parameter block that both passes have.
#pragma once

#include "fa2/unit_problem.h"
#include "fa2/units.h"

namespace flashdepot::fa2 {

// What upstream's set_params_fprop puts there (flash_api.cpp 26-159 of 2.8.3.post2): everything but
// the tensors and lists that only some kinds of call have.
ForwardParams shape_params(const UnitProblem &problem, std::int32_t unit_dim);

// q, k, v, o, lse, alibi_slopes and cu_seqlens, as both structs of arguments have them. A packed
// batch has no batch strides, but pages have.
template <typename Args>
void set_tensors(ForwardParams &params, const UnitProblem &problem, const Args &args) {
  params.q_ptr = const_cast<void *>(static_cast<const void *>(args.q.data));
  params.k_ptr = const_cast<void *>(static_cast<const void *>(args.k.data));
  params.v_ptr = const_cast<void *>(static_cast<const void *>(args.v.data));
  params.o_ptr = const_cast<void *>(static_cast<const void *>(args.o.data));
  params.q_row_stride = args.q.row_stride;
  params.k_row_stride = args.k.row_stride;
  params.v_row_stride = args.v.row_stride;
  params.o_row_stride = args.o.row_stride;
  params.q_head_stride = args.q.head_stride;
  params.k_head_stride = args.k.head_stride;
  params.v_head_stride = args.v.head_stride;
  params.o_head_stride = args.o.head_stride;
  if (!problem.packed()) {
    params.q_batch_stride = args.q.batch_stride;
    params.o_batch_stride = args.o.batch_stride;
  }
  if (!problem.packed() || problem.paged()) {
    params.k_batch_stride = args.k.batch_stride;
    params.v_batch_stride = args.v.batch_stride;
  }
  params.softmax_lse_ptr = const_cast<float *>(args.lse);
  params.alibi_slopes_ptr = const_cast<float *>(args.alibi_slopes);
  params.alibi_slopes_batch_stride = args.alibi_batch_stride;
  params.cu_seqlens_q = const_cast<std::int32_t *>(args.cu_seqlens_q);
  params.cu_seqlens_k = const_cast<std::int32_t *>(args.cu_seqlens_k);
}

}  // namespace flashdepot::fa2
