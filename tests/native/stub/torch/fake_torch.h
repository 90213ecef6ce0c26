// Just enough of torch for upstream's flash_api.cpp to compile unmodified and to fill its
// parameter blocks: tensors are shapes over addresses that nobody follows.
#pragma once

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#define TORCH_CHECK(condition, ...)                \
  do {                                             \
    if (!(condition)) {                            \
      throw std::runtime_error(#condition);        \
    }                                              \
  } while (0)
#define TORCH_EXTENSION_NAME flash_attn_2_cuda
#define PYBIND11_MODULE(name, m) [[maybe_unused]] static void bind_##name(FakeModule &m)

struct FakeModule {
  std::string &doc() { return doc_; }
  template <typename Function>
  void def(const char *, Function, const char *) {}
  std::string doc_;
};

namespace c10 {

enum class ScalarType { Half, BFloat16, Float, Int, Long };
enum class DeviceType { CUDA };

struct Device {};

struct TensorOptions {
  TensorOptions dtype(ScalarType type) const { return {type}; }
  TensorOptions device(DeviceType) const { return *this; }
  ScalarType type = ScalarType::Float;
};

struct IntArrayRef {
  IntArrayRef(std::initializer_list<std::int64_t> list) : values(list) {}
  IntArrayRef(std::vector<std::int64_t> list) : values(std::move(list)) {}
  template <std::size_t N>
  IntArrayRef(const std::int64_t (&list)[N]) : values(list, list + N) {}
  std::int64_t operator[](std::size_t i) const { return values[i]; }
  bool operator==(const IntArrayRef &other) const { return values == other.values; }
  std::vector<std::int64_t> values;
};

}  // namespace c10

namespace torch {
using c10::IntArrayRef;
using c10::TensorOptions;
constexpr auto kFloat16 = c10::ScalarType::Half;
constexpr auto kBFloat16 = c10::ScalarType::BFloat16;
constexpr auto kFloat32 = c10::ScalarType::Float;
constexpr auto kInt32 = c10::ScalarType::Int;
constexpr auto kInt64 = c10::ScalarType::Long;
constexpr auto kCUDA = c10::DeviceType::CUDA;
namespace indexing {
struct NoneType {};
constexpr NoneType None;
struct Slice {
  Slice(NoneType, std::int64_t) {}
};
struct Index {
  Index(const char *) {}
  Index(Slice) {}
};
}  // namespace indexing
}  // namespace torch

namespace at {
constexpr auto kFloat = c10::ScalarType::Float;

class Tensor {
 public:
  Tensor() = default;
  Tensor(void *data, c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType type)
      : data_(data), sizes_(sizes.values), strides_(strides.values), type_(type) {}

  // The bytes at each address that fresh() gave out.
  static inline std::map<std::intptr_t, std::int64_t> allocations;

  // Contiguous, at an address of its own.
  static Tensor fresh(const std::vector<std::int64_t> &sizes, c10::ScalarType type) {
    static std::intptr_t next = std::intptr_t{1} << 52;
    std::vector<std::int64_t> strides(sizes.size());
    std::int64_t count = 1;
    for (std::size_t i = sizes.size(); i-- > 0;) {
      strides[i] = count;
      count *= sizes[i];
    }
    next += (count * 8 + 4096) / 4096 * 4096;
    const bool half = type == c10::ScalarType::Half || type == c10::ScalarType::BFloat16;
    allocations[next] = count * (half ? 2 : type == c10::ScalarType::Long ? 8 : 4);
    return {reinterpret_cast<void *>(next), sizes, strides, type};
  }

  bool is_cuda() const { return true; }
  bool is_contiguous() const {
    std::int64_t count = 1;
    for (std::size_t i = sizes_.size(); i-- > 0;) {
      if (sizes_[i] != 1 && strides_[i] != count) return false;
      count *= sizes_[i];
    }
    return true;
  }
  c10::Device device() const { return {}; }
  c10::ScalarType dtype() const { return type_; }
  c10::ScalarType scalar_type() const { return type_; }
  c10::TensorOptions options() const { return {type_}; }
  c10::IntArrayRef sizes() const { return sizes_; }
  std::int64_t dim() const { return static_cast<std::int64_t>(sizes_.size()); }
  std::int64_t size(std::int64_t i) const { return sizes_[index_of(i)]; }
  std::int64_t stride(std::int64_t i) const { return strides_[index_of(i)]; }
  std::int64_t numel() const {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes_) count *= size;
    return count;
  }
  void *data_ptr() const { return data_; }
  template <typename T>
  T *data_ptr() const {
    return static_cast<T *>(data_);
  }

  Tensor transpose(std::int64_t i, std::int64_t j) const {
    Tensor result = *this;
    std::swap(result.sizes_[index_of(i)], result.sizes_[index_of(j)]);
    std::swap(result.strides_[index_of(i)], result.strides_[index_of(j)]);
    return result;
  }

  // A view where torch makes one, else a copy. Walks both shapes from the end, filling every run
  // of dimensions that lie evenly in memory.
  Tensor reshape(const c10::IntArrayRef &shape) const {
    const std::vector<std::int64_t> &wanted = shape.values;
    if (numel() == 0) {
      return fresh(wanted, type_);
    }
    std::vector<std::int64_t> strides(wanted.size(), 1);
    std::int64_t view = static_cast<std::int64_t>(wanted.size()) - 1;
    std::int64_t base = 1, have = 1, placed = 1;
    bool started = false;
    for (std::int64_t i = dim() - 1; i >= 0; --i) {
      if (!started) {
        base = strides_[index_of(i)];
        started = true;
      }
      have *= sizes_[index_of(i)];
      const bool run_ends = i == 0 || (sizes_[index_of(i - 1)] != 1 &&
                                       strides_[index_of(i - 1)] != have * base);
      if (!run_ends) continue;
      while (view >= 0 && (placed < have || wanted[view] == 1)) {
        strides[view] = placed * base;
        placed *= wanted[view];
        --view;
      }
      if (placed != have) {
        return fresh(wanted, type_);
      }
      if (i > 0) {
        started = false;
        have = placed = 1;
      }
    }
    return view < 0 ? Tensor(data_, wanted, strides, type_) : fresh(wanted, type_);
  }

  Tensor index(std::initializer_list<torch::indexing::Index>) const { return *this; }
  const Tensor &zero_() const { return *this; }
  const Tensor &fill_(float) const { return *this; }
  const Tensor &copy_(const Tensor &) const { return *this; }

 private:
  std::size_t index_of(std::int64_t i) const { return static_cast<std::size_t>(i < 0 ? i + dim() : i); }

  void *data_ = nullptr;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;
  c10::ScalarType type_ = c10::ScalarType::Float;
};

inline Tensor reshape(const Tensor &tensor, const c10::IntArrayRef &shape) { return tensor.reshape(shape); }
inline void sum_out(Tensor &, const Tensor &, std::initializer_list<std::int64_t>) {}

struct CUDAGeneratorImpl {
  std::mutex mutex_;
  PhiloxCudaState philox_cuda_state(std::uint64_t) { return state; }
  static inline PhiloxCudaState state;
};
struct Generator {};
template <typename Impl>
Impl *get_generator_or_default(const std::optional<Generator> &, Impl &fallback) {
  return &fallback;
}

namespace cuda {
struct CUDAGuard {
  explicit CUDAGuard(c10::Device) {}
};
struct CUDAStream {
  cudaStream_t stream() const { return fake; }
  static inline cudaStream_t fake = nullptr;
};
inline CUDAStream getCurrentCUDAStream() { return {}; }
namespace detail {
inline CUDAGeneratorImpl &getDefaultCUDAGenerator() {
  static CUDAGeneratorImpl generator;
  return generator;
}
}  // namespace detail
}  // namespace cuda
}  // namespace at

namespace torch {
inline at::Tensor empty(const IntArrayRef &sizes, TensorOptions options) {
  return at::Tensor::fresh(sizes.values, options.type);
}
inline at::Tensor zeros(const IntArrayRef &sizes, TensorOptions options) { return empty(sizes, options); }
inline at::Tensor empty_like(const at::Tensor &tensor) {
  return at::Tensor::fresh(tensor.sizes().values, tensor.dtype());
}
namespace nn::functional {
struct PadFuncOptions {
  PadFuncOptions(std::initializer_list<std::int64_t>) {}
};
inline at::Tensor pad(const at::Tensor &tensor, PadFuncOptions) { return tensor; }
}  // namespace nn::functional
}  // namespace torch
