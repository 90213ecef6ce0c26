#include "checks.h"

#include "error.h"

namespace flashdepot {
namespace {

fa_status check_stride(const char *tensor, const char *dimension, std::int64_t stride,
                       std::int64_t extent, bool written, std::int64_t unit) {
  if (extent <= 1) {
    return FA_STATUS_OK;
  }
  if (stride < 0 || stride > kLargestStride || stride % unit != 0) {
    return refuse(FA_STATUS_INVALID,
                  "%s.%s_stride is %lld; allowed: multiples of %lld (in elements) from 0 to 2^46",
                  tensor, dimension, static_cast<long long>(stride), static_cast<long long>(unit));
  }
  if (written && stride == 0) {
    return refuse(FA_STATUS_INVALID,
                  "%s.%s_stride is 0 over %lld elements; an output cannot overlap itself", tensor,
                  dimension, static_cast<long long>(extent));
  }
  return FA_STATUS_OK;
}

}  // namespace

fa_status check_range(const char *name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    return refuse(FA_STATUS_INVALID, "%s is %lld; allowed: %lld to %lld", name,
                  static_cast<long long>(value), static_cast<long long>(low),
                  static_cast<long long>(high));
  }
  return FA_STATUS_OK;
}

fa_status check_device(std::int32_t ordinal) {
  return check_range("device", ordinal, 0, INT32_MAX);
}

fa_status check_alignment(const char *name, const char *member, const void *data,
                          std::uintptr_t alignment) {
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    return refuse(FA_STATUS_INVALID, "%s%s is %p; allowed: addresses aligned to %d bytes", name, member,
                  data, static_cast<int>(alignment));
  }
  return FA_STATUS_OK;
}

fa_status check_set(const char *name, const void *data, const char *holds) {
  if (data == nullptr) {
    return refuse(FA_STATUS_INVALID, "%s is NULL; it holds %s", name, holds);
  }
  return FA_STATUS_OK;
}

fa_status check_tensor(const char *name, const fa_tensor &tensor, const Extents &extents,
                       bool written, std::int64_t unit) {
  if (tensor.data == nullptr) {
    return refuse(FA_STATUS_INVALID, "%s.data is NULL; it holds batch %lld x %lld rows x %lld heads", name,
                  static_cast<long long>(extents.batch), static_cast<long long>(extents.rows),
                  static_cast<long long>(extents.heads));
  }
  if (tensor.reserved0 != 0 || tensor.reserved1 != 0) {
    return refuse(FA_STATUS_INVALID, "%s.reserved0 is %lld and %s.reserved1 is %lld; allowed: 0",
                  name, static_cast<long long>(tensor.reserved0), name,
                  static_cast<long long>(tensor.reserved1));
  }
  FLASHDEPOT_TRY(check_alignment(name, ".data", tensor.data, kVectorAlignment));
  FLASHDEPOT_TRY(check_stride(name, "batch", tensor.batch_stride, extents.batch, written, unit));
  FLASHDEPOT_TRY(check_stride(name, "row", tensor.row_stride, extents.rows, written, unit));
  FLASHDEPOT_TRY(check_stride(name, "head", tensor.head_stride, extents.heads, written, unit));
  return FA_STATUS_OK;
}

fa_status check_tensor(const char *name, const fa_const_tensor &tensor, const Extents &extents,
                       std::int64_t unit) {
  fa_tensor same = plain(tensor);
  same.reserved0 = tensor.reserved0;
  same.reserved1 = tensor.reserved1;
  return check_tensor(name, same, extents, false, unit);
}

}  // namespace flashdepot
