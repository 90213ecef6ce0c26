// Stands in for torch's: a type of the same name, and one function that libc10 defines.
#pragma once

#include <optional>
#include <string>

namespace c10 {
template <typename T>
using optional = std::optional<T>;
namespace detail {
void torchCheckFail(const char *function, const char *file, unsigned line, const std::string &text);
}
}  // namespace c10

namespace at {
struct Tensor {
  int value;
};
}  // namespace at
