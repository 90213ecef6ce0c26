/* libflashattention from C: every kind of call of every entry point, for compute-sanitizer. One
 * problem is given as a dense one, packed, in pages and in caches; all must agree with the dense
 * one, whose result forward_check.c and the Python tests hold against double precision. What the
 * library was not built for is named and left out.
 *
 *     entry_points [--small] [fa2|fa4]      --small: one head dim and fewer rows; without a family
 *                                           the library chooses one for each call
 *
 * Exit status: 0 all right, 1 a wrong result or a failed call, 2 nothing could run. */
#include <cuda_runtime_api.h>
#include <flash_attention.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA(call)                                                              \
  do {                                                                          \
    cudaError_t code_ = (call);                                                 \
    if (code_ != cudaSuccess) {                                                 \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code_));            \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

enum { B = 2, HK = 2, PAGE = 256, PAGES = 2, SK = PAGE * PAGES, NEW = 8, ROTARY = 32 };

typedef struct shape {
  int32_t dtype, sq, h, d;
  uint32_t flags;
  float dropout;
} shape;

static int right, wrong, missing;
static int32_t family;
static cudaStream_t stream;

static void *allocate(size_t bytes) {
  void *data = malloc(bytes);
  if (!data) exit(1);
  return data;
}

static float decode(uint16_t half, int32_t dtype) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  if (dtype == FA_DTYPE_FP16) {
    const uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
    value = exponent == 31 ? (float)NAN
            : exponent     ? (float)ldexp(1024.0 + fraction, (int)exponent - 25)
                           : (float)ldexp(fraction, -24);
    return half & 0x8000 ? -value : value;
  }
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Random numbers from 2^-3 to 2^-1 in magnitude, of either type. */
static void *random_tensor(size_t count, int32_t dtype, uint32_t seed) {
  uint16_t *host = allocate(count * 2);
  void *device;
  size_t i;
  for (i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    host[i] =
        (uint16_t)((seed >> 16 & 0x8000) | (dtype == FA_DTYPE_BF16 ? 0x3e00 | (seed >> 20 & 0xff)
                                                             : 0x3000 | (seed >> 20 & 0x7ff)));
  }
  CUDA(cudaMalloc(&device, count * 2));
  CUDA(cudaMemcpy(device, host, count * 2, cudaMemcpyHostToDevice));
  free(host);
  return device;
}

static int32_t *ints(const int32_t *host, size_t count) {
  void *device;
  CUDA(cudaMalloc(&device, count * 4));
  CUDA(cudaMemcpy(device, host, count * 4, cudaMemcpyHostToDevice));
  return device;
}

static void *empty(size_t bytes) {
  void *device;
  CUDA(cudaMalloc(&device, bytes ? bytes : 1));
  return device;
}

static fa_tensor contiguous(void *data, int32_t rows, int32_t heads, int32_t d) {
  return fa_make_tensor(data, (int64_t)rows * heads * d, (int64_t)heads * d, d);
}

static fa_const_tensor input(const void *data, int32_t rows, int32_t heads, int32_t d) {
  return fa_make_const_tensor(data, (int64_t)rows * heads * d, (int64_t)heads * d, d);
}

static float *read_halves(const void *device, size_t count, int32_t dtype) {
  uint16_t *host = allocate(count * 2);
  float *values = allocate(count * sizeof *values);
  size_t i;
  CUDA(cudaMemcpy(host, device, count * 2, cudaMemcpyDeviceToHost));
  for (i = 0; i < count; ++i) values[i] = decode(host[i], dtype);
  free(host);
  return values;
}

/* The largest difference, relative to the largest value; NaN sticks. */
static double distance(const float *a, const float *b, size_t count) {
  double most = 0, size = 1e-6;
  size_t i;
  for (i = 0; i < count; ++i) {
    const double off = fabs((double)a[i] - (double)b[i]);
    if (!(off <= most)) most = off;
    if (fabs((double)b[i]) > size) size = fabs((double)b[i]);
  }
  return most / size;
}

static void report(const char *name, const shape *s, double off) {
  const int ok = off <= (s->dtype == FA_DTYPE_BF16 ? 3e-2 : 4e-3);
  printf("%s %s sq%d h%d/%d d%d%s: off by %.1e: %s\n", name, s->dtype == FA_DTYPE_BF16 ? "bf16" : "fp16",
         s->sq, s->h, HK, s->d, s->flags & FA_FLAG_CAUSAL ? " causal" : "", off, ok ? "ok" : "WRONG");
  right += ok;
  wrong += !ok;
}

