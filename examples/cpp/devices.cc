// The same batch on every GPU that is there: a thread and a stream for each, no device made current by
// hand. Compiled as graph.cc is, with -pthread.
#include <cuda_runtime_api.h>
#include <flash_attention.hpp>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace fa = flashattention;

static void require(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

struct NoWorkspace {
  void *allocate(std::size_t, void *) { throw std::runtime_error("num_splits 1 needs no workspace"); }
  void deallocate(void *, std::size_t, void *) noexcept {}
};

static constexpr std::size_t kCount = 512 * 8 * 64;

static std::vector<std::uint16_t> attend(int device, const std::vector<std::uint16_t> &numbers) {
  require(cudaSetDevice(device));
  void *data[4];
  float *lse = nullptr;
  for (void *&each : data) {
    require(cudaMalloc(&each, kCount * 2));
    require(cudaMemcpy(each, numbers.data(), kCount * 2, cudaMemcpyHostToDevice));
  }
  require(cudaMalloc(reinterpret_cast<void **>(&lse), 8 * 512 * sizeof(float)));
  cudaStream_t stream;
  require(cudaStreamCreate(&stream));
  const auto tensor = [&](void *at) {
    return fa::Tensor::contiguous(at, fa::Dtype::bf16, {1, 512, 8, 64});
  };
  fa::Options options;
  options.num_splits = 1;
  fa::run(fa::dense({device, stream}, tensor(data[0]), tensor(data[1]), tensor(data[2]),
                    tensor(data[3]), lse, options),
          NoWorkspace{});
  require(cudaStreamSynchronize(stream));
  std::vector<std::uint16_t> o(kCount);
  require(cudaMemcpy(o.data(), data[3], kCount * 2, cudaMemcpyDeviceToHost));
  return o;
}

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 77;  // no GPU: left out
  std::vector<std::uint16_t> numbers(kCount);
  for (std::size_t i = 0; i < kCount; ++i) numbers[i] = static_cast<std::uint16_t>(0x3c00 + i * 7919 % 512);

  std::vector<std::vector<std::uint16_t>> answers(static_cast<std::size_t>(devices));
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int device = 0; device < devices; ++device) {
    threads.emplace_back([&, device] {
      try {
        answers[static_cast<std::size_t>(device)] = attend(device, numbers);
      } catch (const std::exception &error) {
        std::printf("GPU %d: %s\n", device, error.what());
        ++failures;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  for (const auto &answer : answers) failures += answer != answers[0];
  std::printf("%d GPUs, %s\n", devices, failures == 0 ? "the same bits on each" : "WRONG");
  return failures == 0 ? 0 : 1;
}
