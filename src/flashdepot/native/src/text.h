// A text of bounded length, put together piece by piece.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "error.h"

namespace flashdepot {

class Text {
 public:
  // What does not fit is cut off.
  FLASHDEPOT_PRINTF(2, 3) void add(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    add_list(format, arguments);
    va_end(arguments);
  }

  void add_list(const char *format, va_list arguments) {
    const int wanted = std::vsnprintf(data_ + used_, sizeof data_ - used_, format, arguments);
    if (wanted > 0) {
      const unsigned room = static_cast<unsigned>(sizeof data_ - 1) - used_;
      used_ += static_cast<unsigned>(wanted) < room ? static_cast<unsigned>(wanted) : room;
    }
  }

  void clear() {
    data_[0] = '\0';
    used_ = 0;
  }

  bool empty() const { return used_ == 0; }
  const char *c_str() const { return data_; }

 private:
  char data_[1000] = "";
  unsigned used_ = 0;
};

}  // namespace flashdepot
