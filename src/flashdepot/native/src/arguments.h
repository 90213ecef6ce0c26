// The struct rules of the ABI: size, unknown tail, flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "error.h"

namespace flashdepot {

// Far beyond any struct to come: a larger size is garbage, and must not be read up to.
constexpr std::uint32_t kLargestStruct = 4096;

inline bool all_zero(const unsigned char *bytes, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (bytes[i] != 0) {
      return false;
    }
  }
  return true;
}

// Refuses a size that no struct of this library can have.
inline fa_status check_size(std::uint32_t size, const char *type, std::size_t known) {
  if (size < 2 * sizeof(std::uint32_t) || size > kLargestStruct) {
    return refuse(FA_STATUS_INVALID, "size is %u; set it to sizeof(%s), %zu here", size, type, known);
  }
  return FA_STATUS_OK;
}

// Reads the caller's struct as this library knows it: zeros where the caller's is shorter. Refuses
// a size that cannot be one, and a tail beyond what is known here that says something.
template <typename Args>
[[nodiscard]] fa_status read_args(const Args *args, const char *type, std::uint32_t known_flags,
                                  Args &known) {
  if (args == nullptr) {
    return refuse(FA_STATUS_INVALID, "args is NULL; pass a %s", type);
  }
  std::uint32_t size;
  std::memcpy(&size, args, sizeof size);
  FLASHDEPOT_TRY(check_size(size, type, sizeof known));
  known = {};
  std::memcpy(&known, args, size < sizeof known ? size : sizeof known);
  if (size > sizeof known) {
    const auto *tail = reinterpret_cast<const unsigned char *>(args) + sizeof known;
    if (!all_zero(tail, size - static_cast<std::uint32_t>(sizeof known))) {
      return refuse(
          FA_STATUS_INVALID,
          "size is %u and a field beyond the %zu bytes of %s that this library (version %d.%d) knows "
          "is set; leave newer fields zero or use a newer libflashattention",
          size, sizeof known, type, FA_VERSION_MAJOR, FA_VERSION_MINOR);
    }
  }
  if ((known.flags & ~known_flags) != 0) {
    return refuse(FA_STATUS_INVALID, "flags is 0x%x, of which 0x%x means nothing in %s; allowed: 0x%x",
                  known.flags, known.flags & ~known_flags, type, known_flags);
  }
  return FA_STATUS_OK;
}

// Writes as much of a struct of ours to the caller's as that has room for, and zeros beyond it.
template <typename Struct>
void write_struct(Struct *to, std::uint32_t size, const Struct &known) {
  std::memset(static_cast<void *>(to), 0, size);
  std::memcpy(static_cast<void *>(to), &known, size < sizeof known ? size : sizeof known);
}

}  // namespace flashdepot
