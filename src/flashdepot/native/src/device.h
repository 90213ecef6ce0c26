// The GPU that a call runs on.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace flashdepot {

struct DeviceFacts {
  std::int32_t major;             // compute capability
  std::int32_t minor;             //
  std::int32_t multiprocessors;   // SMs
  std::int32_t shared_kilobytes;  // of shared memory that a block may ask for
};

// Facts of the device with this ordinal, from a cache after the first call. Refuses an ordinal
// that is not there.
DeviceFacts device_facts(std::int32_t ordinal);

// Refuses with FA_NO_KERNEL_FOR_ARCH a device that runs no SASS of this library.
void require_kernels_for(std::int32_t ordinal);

// Makes a device the calling thread's current one, and gives the thread its own back.
class CurrentDevice {
 public:
  explicit CurrentDevice(std::int32_t ordinal);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice &) = delete;
  CurrentDevice &operator=(const CurrentDevice &) = delete;

 private:
  int previous_;
  bool changed_;
};

}  // namespace flashdepot
