// libflashattention for at::Tensor: the stream and the memory are torch's.
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <flash_attention.hpp>
#include <torch/types.h>

namespace attention {

struct TorchAllocator {
  void *allocate(std::size_t bytes, void *stream) {
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes,
                                                                  static_cast<cudaStream_t>(stream));
  }
  void deallocate(void *data, std::size_t, void *) noexcept {
    c10::cuda::CUDACachingAllocator::raw_delete(data);
  }
};

// (batch, rows, heads, dim), of any strides whose last is 1.
inline flashattention::Tensor view(const at::Tensor &t) {
  TORCH_CHECK(t.dim() == 4 && t.stride(3) == 1 && t.is_cuda(), "a CUDA tensor of 4 dimensions is needed");
  TORCH_CHECK(t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kHalf, "bf16 or fp16 is needed");
  const auto dtype = t.scalar_type() == at::kBFloat16 ? flashattention::Dtype::bf16
                                                      : flashattention::Dtype::fp16;
  return {t.data_ptr(), dtype, {t.size(0), t.size(1), t.size(2), t.size(3)},
          {t.stride(0), t.stride(1), t.stride(2)}};
}

// o and lse of softmax(q k^T) v.
inline std::pair<at::Tensor, at::Tensor> forward(const at::Tensor &q, const at::Tensor &k,
                                                 const at::Tensor &v,
                                                 const flashattention::Options &options = {}) {
  at::Tensor o = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  at::Tensor lse = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
  const flashattention::Place place{q.get_device(), at::cuda::getCurrentCUDAStream(q.get_device())};
  flashattention::run(
      flashattention::dense(place, view(q), view(k), view(v), view(o), lse.data_ptr<float>(), options),
      TorchAllocator{});
  return {o, lse};
}

}  // namespace attention
