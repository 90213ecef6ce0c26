// What FlashAttention-3's tile schedulers do, alone: a warp writes a word of shared memory and other warps read it, each
// behind named barriers, as the producer and consumer example of PTX's barrier does. See benchmarks/fa3.md.
//
//     nvcc -arch=sm_90a -O3 benchmarks/hand_over.cu -o hand_over && ./hand_over && compute-sanitizer --tool racecheck ./hand_over
//
// -DPLACES=2: half of the readers wait from another place in the code. 3: all wait from another place the first time.
#include <cstdio>

#ifndef PLACES
#define PLACES 1
#endif

constexpr int kWriters = 32, kReaders = 256, kRounds = 100;

template <int id>
__device__ void sync_on() {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(kWriters + kReaders) : "memory");
}
template <int id>
__device__ void arrive_on() {
  asm volatile("bar.arrive %0, %1;" ::"n"(id), "n"(kWriters + kReaders) : "memory");
}

// Barrier 4: the word was read. Barrier 5: it was written.
__global__ void hand_over(int *wrong) {
  __shared__ int4 word;
  if (threadIdx.x < kWriters) {
    for (int i = 0; i < kRounds; ++i) {
      sync_on<4>();
      if (threadIdx.x == 0) word = make_int4(i, i + 1, i + 2, i + 3);
      arrive_on<5>();
    }
    return;
  }
  arrive_on<4>();
  if (PLACES == 2 && threadIdx.x >= kWriters + kReaders / 2) {
    for (int i = 0; i < kRounds; ++i) {
      sync_on<5>();
      const int4 seen = word;
      if (i + 1 < kRounds) arrive_on<4>();
      if (seen.x != i || seen.w != i + 3) atomicAdd(wrong, 1);
    }
    return;
  }
  if (PLACES == 3) {
    sync_on<5>();
    const int4 seen = word;
    arrive_on<4>();
    if (seen.x != 0 || seen.w != 3) atomicAdd(wrong, 1);
  }
#pragma unroll 1
  for (int i = PLACES == 3; i < kRounds; ++i) {
    sync_on<5>();
    const int4 seen = word;
    if (i + 1 < kRounds) arrive_on<4>();
    if (seen.x != i || seen.y != i + 1 || seen.z != i + 2 || seen.w != i + 3) atomicAdd(wrong, 1);
  }
}

int main() {
  int *wrong, count = -1;
  cudaMalloc(&wrong, sizeof *wrong);
  cudaMemset(wrong, 0, sizeof *wrong);
  hand_over<<<8, kWriters + kReaders>>>(wrong);
  cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost);
  std::printf("%s: %d reads were wrong\n", cudaGetErrorString(cudaDeviceSynchronize()), count);
}
