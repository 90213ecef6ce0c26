// Between the parts of the stub.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

extern "C" {
int stub_current_device();
void stub_load_only(int on);
void stub_record_copy(void *to, const void *from, std::size_t bytes, int kind, void *stream);
void stub_record_text(const char *fields);  // of a JSON object, without its braces
void stub_record_fill(void *to, int value, std::size_t bytes, void *stream);
}
