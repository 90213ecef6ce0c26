// fa_xla_call: a handler of XLA's foreign function interface (JAX's jax.ffi) over fa_fwd and fa_bwd.
//
// The interface is C structs that XLA owns and only ever lengthens; what is declared here is the
// part of version 0.1 that a handler needs, with XLA's names for its fields. Each struct begins
// with its size, by which a caller says what it knows.
#include <cuda_runtime_api.h>
#include <flash_attention.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

struct Extension {
  std::size_t struct_size;
  int type;
  Extension *next;
};

constexpr int kMetadata = 1;  // the caller asks for the version and traits; nothing is to be run

struct Version {
  std::size_t struct_size;
  Extension *extensions;
  int major_version;
  int minor_version;
};

struct Metadata {
  std::size_t struct_size;
  Version api_version;
  std::uint32_t traits;
  std::int64_t state_type_id;  // since 0.2; 0: a handler without state
};

struct MetadataExtension {
  Extension base;
  Metadata *metadata;
};

constexpr std::uint32_t kCapturable = 1;  // the same launches every time: may become a CUDA graph

struct Buffer {
  std::size_t struct_size;
  Extension *extensions;
  int dtype;
  void *data;
  std::int64_t rank;
  std::int64_t *dims;
};

struct Values {  // of arguments and of results
  std::size_t struct_size;
  Extension *extensions;
  std::int64_t size;
  int *types;
  void **values;
};

struct Span {
  const char *data;
  std::size_t size;
};

struct Attributes {
  std::size_t struct_size;
  Extension *extensions;
  std::int64_t size;
  int *types;
  Span **names;
  void **values;
};

constexpr int kArray = 1;
constexpr int kScalar = 3;

struct Array {
  int dtype;
  std::size_t size;  // elements
  void *data;
};

struct Scalar {
  int dtype;
  void *value;
};

struct NewError {
  std::size_t struct_size;
  Extension *extensions;
  const char *message;
  int code;
};

constexpr int kInvalidArgument = 3;

using Error = struct XLA_FFI_Error;

struct OldError {
  std::size_t struct_size;
  Extension *extensions;
  Error *error;
};

template <typename T>
struct Asked {  // of the execution context
  std::size_t struct_size;
  Extension *extensions;
  void *context;
  T answer;
};

struct Api {
  std::size_t struct_size;
  Extension *extensions;
  Version api_version;
  const void *internal;
  Error *(*error_create)(NewError *);
  void *error_message;
  void (*error_destroy)(OldError *);
  void *handler_register;
  Error *(*stream)(Asked<void *> *);
  void *later[12];
  Error *(*device_ordinal)(Asked<std::int32_t> *);  // since 0.2
};

}  // namespace

struct XLA_FFI_CallFrame {
  std::size_t struct_size;
  Extension *extensions;
  const Api *api;
  void *context;
  int stage;
  Values arguments;
  Values results;
  Attributes attributes;
};

namespace {

Error *fail(const XLA_FFI_CallFrame &frame, const char *message) {
  NewError made = {sizeof made, nullptr, message, kInvalidArgument};
  return frame.api->error_create(&made);
}

// Whether XLA answered; an error of its own is thrown away.
bool answered(const XLA_FFI_CallFrame &frame, Error *error) {
  if (error != nullptr) {
    OldError old = {sizeof old, nullptr, error};
    frame.api->error_destroy(&old);
  }
  return error == nullptr;
}

// The attribute of a name and kind, nullptr where there is none.
template <typename T>
const T *attribute(const XLA_FFI_CallFrame &frame, const char *name, int kind) {
  for (std::int64_t i = 0; i < frame.attributes.size; ++i) {
    const Span &found = *frame.attributes.names[i];
    if (frame.attributes.types[i] == kind && found.size == std::strlen(name) &&
        std::memcmp(found.data, name, found.size) == 0) {
      return static_cast<const T *>(frame.attributes.values[i]);
    }
  }
  return nullptr;
}

// The device that the stream is on: XLA's word for it, else the thread's current one.
std::int32_t device_of(const XLA_FFI_CallFrame &frame) {
  if (frame.api->struct_size >= offsetof(Api, device_ordinal) + sizeof frame.api->device_ordinal) {
    Asked<std::int32_t> asked = {sizeof asked, nullptr, frame.context, 0};
    if (answered(frame, frame.api->device_ordinal(&asked))) {
      return asked.answer;
    }
  }
  int current = 0;
  return cudaGetDevice(&current) == cudaSuccess ? current : 0;
}

// Puts the address of each buffer where `places` says; false for a place outside the struct.
template <typename Args>
bool place(const Values &values, const std::int32_t *places, Args &args) {
  for (std::int64_t i = 0; i < values.size; ++i) {
    if (places[i] < 0 || static_cast<std::size_t>(places[i]) + sizeof(void *) > sizeof args) {
      return false;
    }
    void *const data = static_cast<const Buffer *>(values.values[i])->data;
    std::memcpy(reinterpret_cast<char *>(&args) + places[i], &data, sizeof data);
  }
  return true;
}

template <typename Args>
Error *run(const XLA_FFI_CallFrame &frame, fa_status (*function)(const Args *)) {
  const auto *given = attribute<Array>(frame, "arguments", kArray);
  const auto *places = attribute<Array>(frame, "places", kArray);
  const auto buffers = static_cast<std::size_t>(frame.arguments.size + frame.results.size);
  Args args = {};
  if (given == nullptr || places == nullptr || given->size > sizeof args ||
      given->size < sizeof args.size || places->size != buffers) {
    return fail(frame, "flashdepot: this program was compiled for another version of the library");
  }
  std::memcpy(&args, given->data, given->size);
  const auto *offsets = static_cast<const std::int32_t *>(places->data);
  if (!place(frame.arguments, offsets, args) ||
      !place(frame.results, offsets + frame.arguments.size, args)) {
    return fail(frame, "flashdepot: this program was compiled for another version of the library");
  }
  Asked<void *> asked = {sizeof asked, nullptr, frame.context, nullptr};
  if (!answered(frame, frame.api->stream(&asked))) {
    return fail(frame, "flashdepot: attention runs on NVIDIA GPUs, and this program runs elsewhere");
  }
  args.stream = asked.answer;
  args.device = device_of(frame);
  return function(&args) == FA_STATUS_OK ? nullptr : fail(frame, fa_last_error());
}

// Some releases of XLA take handlers of their own version only: since structs only lengthen, this is
// one of any.
void describe(Metadata &metadata, const Api *api) {
  metadata.api_version.major_version = 0;
  metadata.api_version.minor_version = api != nullptr ? api->api_version.minor_version : 1;
  metadata.traits = kCapturable;
  if (metadata.struct_size >= offsetof(Metadata, state_type_id) + sizeof metadata.state_type_id) {
    metadata.state_type_id = 0;
  }
}

}  // namespace

struct XLA_FFI_Error *fa_xla_call(struct XLA_FFI_CallFrame *frame) noexcept {
  if (frame->extensions != nullptr && frame->extensions->type == kMetadata) {
    describe(*reinterpret_cast<MetadataExtension *>(frame->extensions)->metadata, frame->api);
    return nullptr;
  }
  const auto *function = attribute<Scalar>(*frame, "function", kScalar);
  const bool backward = function != nullptr && *static_cast<const std::int32_t *>(function->value) == 1;
  return backward ? run<fa_bwd_args>(*frame, fa_bwd) : run<fa_fwd_args>(*frame, fa_fwd);
}
