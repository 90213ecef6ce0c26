// A forward pass in a CUDA graph: kernels are loaded ahead of time, the call is captured once and
// replayed, and the answers are the same bits.
//
//   cmake -S examples/cpp -B build -DCMAKE_PREFIX_PATH=$LIB && cmake --build build && build/graph
#include <cuda_runtime_api.h>
#include <flash_attention.hpp>

#include <cstdio>
#include <cstring>
#include <vector>

namespace fa = flashattention;

static void require(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

// Memory in the order of the stream, which graphs take too.
struct StreamAllocator {
  void *allocate(std::size_t bytes, void *stream) {
    void *data = nullptr;
    require(cudaMallocAsync(&data, bytes, static_cast<cudaStream_t>(stream)));
    return data;
  }
  void deallocate(void *data, std::size_t, void *stream) noexcept {
    cudaFreeAsync(data, static_cast<cudaStream_t>(stream));
  }
};

static int run() {
  const fa::Shape shape{2, 1024, 8, 64};
  const std::size_t count = 2 * 1024 * 8 * 64;
  std::vector<std::uint16_t> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<std::uint16_t>(0x3c00 + i * 7919 % 512);

  void *data[4];
  float *lse = nullptr;
  for (void *&each : data) {
    require(cudaMalloc(&each, count * 2));
    require(cudaMemcpy(each, numbers.data(), count * 2, cudaMemcpyHostToDevice));
  }
  require(cudaMalloc(reinterpret_cast<void **>(&lse), 2 * 8 * 1024 * sizeof(float)));
  const auto tensor = [&](void *at) { return fa::Tensor::contiguous(at, fa::Dtype::bf16, shape); };

  cudaStream_t stream;
  require(cudaStreamCreate(&stream));
  fa::Options options;
  options.causal = true;
  const fa_fwd_args args = fa::dense({0, stream}, tensor(data[0]), tensor(data[1]), tensor(data[2]),
                                     tensor(data[3]), lse, options);
  fa::check(fa::preload(args));

  StreamAllocator allocator;
  std::vector<std::uint16_t> first(count), replayed(count);
  fa::run(args, allocator);
  require(cudaStreamSynchronize(stream));
  require(cudaMemcpy(first.data(), data[3], count * 2, cudaMemcpyDeviceToHost));
  require(cudaMemset(data[3], 0, count * 2));

  cudaGraph_t graph;
  cudaGraphExec_t executable;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  fa::run(args, allocator);
  require(cudaStreamEndCapture(stream, &graph));
  require(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 10; ++i) require(cudaGraphLaunch(executable, stream));
  require(cudaStreamSynchronize(stream));
  require(cudaMemcpy(replayed.data(), data[3], count * 2, cudaMemcpyDeviceToHost));

  const bool same = std::memcmp(first.data(), replayed.data(), count * 2) == 0;
  std::printf("CUDA graph: 10 replays, %s bits as the call\n", same ? "the same" : "OTHER");
  return same ? 0 : 1;
}

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return 77;  // no GPU: left out
  try {
    return run();
  } catch (const std::exception &error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
