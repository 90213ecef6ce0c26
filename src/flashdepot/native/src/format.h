// printf into a buffer of bounded length, by a function that every C library exports.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace flashdepot {

// What std::vsnprintf does. The universal C runtime of Windows does not export that one: Microsoft's
// headers define it, so an object that refers to it links with MinGW's libraries only.
inline int format_list(char *text, std::size_t size, const char *format, va_list arguments) {
#ifdef _WIN32
  constexpr unsigned long long kAsStandardSaysOfSnprintf = 2;
  return __stdio_common_vsprintf(kAsStandardSaysOfSnprintf, text, size, format, nullptr, arguments);
#else
  return std::vsnprintf(text, size, format, arguments);
#endif
}

}  // namespace flashdepot
