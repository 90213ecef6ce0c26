#include "device.h"

#include <atomic>

#include "units.h"

namespace flashdepot {
namespace {

// Facts never change while a process lives. One word a device, so that a reader sees all or none:
// bit 63 set, then major, minor, shared memory and the number of SMs.
constexpr std::int32_t kCachedDevices = 64;
std::atomic<std::uint64_t> cache[kCachedDevices];

std::uint64_t pack(const DeviceFacts &facts) {
  return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(facts.major) << 40 |
         static_cast<std::uint64_t>(facts.minor) << 32 |
         static_cast<std::uint64_t>(facts.shared_kilobytes) << 16 |
         static_cast<std::uint64_t>(facts.multiprocessors);
}

DeviceFacts unpack(std::uint64_t word) {
  return {static_cast<std::int32_t>(word >> 40 & 0xff),
          static_cast<std::int32_t>(word >> 32 & 0xff),
          static_cast<std::int32_t>(word & 0xffff),
          static_cast<std::int32_t>(word >> 16 & 0xffff)};
}

std::int32_t attribute(cudaDeviceAttr name, std::int32_t ordinal) {
  int value = 0;
  const cudaError_t code = cudaDeviceGetAttribute(&value, name, ordinal);
  if (code == cudaErrorInvalidDevice) {
    int devices = 0;
    C10_CUDA_CHECK(cudaGetDeviceCount(&devices));
    refuse(FA_INVALID,
           "device is %d; this process sees %d, numbered from 0 (CUDA_VISIBLE_DEVICES "
           "decides which)",
           ordinal, devices);
  }
  throw_unless_success(code, "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

DeviceFacts device_facts(std::int32_t ordinal) {
  const bool cached = ordinal < kCachedDevices;
  if (cached) {
    if (const std::uint64_t word = cache[ordinal].load(std::memory_order_relaxed)) {
      return unpack(word);
    }
  }
  const DeviceFacts facts = {attribute(cudaDevAttrComputeCapabilityMajor, ordinal),
                             attribute(cudaDevAttrComputeCapabilityMinor, ordinal),
                             attribute(cudaDevAttrMultiProcessorCount, ordinal),
                             attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal) / 1024};
  if (cached) {
    cache[ordinal].store(pack(facts), std::memory_order_relaxed);
  }
  return facts;
}

void require_kernels_for(std::int32_t ordinal) {
  const DeviceFacts facts = device_facts(ordinal);
  if (!runs_on(facts.major, facts.minor)) {
    refuse(
        FA_NO_KERNEL_FOR_ARCH,
        "device %d has compute capability %d.%d and this library has kernels for %s; get one for "
        "it with: flashdepot get --arch %d%d",
        ordinal, facts.major, facts.minor, sass_list().c_str(), facts.major, facts.minor);
  }
}

CurrentDevice::CurrentDevice(std::int32_t ordinal) {
  C10_CUDA_CHECK(cudaGetDevice(&previous_));
  changed_ = previous_ != ordinal;
  if (changed_) {
    C10_CUDA_CHECK(cudaSetDevice(ordinal));
  }
}

CurrentDevice::~CurrentDevice() {
  if (changed_) {
    cudaSetDevice(previous_);
  }
}

}  // namespace flashdepot
