// A JAX operation over libflashattention: XLA hands over buffers and its stream, fa_fwd does the rest.
#include <flash_attention.h>

#include <string>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// (batch, length, heads, dim), contiguous as XLA gives it.
static fa_tensor describe(void *data, ffi::Span<const int64_t> shape) {
  return {data, shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3]};
}

static ffi::Error attend(void *stream, bool causal, ffi::Buffer<ffi::BF16> q, ffi::Buffer<ffi::BF16> k,
                         ffi::Buffer<ffi::BF16> v, ffi::ResultBuffer<ffi::BF16> o, ffi::ResultBuffer<ffi::F32> lse) {
  const auto shape = q.dimensions();
  fa_fwd_args args = {};
  args.size = sizeof args;
  args.flags = causal ? FA_CAUSAL : 0;
  args.dtype = FA_BF16;
  args.stream = stream;
  args.batch = static_cast<int32_t>(shape[0]);
  args.seqlen_q = static_cast<int32_t>(shape[1]);
  args.seqlen_k = static_cast<int32_t>(k.dimensions()[1]);
  args.heads_q = static_cast<int32_t>(shape[2]);
  args.heads_k = static_cast<int32_t>(k.dimensions()[2]);
  args.head_dim = static_cast<int32_t>(shape[3]);
  args.q = describe(q.untyped_data(), shape);
  args.k = describe(k.untyped_data(), k.dimensions());
  args.v = describe(v.untyped_data(), v.dimensions());
  args.o = describe(o->untyped_data(), shape);
  args.lse = lse->typed_data();
  if (fa_fwd(&args) != FA_OK) {
    return ffi::Error(ffi::ErrorCode::kInvalidArgument, std::string(fa_last_error()));
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(flash_attention_forward, attend,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void *>>()
                                  .Attr<bool>("causal")
                                  .Arg<ffi::Buffer<ffi::BF16>>()
                                  .Arg<ffi::Buffer<ffi::BF16>>()
                                  .Arg<ffi::Buffer<ffi::BF16>>()
                                  .Ret<ffi::Buffer<ffi::BF16>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
