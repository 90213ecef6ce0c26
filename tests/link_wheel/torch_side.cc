// libc10 of a torch; with -DWITHOUT_CHECK of one that no longer has that function.
#include <ATen/core/Tensor.h>

#include <stdexcept>

#ifndef WITHOUT_CHECK
void c10::detail::torchCheckFail(const char *, const char *, unsigned, const std::string &text) {
  throw std::runtime_error(text);
}
#endif

extern const std::string c10_name;
const std::string c10_name = "c10";
