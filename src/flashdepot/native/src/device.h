// The GPU that a call runs on.
#pragma once

#include <flash_attention.h>

#include <cstdint>

namespace flashdepot {

struct DeviceFacts {
  std::int32_t major;             // compute capability
  std::int32_t minor;             //
  std::int32_t multiprocessors;   // SMs
  std::int32_t shared_kilobytes;  // of shared memory that a block may ask for
  std::int32_t ordinal;
};

// Reads facts of the device with this ordinal, from a cache after the first call. Refuses an
// ordinal that is not there.
[[nodiscard]] fa_status read_device(std::int32_t ordinal, DeviceFacts &facts);

// Makes a device the calling thread's current one, and gives the thread its own back at the end.
class CurrentDevice {
 public:
  CurrentDevice() = default;
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice &) = delete;
  CurrentDevice &operator=(const CurrentDevice &) = delete;

  [[nodiscard]] fa_status set(std::int32_t ordinal);

 private:
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace flashdepot
