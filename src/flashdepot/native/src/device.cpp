#include "device.h"

#include <cuda_runtime_api.h>

#include <atomic>

#include "error.h"

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

DeviceFacts unpack(std::uint64_t word, std::int32_t ordinal) {
  return {static_cast<std::int32_t>(word >> 40 & 0xff),
          static_cast<std::int32_t>(word >> 32 & 0xff), static_cast<std::int32_t>(word & 0xffff),
          static_cast<std::int32_t>(word >> 16 & 0xffff), ordinal};
}

fa_status read_attribute(cudaDeviceAttr name, std::int32_t ordinal, std::int32_t &value) {
  int answer = 0;
  const cudaError_t code = cudaDeviceGetAttribute(&answer, name, ordinal);
  value = answer;
  if (code == cudaErrorInvalidDevice) {
    int devices = 0;
    FLASHDEPOT_TRY_CUDA(cudaGetDeviceCount(&devices));
    return refuse(FA_STATUS_INVALID,
                  "device is %d; this process sees %d, numbered from 0 (CUDA_VISIBLE_DEVICES "
                  "decides which)",
                  ordinal, devices);
  }
  return check_cuda(code, "cudaDeviceGetAttribute");
}

}  // namespace

fa_status read_device(std::int32_t ordinal, DeviceFacts &facts) {
  const bool cached = ordinal < kCachedDevices;
  if (cached) {
    if (const std::uint64_t word = cache[ordinal].load(std::memory_order_relaxed)) {
      facts = unpack(word, ordinal);
      return FA_STATUS_OK;
    }
  }
  facts.ordinal = ordinal;
  FLASHDEPOT_TRY(read_attribute(cudaDevAttrComputeCapabilityMajor, ordinal, facts.major));
  FLASHDEPOT_TRY(read_attribute(cudaDevAttrComputeCapabilityMinor, ordinal, facts.minor));
  FLASHDEPOT_TRY(read_attribute(cudaDevAttrMultiProcessorCount, ordinal, facts.multiprocessors));
  FLASHDEPOT_TRY(
      read_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal, facts.shared_kilobytes));
  facts.shared_kilobytes /= 1024;
  if (cached) {
    cache[ordinal].store(pack(facts), std::memory_order_relaxed);
  }
  return FA_STATUS_OK;
}

fa_status CurrentDevice::set(std::int32_t ordinal) {
  FLASHDEPOT_TRY_CUDA(cudaGetDevice(&previous_));
  if (previous_ != ordinal) {
    FLASHDEPOT_TRY_CUDA(cudaSetDevice(ordinal));
    changed_ = true;
  }
  return FA_STATUS_OK;
}

CurrentDevice::~CurrentDevice() {
  if (changed_) {
    cudaSetDevice(previous_);
  }
}

}  // namespace flashdepot
