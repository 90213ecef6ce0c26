// Checks of single arguments. Each refuses with FA_STATUS_INVALID and names the argument, its value and
// what is allowed.
#pragma once

#include <flash_attention.h>

#include <cstdint>

namespace flashdepot {

// A tensor as the kernels' parameters have it, which do not tell inputs from outputs.
inline fa_tensor plain(const fa_tensor &tensor) { return tensor; }
inline fa_tensor plain(const fa_const_tensor &tensor) {
  return fa_make_tensor(const_cast<void *>(tensor.data), tensor.batch_stride, tensor.row_stride,
                        tensor.head_stride);
}

// Kernels load and store 128 bits at a time.
constexpr std::uintptr_t kVectorAlignment = 16;
// Beyond any address space in elements, and small enough for 64-bit products.
constexpr std::int64_t kLargestStride = std::int64_t{1} << 46;

[[nodiscard]] fa_status check_range(const char *name, std::int64_t value, std::int64_t low,
                                    std::int64_t high);

// What cannot be a device's ordinal.
[[nodiscard]] fa_status check_device(std::int32_t ordinal);

// `member` is ".data" for tensors, "" for plain pointers. NULL is aligned.
[[nodiscard]] fa_status check_alignment(const char *name, const char *member, const void *data,
                                        std::uintptr_t alignment);

// A pointer that must be set; `holds` says what it holds.
[[nodiscard]] fa_status check_set(const char *name, const void *data, const char *holds);

// The extents of a tensor's dimensions before the last. `batch` is 1 when the rows are packed.
struct Extents {
  std::int64_t batch, rows, heads;
};

// `unit` divides its strides: the elements in 128 bits.
constexpr std::int64_t kStrideUnit = 8;
[[nodiscard]] fa_status check_tensor(const char *name, const fa_tensor &tensor,
                                     const Extents &extents, bool written,
                                     std::int64_t unit = kStrideUnit);
[[nodiscard]] fa_status check_tensor(const char *name, const fa_const_tensor &tensor,
                                     const Extents &extents, std::int64_t unit = kStrideUnit);

}  // namespace flashdepot