/* Runs a forward call with a workspace of the size that it asks for. 0: it ran. */
static int forward(const char *name, fa_fwd_args *args) {
  uint64_t bytes = 0;
  fa_status status = fa_supports(0, args, NULL);
  if (status == FA_STATUS_UNSUPPORTED) {
    printf("%s: %s\n", name, fa_last_error());
    ++missing;
    return 1;
  }
  if (status == FA_STATUS_OK) status = fa_fwd_workspace(args, &bytes, NULL);
  args->workspace = bytes ? empty(bytes) : NULL;
  args->workspace_bytes = bytes;
  if (status == FA_STATUS_OK) status = fa_fwd(args);
  if (status != FA_STATUS_OK) {
    printf("%s: %s: %s\n", name, fa_status_string(status), fa_last_error());
    ++wrong;
  }
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaFree(args->workspace));
  args->workspace = NULL;
  args->workspace_bytes = 0;
  return status != FA_STATUS_OK;
}

static int backward(const char *name, fa_bwd_args *args) {
  uint64_t bytes = 0;
  fa_status status = fa_bwd_workspace(args, &bytes);
  if (status == FA_STATUS_UNSUPPORTED) {
    printf("%s: %s\n", name, fa_last_error());
    ++missing;
    return 1;
  }
  args->workspace = bytes ? empty(bytes) : NULL;
  args->workspace_bytes = bytes;
  if (status == FA_STATUS_OK) status = fa_bwd(args);
  if (status != FA_STATUS_OK) {
    printf("%s: %s: %s\n", name, fa_status_string(status), fa_last_error());
    ++wrong;
  }
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaFree(args->workspace));
  return status != FA_STATUS_OK;
}

static fa_fwd_args dense(const shape *s, void *q, void *k, void *v, void *o, float *lse) {
  fa_fwd_args args;
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.flags = s->flags;
  args.dtype = s->dtype;
  args.stream = stream;
  args.batch = B;
  args.seqlen_q = s->sq;
  args.seqlen_k = SK;
  args.heads_q = s->h;
  args.heads_k = HK;
  args.head_dim = s->d;
  args.num_splits = 1;
  args.family = family;
  args.q = input(q, s->sq, s->h, s->d);
  args.k = contiguous(k, SK, HK, s->d);
  args.v = contiguous(v, SK, HK, s->d);
  args.o = contiguous(o, s->sq, s->h, s->d);
  args.lse = lse;
  return args;
}

/* Runs a call and compares o with what the dense one gave. */
static void compare(const char *name, const shape *s, fa_fwd_args args, const float *expected) {
  const size_t count = (size_t)B * (size_t)s->sq * (size_t)s->h * (size_t)s->d;
  float *got;
  CUDA(cudaMemsetAsync(args.o.data, 0xff, count * 2, stream));
  if (forward(name, &args)) return;
  got = read_halves(args.o.data, count, s->dtype);
  report(name, s, distance(got, expected, count));
  free(got);
}

static void check_gradients(const shape *s, const fa_fwd_args *forward_args, const int32_t *cu_q,
                            const int32_t *cu_k, uint64_t *rng_state) {
  static const char *names[] = {"bwd dense", "bwd deterministic", "bwd packed", "bwd packed deterministic"};
  const size_t nq = (size_t)B * (size_t)s->sq * (size_t)s->h * (size_t)s->d;
  const size_t nk = (size_t)B * SK * HK * (size_t)s->d;
  const size_t padded = (size_t)B * (size_t)s->h * (size_t)(s->sq + 256) * 4;
  void *d_o = random_tensor(nq, s->dtype, 9), *dq = empty(nq * 2), *dk = empty(nk * 2), *dv = empty(nk * 2);
  float *expected[3] = {NULL, NULL, NULL};
  int kind, i;
  fa_bwd_args args;
  memset(&args, 0, sizeof args);
  args.size = sizeof args;
  args.dtype = s->dtype;
  args.stream = stream;
  args.batch = B;
  args.seqlen_q = s->sq;
  args.seqlen_k = SK;
  args.heads_q = s->h;
  args.heads_k = HK;
  args.head_dim = s->d;
  args.dropout = s->dropout;
  args.family = family;
  args.q = forward_args->q;
  args.k = fa_as_const(forward_args->k);
  args.v = fa_as_const(forward_args->v);
  args.o = fa_as_const(forward_args->o);
  args.d_o = input(d_o, s->sq, s->h, s->d);
  args.dq = contiguous(dq, s->sq, s->h, s->d);
  args.dk = contiguous(dk, SK, HK, s->d);
  args.dv = contiguous(dv, SK, HK, s->d);
  args.softmax_d = empty(padded);
  args.rng_state = rng_state;
  for (kind = 0; kind < 4; ++kind) {
    const int is_packed = kind >= 2;
    fa_fwd_args again = *forward_args;
    args.flags = s->flags | (kind & 1 ? FA_FLAG_DETERMINISTIC : 0);
    again.cu_seqlens_q = args.cu_seqlens_q = is_packed ? cu_q : NULL;
    again.cu_seqlens_k = args.cu_seqlens_k = is_packed ? cu_k : NULL;
    again.total_q = args.total_q = is_packed ? B * s->sq : 0;
    again.total_k = args.total_k = is_packed ? B * SK : 0;
    args.lse = forward_args->lse;
    CUDA(cudaMemsetAsync(dq, 0xff, nq * 2, stream));
    CUDA(cudaMemsetAsync(dk, 0xff, nk * 2, stream));
    CUDA(cudaMemsetAsync(dv, 0xff, nk * 2, stream));
    if (forward(names[kind], &again) || backward(names[kind], &args)) continue;
    for (i = 0; i < 3; ++i) {
      const size_t count = i == 0 ? nq : nk;
      float *got = read_halves(i == 0 ? dq : i == 1 ? dk : dv, count, s->dtype);
      if (expected[i] == NULL) expected[i] = got;
      report(names[kind], s, distance(got, expected[i], count));
      if (expected[i] != got) free(got);
    }
  }
  args.cu_seqlens_q = args.cu_seqlens_k = NULL;
  args.total_q = args.total_k = 0;
  args.flags = s->flags;
  args.seqlen_k = 0;
  right += backward("bwd without keys", &args) == 0;
  args.seqlen_k = SK;
  args.seqlen_q = 0;
  right += backward("bwd without queries", &args) == 0;
  for (i = 0; i < 3; ++i) free(expected[i]);
  CUDA(cudaFree(d_o));
  CUDA(cudaFree(dq));
  CUDA(cudaFree(dk));
  CUDA(cudaFree(dv));
  CUDA(cudaFree(args.softmax_d));
}

