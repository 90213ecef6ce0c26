// Calls with arguments that nobody would pass, and some that somebody would: each struct lies in
// memory of exactly the size that it names, so that a sanitizer sees a byte read beyond it.
//
//     random_calls SEED COUNT        prints how often each status was the answer
#include <flash_attention.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "stub.h"

extern "C" void stub_clear();

namespace {

std::mt19937_64 generator;

std::uint64_t number(std::uint64_t below) { return generator() % below; }
bool one_in(std::uint64_t count) { return number(count) == 0; }

template <typename T, std::size_t N>
T any_of(const T (&list)[N]) {
  return list[number(N)];
}

std::int32_t odd_int() {
  constexpr std::int32_t kOdd[] = {
      0,       1,   -1,  2,   3,   7,     8,     40,      64,        65,        127,
      128,     255, 256, 257, 512, 65535, 65536, 1 << 29, INT32_MAX, INT32_MIN, (1 << 29) + 1,
      1 << 20, 129};
  return any_of(kOdd);
}

std::int64_t odd_stride() {
  constexpr std::int64_t kOdd[] = {0,
                                   8,
                                   64,
                                   128,
                                   512,
                                   -8,
                                   3,
                                   std::int64_t{1} << 46,
                                   (std::int64_t{1} << 46) + 8,
                                   INT64_MAX,
                                   INT64_MIN,
                                   1 << 24};
  return any_of(kOdd);
}

float odd_float() {
  const float kOdd[] = {0.0f, 1.0f, -1.0f, 0.5f, 0.999f, 1e-30f, 3e38f, NAN, INFINITY, -INFINITY};
  return any_of(kOdd);
}

template <typename T>
void odd_pointer(T *&pointer) {
  constexpr std::uintptr_t kOdd[] = {0, 16, 0x10000, 0x10001, 0x10004, 0x10008, 0x7fff00000000};
  pointer = reinterpret_cast<T *>(any_of(kOdd));
}

// Something like what a program passes.
template <typename Tensor>
void lay(Tensor &tensor, int place, std::int64_t rows, std::int32_t heads, std::int32_t dim) {
  const std::int64_t row = std::int64_t{heads} * dim;
  tensor = {reinterpret_cast<void *>(std::uintptr_t{0x10000} * static_cast<unsigned>(place)),
            row * rows, row, dim, 0, 0};
}

template <typename Args>
std::int32_t width_of_v(const Args &args) {
  return args.head_dim_v != 0 ? args.head_dim_v : args.head_dim;
}

template <typename Args>
void sensible(Args &args) {
  args.size = sizeof args;
  args.dtype = one_in(2) ? FA_DTYPE_FP16 : FA_DTYPE_BF16;
  args.device = static_cast<std::int32_t>(number(4));
  args.batch = static_cast<std::int32_t>(number(4));
  args.seqlen_q = static_cast<std::int32_t>(number(300));
  args.seqlen_k = static_cast<std::int32_t>(number(3000));
  args.heads_k = 1 + static_cast<std::int32_t>(number(4));
  args.heads_q = args.heads_k * (1 + static_cast<std::int32_t>(number(4)));
  args.head_dim = 8 * (1 + static_cast<std::int32_t>(number(32)));
  args.head_dim_v = one_in(4) ? 8 * (1 + static_cast<std::int32_t>(number(32))) : 0;
  lay(args.q, 1, args.seqlen_q, args.heads_q, args.head_dim);
  lay(args.k, 2, args.seqlen_k, args.heads_k, args.head_dim);
  lay(args.v, 3, args.seqlen_k, args.heads_k, width_of_v(args));
  lay(args.o, 4, args.seqlen_q, args.heads_q, width_of_v(args));
  if (one_in(4)) args.sink = reinterpret_cast<const float *>(0xa0000);
  args.lse = reinterpret_cast<float *>(0x50000);
  args.workspace = reinterpret_cast<void *>(0x60000);
  args.workspace_bytes = one_in(8) ? number(1 << 20) : std::uint64_t{1} << 62;
  if (one_in(3)) {
    args.cu_seqlens_q = args.cu_seqlens_k = reinterpret_cast<const std::int32_t *>(0x70000);
    args.total_q = std::int64_t{args.batch} * args.seqlen_q;
    args.total_k = std::int64_t{args.batch} * args.seqlen_k;
  }
  args.flags = one_in(2) ? FA_FLAG_CAUSAL : 0;
}

void more(fa_fwd_args &args) {
  if (args.cu_seqlens_q == nullptr && one_in(2)) {
    args.cache_seqlens = reinterpret_cast<const std::int32_t *>(0x80000);
    if (one_in(2)) {
      args.block_table = args.cache_seqlens;
      args.page_size = 256;
    }
  }
  args.num_splits = one_in(3) ? static_cast<std::int32_t>(number(130)) : 0;
}

void more(fa_bwd_args &args) {
  lay(args.d_o, 11, args.seqlen_q, args.heads_q, width_of_v(args));
  lay(args.dq, 12, args.seqlen_q, args.heads_q, args.head_dim);
  lay(args.dk, 13, args.seqlen_k, args.heads_k, args.head_dim);
  lay(args.dv, 14, args.seqlen_k, args.heads_k, width_of_v(args));
  args.softmax_d = reinterpret_cast<float *>(0x90000);
  args.flags |= one_in(2) ? FA_FLAG_DETERMINISTIC : 0;
}

// Overwrites a few fields, whatever they are: every field is 4 or 8 bytes, at a multiple of 4.
template <typename Args>
void spoil(Args &args) {
  auto *bytes = reinterpret_cast<unsigned char *>(&args);
  for (std::uint64_t left = number(5); left > 0; --left) {
    const std::size_t at = 4 + 4 * number(sizeof args / 4 - 2);
    if (one_in(3)) {
      const std::int64_t value = odd_stride();
      std::memcpy(bytes + at / 8 * 8, &value, sizeof value);
    } else if (one_in(2)) {
      const float value = odd_float();
      std::memcpy(bytes + at, &value, sizeof value);
    } else {
      const std::int32_t value = odd_int();
      std::memcpy(bytes + at, &value, sizeof value);
    }
  }
  if (one_in(4)) odd_pointer(args.lse);
}

template <typename Args>
void spoil_attention(Args &args) {
  spoil(args);
  if (one_in(4)) odd_pointer(args.q.data);
  if (one_in(4)) odd_pointer(args.workspace);
  if (one_in(8)) args.family = odd_int();
}

// The struct in memory of the size that it names.
template <typename Args>
std::vector<unsigned char> in_exact_memory(Args &args) {
  if (one_in(6)) args.size = static_cast<std::uint32_t>(number(sizeof args + 64));
  if (one_in(60)) args.size = static_cast<std::uint32_t>(generator());
  const bool plausible = args.size >= sizeof args.size && args.size <= 8192;
  std::vector<unsigned char> memory(plausible ? args.size : sizeof args);
  std::memcpy(memory.data(), &args, memory.size() < sizeof args ? memory.size() : sizeof args);
  if (one_in(8) && memory.size() > sizeof args) memory.back() = 1;
  return memory;
}

unsigned long answers[8];

void count(fa_status status) {
  ++answers[status >= 0 && status < 7 ? status : 7];
  if (status != FA_STATUS_OK && std::strlen(fa_last_error()) == 0) std::abort();  // a refusal has a text
}

void forward() {
  fa_fwd_args args{};
  sensible(args);
  more(args);
  spoil_attention(args);
  const auto memory = in_exact_memory(args);
  const auto *given = reinterpret_cast<const fa_fwd_args *>(memory.data());
  std::uint64_t bytes;
  std::int32_t splits;
  fa_choice choice{};
  choice.size = one_in(8) ? static_cast<std::uint32_t>(number(25)) : sizeof choice;
  count(fa_fwd_workspace(given, one_in(20) ? nullptr : &bytes, one_in(3) ? nullptr : &splits));
  count(fa_supports(one_in(3) ? odd_int() : -1, given, one_in(2) ? nullptr : &choice));
  if (one_in(4)) count(fa_preload(given, nullptr));
  count(fa_fwd(given));
}

void backward() {
  fa_bwd_args args{};
  sensible(args);
  more(args);
  spoil_attention(args);
  const auto memory = in_exact_memory(args);
  const auto *given = reinterpret_cast<const fa_bwd_args *>(memory.data());
  std::uint64_t bytes;
  fa_choice choice{};
  choice.size = one_in(8) ? static_cast<std::uint32_t>(number(25)) : sizeof choice;
  count(fa_bwd_workspace(given, one_in(20) ? nullptr : &bytes));
  count(fa_bwd_supports(one_in(3) ? odd_int() : -1, given, one_in(2) ? nullptr : &choice));
  if (one_in(4)) count(fa_preload(nullptr, given));
  count(fa_bwd(given));
}

void combination() {
  fa_combine_args args{};
  args.size = sizeof args;
  args.dtype = one_in(2) ? FA_DTYPE_FP16 : FA_DTYPE_BF16;
  args.parts_dtype = one_in(2) ? FA_DTYPE_FP32 : 0;
  args.device = static_cast<std::int32_t>(number(4));
  args.parts = 1 + static_cast<std::int32_t>(number(8));
  args.batch = static_cast<std::int32_t>(number(4));
  args.seqlen_q = static_cast<std::int32_t>(number(300));
  args.heads_q = 1 + static_cast<std::int32_t>(number(16));
  args.head_dim_v = 8 * (1 + static_cast<std::int32_t>(number(64)));
  lay(args.o_parts, 1, args.seqlen_q, args.heads_q, args.head_dim_v);
  lay(args.lse_parts, 2, args.seqlen_q, args.heads_q, 1);
  lay(args.o, 3, args.seqlen_q, args.heads_q, args.head_dim_v);
  args.o_parts_stride = args.o_parts.batch_stride * args.batch;
  args.lse_parts_stride = args.lse_parts.batch_stride * args.batch;
  args.lse = reinterpret_cast<float *>(0x50000);
  spoil(args);
  const auto memory = in_exact_memory(args);
  count(fa_combine(reinterpret_cast<const fa_combine_args *>(memory.data())));
}

void info() {
  fa_info known{};
  std::vector<unsigned char> memory(8 + number(sizeof known + 32));
  known.size = static_cast<std::uint32_t>(memory.size());
  std::memcpy(memory.data(), &known.size, sizeof known.size);
  count(fa_build_info(reinterpret_cast<fa_info *>(memory.data())));
}

}  // namespace

int main(int, char **words) {
  generator.seed(std::strtoull(words[1], nullptr, 10));
  for (int left = std::atoi(words[2]); left > 0; --left) {
    one_in(2) ? forward() : backward();
    if (one_in(4)) combination();
    if (one_in(50)) info();
    stub_clear();
  }
  for (const unsigned long answer : answers) std::printf("%lu ", answer);
  std::printf("\n");
}
