// The arguments of a launch as CuTe's exported functions take them: pointers, in the order of the
// function's parameters (families/fa4/worker), with the address of the result last.
#pragma once

#include <array>
#include <cstdint>

namespace flashdepot::fa4 {

// A tensor whose last dimension is contiguous, with the other strides in elements.
template <std::size_t Rank>
struct Tensor {
  void *data;
  std::int32_t shape[Rank];
  std::int64_t stride[Rank - 1];
};

template <>
struct Tensor<1> {
  void *data;
  std::int32_t shape[1];
};

class Arguments {
 public:
  template <typename T>
  Arguments &add(T &value) {
    slots_[count_++] = const_cast<void *>(static_cast<const void *>(&value));
    return *this;
  }
  template <typename T>
  Arguments &add_if(bool present, T &value) {
    return present ? add(value) : *this;
  }
  void **data() { return slots_.data(); }
  std::int32_t count() const { return count_; }

 private:
  static constexpr std::size_t kMost = 24;
  std::array<void *, kMost> slots_{};
  std::int32_t count_ = 0;
};

}  // namespace flashdepot::fa4
