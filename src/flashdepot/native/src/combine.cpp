// fa_combine.
#include "combine_parts.h"

#include <cuda_runtime_api.h>

#include <limits>

#include "arguments.h"
#include "checks.h"
#include "device.h"
#include "error.h"

namespace flashdepot {
namespace {

constexpr std::int32_t kLongest = 1 << 29;
constexpr std::int32_t kGridLimit = 65535;

fa_status check_dtype(const char *name, std::int32_t dtype) {
  if (dtype != FA_DTYPE_FP16 && dtype != FA_DTYPE_BF16 && dtype != FA_DTYPE_FP32) {
    return refuse(FA_STATUS_INVALID,
                  "%s is %d; allowed: FA_DTYPE_FP16 (%d), FA_DTYPE_BF16 (%d), FA_DTYPE_FP32 (%d)",
                  name, dtype, FA_DTYPE_FP16, FA_DTYPE_BF16, FA_DTYPE_FP32);
  }
  return FA_STATUS_OK;
}

fa_status check_sizes(const fa_combine_args &args) {
  FLASHDEPOT_TRY(check_dtype("dtype", args.dtype));
  FLASHDEPOT_TRY(check_dtype("parts_dtype", args.parts_dtype));
  FLASHDEPOT_TRY(check_range("parts", args.parts, 1, 256));
  FLASHDEPOT_TRY(check_range("batch", args.batch, 0, kGridLimit));
  FLASHDEPOT_TRY(check_range("seqlen_q", args.seqlen_q, 0, kLongest));
  FLASHDEPOT_TRY(check_range("heads_q", args.heads_q, 1, kGridLimit));
  if (args.head_dim_v < 8 || args.head_dim_v > 512 || args.head_dim_v % 8 != 0) {
    return refuse(FA_STATUS_INVALID, "head_dim_v is %d; allowed: multiples of 8 from 8 to 512",
                  args.head_dim_v);
  }
  return FA_STATUS_OK;
}

fa_status check_lse_parts(const fa_combine_args &args) {
  const fa_const_tensor &lse = args.lse_parts;
  FLASHDEPOT_TRY(check_set("lse_parts.data", lse.data, "the lse of each part"));
  FLASHDEPOT_TRY(check_alignment("lse_parts", ".data", lse.data, alignof(float)));
  FLASHDEPOT_TRY(check_range("lse_parts.batch_stride", lse.batch_stride, 0, kLargestStride));
  FLASHDEPOT_TRY(check_range("lse_parts.row_stride", lse.row_stride, 0, kLargestStride));
  FLASHDEPOT_TRY(check_range("lse_parts.head_stride", lse.head_stride, 0, kLargestStride));
  FLASHDEPOT_TRY(check_range("lse_parts_stride", args.lse_parts_stride, 0, kLargestStride));
  return check_alignment("lse", "", args.lse, alignof(float));
}

fa_status combine(const fa_combine_args *given) {
  fa_combine_args args;
  FLASHDEPOT_TRY(read_args(given, "fa_combine_args", FA_FLAG_EMPTY_LSE_NEG_INF, args));
  args.parts_dtype = args.parts_dtype != 0 ? args.parts_dtype : args.dtype;
  FLASHDEPOT_TRY(check_sizes(args));
  FLASHDEPOT_TRY(check_device(args.device));
  if (args.batch == 0 || args.seqlen_q == 0) {
    return FA_STATUS_OK;
  }
  const Extents extents{args.batch, args.seqlen_q, args.heads_q};
  FLASHDEPOT_TRY(check_tensor("o_parts", args.o_parts, extents));
  FLASHDEPOT_TRY(check_tensor("o", args.o, extents, true));
  if (args.o_parts_stride % 8 != 0) {
    return refuse(FA_STATUS_INVALID, "o_parts_stride is %lld; allowed: multiples of 8",
                  static_cast<long long>(args.o_parts_stride));
  }
  FLASHDEPOT_TRY(check_range("o_parts_stride", args.o_parts_stride, 0, kLargestStride));
  FLASHDEPOT_TRY(check_lse_parts(args));

  cudaGetLastError();  // what is left over from others is theirs
  DeviceFacts gpu;
  FLASHDEPOT_TRY(read_device(args.device, gpu));
  CurrentDevice current;
  FLASHDEPOT_TRY(current.set(args.device));
  const float infinity = std::numeric_limits<float>::infinity();
  return launch_combine({args.o_parts, args.lse_parts, args.o, args.lse, args.o_parts_stride,
                         args.lse_parts_stride, args.batch, args.seqlen_q, args.heads_q,
                         args.head_dim_v, args.parts, args.parts_dtype, args.dtype,
                         (args.flags & FA_FLAG_EMPTY_LSE_NEG_INF) != 0 ? -infinity : infinity},
                        static_cast<cudaStream_t>(args.stream));
}

}  // namespace
}  // namespace flashdepot

fa_status fa_combine(const fa_combine_args *args) noexcept { return flashdepot::combine(args); }
