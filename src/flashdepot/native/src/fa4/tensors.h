// The caller's tensors, and those of the workspace, as the kernels' arguments.
#pragma once

#include <flash_attention.h>

#include "checks.h"
#include "fa4/arguments.h"

namespace flashdepot::fa4 {

// The stride of a dimension of extent 1 may hold anything, and a TMA descriptor wants multiples of
// 16 bytes of each.
constexpr std::int64_t stride_of(std::int64_t stride, std::int64_t extent) {
  constexpr std::int64_t kUnused = 8;
  return extent > 1 ? stride : kUnused;
}

// q, k or their like: (batch, rows, heads, head_dim), or (rows, heads, head_dim) when packed.
class Rows {
 public:
  Rows(bool packed, const fa_const_tensor &tensor, std::int64_t batch, std::int64_t rows,
       std::int32_t heads, std::int32_t head_dim)
      : Rows(packed, plain(tensor), batch, rows, heads, head_dim) {}
  Rows(bool packed, const fa_tensor &tensor, std::int64_t batch, std::int64_t rows,
       std::int32_t heads, std::int32_t head_dim)
      : is_packed_(packed),
        batched_{tensor.data,
                 {static_cast<std::int32_t>(batch), static_cast<std::int32_t>(rows), heads,
                  head_dim},
                 {stride_of(tensor.batch_stride, batch), stride_of(tensor.row_stride, rows),
                  stride_of(tensor.head_stride, heads)}},
        packed_{tensor.data,
                {static_cast<std::int32_t>(rows), heads, head_dim},
                {stride_of(tensor.row_stride, rows), stride_of(tensor.head_stride, heads)}} {}

  void add_to(Arguments &arguments) {
    arguments.add_if(is_packed_, packed_).add_if(!is_packed_, batched_);
  }

 private:
  bool is_packed_;
  Tensor<4> batched_;
  Tensor<3> packed_;
};

// Contiguous floats: (batch, heads, columns), or (heads, columns) when packed.
class Floats {
 public:
  Floats(bool packed, const void *data, std::int64_t batch, std::int32_t heads,
         std::int64_t columns)
      : is_packed_(packed),
        batched_{const_cast<void *>(data),
                 {static_cast<std::int32_t>(batch), heads, static_cast<std::int32_t>(columns)},
                 {heads * columns, columns}},
        packed_{const_cast<void *>(data), {heads, static_cast<std::int32_t>(columns)}, {columns}} {}

  void add_to(Arguments &arguments) {
    arguments.add_if(is_packed_, packed_).add_if(!is_packed_, batched_);
  }

 private:
  bool is_packed_;
  Tensor<3> batched_;
  Tensor<2> packed_;
};

inline Tensor<1> list(const std::int32_t *data, std::int32_t count) {
  return {const_cast<std::int32_t *>(data), {count}};
}

}  // namespace flashdepot::fa4