static void check(const shape *s) {
  const size_t nq = (size_t)B * (size_t)s->sq * (size_t)s->h * (size_t)s->d;
  const size_t nk = (size_t)B * SK * HK * (size_t)s->d;
  const int32_t starts_q[B + 1] = {0, s->sq, 2 * s->sq}, starts_k[B + 1] = {0, SK, 2 * SK};
  const int32_t table[B * PAGES] = {0, 1, 2, 3}, full[B] = {SK, SK}, before[B] = {SK - NEW, SK - NEW};
  const int32_t identity[B] = {0, 1}, none[B] = {0, 0};
  void *q = random_tensor(nq, s->dtype, 1), *k = random_tensor(nk, s->dtype, 2), *v = random_tensor(nk, s->dtype, 3);
  void *o = empty(nq * 2), *rotary = empty((size_t)SK * ROTARY);
  float *lse = empty((size_t)B * (size_t)s->h * (size_t)s->sq * 4);
  int32_t *cu_q = ints(starts_q, B + 1), *cu_k = ints(starts_k, B + 1), *pages = ints(table, B * PAGES);
  int32_t *lengths = ints(full, B), *shorter = ints(before, B), *index = ints(identity, B), *pad = ints(none, B);
  uint64_t *rng_state = empty(16);
  int64_t seeds[2] = {42, 7};
  int64_t *device_seeds = empty(16);
  float *expected;
  fa_fwd_args base = dense(s, q, k, v, o, lse), args;
  const int64_t last = (int64_t)(SK - NEW) * HK * s->d;

  CUDA(cudaMemcpy(device_seeds, seeds, 16, cudaMemcpyHostToDevice));
  CUDA(cudaMemset(rng_state, 0, 16));
  CUDA(cudaMemset(rotary, 0, (size_t)SK * ROTARY));
  CUDA(cudaDeviceSynchronize());
  args = base;
  if (forward("fwd dense", &args)) goto done;
  expected = read_halves(o, nq, s->dtype);
  report("fwd dense", s, distance(expected, expected, nq));

  args.num_splits = 3;
  compare("fwd 3 splits", s, args, expected);
  args = base;
  args.num_splits = 0;
  compare("fwd automatic splits", s, args, expected);

  args = base;
  args.cu_seqlens_q = cu_q;
  args.cu_seqlens_k = cu_k;
  args.total_q = B * s->sq;
  args.total_k = B * SK;
  args.num_splits = 0;
  compare("fwd packed", s, args, expected);
  args.seqused_k = lengths;
  args.leftpad_k = pad;
  compare("fwd packed, used and padded", s, args, expected);
  args.leftpad_k = NULL;
  args.total_k = 0;
  args.block_table = pages;
  args.block_table_stride = PAGES;
  args.page_size = PAGE;
  args.k = contiguous(k, PAGE, HK, s->d);
  args.v = contiguous(v, PAGE, HK, s->d);
  compare("fwd packed pages", s, args, expected);
  args.num_splits = 1;
  compare("fwd packed pages, 1 split", s, args, expected);

  args = base;
  args.cache_seqlens = lengths;
  args.leftpad_k = pad;
  compare("fwd cache", s, args, expected);
  args.cache_batch_idx = index;
  args.num_splits = 2;
  compare("fwd cache, looked up, 2 splits", s, args, expected);
  if (s->sq <= SK - NEW) {
    args = base;
    args.cache_seqlens = shorter;
    args.seqlen_new = NEW;
    /* the keys that are there already: from the other copy, which nobody writes */
    args.k_new = input((char *)random_tensor(nk, s->dtype, 2) + 2 * last, SK, HK, s->d);
    args.v_new = input((char *)random_tensor(nk, s->dtype, 3) + 2 * last, SK, HK, s->d);
    compare("fwd cache, appended", s, args, expected);
    args.block_table = pages;
    args.block_table_stride = PAGES;
    args.page_size = PAGE;
    args.k = contiguous(k, PAGE, HK, s->d);
    args.v = contiguous(v, PAGE, HK, s->d);
    args.num_splits = 3;
    compare("fwd pages, appended, 3 splits", s, args, expected);
    /* cos and sin of 0: what is turned becomes 0, and its scores with it; the call must be clean */
    args.rotary_cos = args.rotary_sin = rotary;
    args.rotary_dim = ROTARY;
    args.rotary_seqlen = SK;
    right += forward("fwd pages, rotary", &args) == 0;
    args.flags |= FA_FLAG_ROTARY_INTERLEAVED;
    right += forward("fwd pages, rotary interleaved", &args) == 0;
    CUDA(cudaFree((char *)args.k_new.data - 2 * last));
    CUDA(cudaFree((char *)args.v_new.data - 2 * last));
    CUDA(cudaFree(k)); /* turned by now */
    k = random_tensor(nk, s->dtype, 2);
    base.k.data = k;
  }
  args = base;
  args.seqlen_k = 0;
  right += forward("fwd without keys", &args) == 0;

  args = base;
  check_gradients(s, &args, cu_q, cu_k, NULL);
  {
    shape dropping = *s;
    void *p_debug = empty((size_t)B * (size_t)s->h * (size_t)((s->sq + 127) / 128 * 128) * SK * 2);
    dropping.dropout = args.dropout = 0.2f;
    args.seed = 42;
    args.offset = 7;
    args.rng_state = rng_state;
    args.p_debug = p_debug;
    right += forward("fwd dropout, debug", &args) == 0;
    args.p_debug = NULL;
    args.seed_ptr = device_seeds;
    args.offset_ptr = device_seeds + 1;
    check_gradients(&dropping, &args, cu_q, cu_k, rng_state);
    CUDA(cudaFree(p_debug));
  }
  free(expected);
done:
  CUDA(cudaFree(q));
  CUDA(cudaFree(k));
  CUDA(cudaFree(v));
  CUDA(cudaFree(o));
  CUDA(cudaFree(rotary));
  CUDA(cudaFree(lse));
  CUDA(cudaFree(cu_q));
  CUDA(cudaFree(cu_k));
  CUDA(cudaFree(pages));
  CUDA(cudaFree(lengths));
  CUDA(cudaFree(shorter));
  CUDA(cudaFree(index));
  CUDA(cudaFree(pad));
  CUDA(cudaFree(rng_state));
  CUDA(cudaFree(device_seeds));
}

int main(int count, char **words) {
  static const shape shapes[] = {
      {FA_DTYPE_BF16, 70, 4, 64, 0, 0},          {FA_DTYPE_BF16, 70, 4, 64, FA_FLAG_CAUSAL, 0},
      {FA_DTYPE_BF16, 1, 8, 64, 0, 0},           {FA_DTYPE_FP16, 70, 2, 72, 0, 0},
      {FA_DTYPE_BF16, 300, 4, 64, FA_FLAG_CAUSAL, 0}, {FA_DTYPE_FP16, 130, 6, 128, FA_FLAG_CAUSAL, 0},
      {FA_DTYPE_BF16, 70, 4, 128, 0, 0},         {FA_DTYPE_FP16, 1, 6, 128, 0, 0},
      {FA_DTYPE_BF16, 33, 2, 256, FA_FLAG_CAUSAL, 0},
  };
  const int small = count > 1 && strcmp(words[1], "--small") == 0;
  const char *named = count > 1 ? words[count - 1] : "";
  const size_t shapes_count = small ? 4 : sizeof shapes / sizeof shapes[0];
  size_t i;
  family = strcmp(named, "fa2") == 0 ? FA_FAMILY_FA2 : strcmp(named, "fa4") == 0 ? FA_FAMILY_FA4 : 0;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (i = 0; i < shapes_count; ++i) check(&shapes[i]);
  CUDA(cudaStreamDestroy(stream));
  printf("%d right, %d wrong, %d not in this library\n", right, wrong, missing);
  return wrong > 0 ? 1 : right > 0 ? 0 : 2;
}
