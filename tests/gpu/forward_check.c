/* libflashattention from C: a few problems against attention in double precision on the CPU, then
 * speed. Problems that the library was not built for are named and left out.
 *
 *     forward_check [--small]      --small: no timing; for compute-sanitizer
 *
 * Exit status: 0 all right, 1 a wrong result or a failed call, 2 nothing could run. */
#define _POSIX_C_SOURCE 199309L

#include <cuda_runtime_api.h>
#include <flash_attention.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct problem {
  int32_t dtype, batch, sq, sk, h, hk, d;
  uint32_t flags;
  int32_t left;
  float softcap;
  int32_t splits;
} problem;

#define CUDA(call)                                                              \
  do {                                                                          \
    cudaError_t code_ = (call);                                                 \
    if (code_ != cudaSuccess) {                                                 \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code_));            \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

static void *allocate(size_t bytes) {
  void *data = malloc(bytes ? bytes : 1);
  if (!data) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  return data;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Inputs have magnitudes from 2^-7 to 1 in steps of 2^-7, which both 16-bit types hold exactly. */
static uint16_t encode(float value, int32_t dtype) {
  const uint32_t bits = bits_of(value);
  if (dtype == FA_DTYPE_BF16) {
    return (uint16_t)(bits >> 16);
  }
  if (value == 0.0f) {
    return 0;
  }
  return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 112) << 10) | (bits >> 13 & 0x3ff));
}

static double decode(uint16_t half, int32_t dtype) {
  const uint32_t exponent = half >> 10 & 0x1f;
  const double fraction = half & 0x3ff;
  const double sign = half & 0x8000 ? -1.0 : 1.0;
  if (dtype == FA_DTYPE_BF16) {
    return float_of((uint32_t)half << 16);
  }
  if (exponent == 31) {
    return NAN;
  }
  return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024.0 + fraction, (int)exponent - 25));
}

static uint16_t *random_tensor(size_t count, int32_t dtype, uint32_t *state) {
  uint16_t *data = allocate(count * sizeof *data);
  size_t i;
  for (i = 0; i < count; ++i) {
    *state = *state * 1664525u + 1013904223u;
    data[i] = encode((float)((int32_t)(*state >> 24) - 128) / 128.0f, dtype);
  }
  return data;
}

static void *to_device(const void *data, size_t bytes) {
  void *device = NULL;
  CUDA(cudaMalloc(&device, bytes ? bytes : 1));
  CUDA(cudaMemcpy(device, data, bytes, cudaMemcpyHostToDevice));
  return device;
}

static fa_tensor packed(void *data, int32_t rows, int32_t heads, int32_t d) {
  return fa_make_tensor(data, (int64_t)rows * heads * d, (int64_t)heads * d, d);
}

static int32_t family; /* 0: the library chooses */

static fa_fwd_args arguments(const problem *p, void *q, void *k, void *v, void *o, float *lse) {
  fa_fwd_args args = FA_FWD_ARGS_INIT;
  args.flags = p->flags;
  args.dtype = p->dtype;
  args.batch = p->batch;
  args.seqlen_q = p->sq;
  args.seqlen_k = p->sk;
  args.heads_q = p->h;
  args.heads_k = p->hk;
  args.head_dim = p->d;
  args.window_left = p->left;
  args.softcap = p->softcap;
  args.num_splits = p->splits;
  args.family = family;
  args.q = fa_make_const_tensor(q, (int64_t)p->sq * p->h * p->d, (int64_t)p->h * p->d, p->d);
  args.k = packed(k, p->sk, p->hk, p->d);
  args.v = packed(v, p->sk, p->hk, p->d);
  args.o = packed(o, p->sq, p->h, p->d);
  args.lse = lse;
  return args;
}

static void print_problem(const problem *p) {
  printf("%s b%d sq%d sk%d h%d/%d d%d%s", p->dtype == FA_DTYPE_BF16 ? "bf16" : "fp16", p->batch, p->sq,
         p->sk, p->h, p->hk, p->d, p->flags & FA_FLAG_CAUSAL ? " causal" : "");
  if (p->flags & FA_FLAG_WINDOW_LEFT) printf(" left %d", p->left);
  if (p->softcap > 0) printf(" softcap %g", (double)p->softcap);
  if (p->splits != 1) printf(" splits %d", p->splits);
}

/* One row of attention in double precision. Returns lse. */
static double row_reference(const problem *p, const uint16_t *q, const uint16_t *k,
                            const uint16_t *v, int32_t b, int32_t s, int32_t n, double *weights,
                            double *out) {
  const int32_t kn = n / (p->h / p->hk), at = s + p->sk - p->sq;
  const uint16_t *query = q + (((int64_t)b * p->sq + s) * p->h + n) * p->d;
  double most = -INFINITY, sum = 0;
  int32_t j, e;
  for (j = 0; j < p->sk; ++j) {
    const uint16_t *key = k + (((int64_t)b * p->sk + j) * p->hk + kn) * p->d;
    double score = 0;
    for (e = 0; e < p->d; ++e) score += decode(query[e], p->dtype) * decode(key[e], p->dtype);
    score /= sqrt((double)p->d);
    if (p->softcap > 0) score = p->softcap * tanh(score / p->softcap);
    if ((p->flags & FA_FLAG_CAUSAL && j > at) || (p->flags & FA_FLAG_WINDOW_LEFT && j < at - p->left)) {
      score = -INFINITY;
    }
    weights[j] = score;
    if (score > most) most = score;
  }
  for (e = 0; e < p->d; ++e) out[e] = 0;
  for (j = 0; j < p->sk; ++j) {
    const uint16_t *value = v + (((int64_t)b * p->sk + j) * p->hk + kn) * p->d;
    const double weight = weights[j] == -INFINITY ? 0 : exp(weights[j] - most);
    sum += weight;
    for (e = 0; e < p->d; ++e) out[e] += weight * decode(value[e], p->dtype);
  }
  for (e = 0; e < p->d; ++e) out[e] = sum > 0 ? out[e] / sum : 0;
  return sum > 0 ? most + log(sum) : INFINITY;
}

/* 0 right, 1 wrong, 2 not in this library. */
static int check(const problem *p, cudaStream_t stream) {
  const size_t nq = (size_t)p->batch * p->sq * p->h * p->d;
  const size_t nk = (size_t)p->batch * p->sk * p->hk * p->d;
  const size_t rows = (size_t)p->batch * p->h * p->sq;
  /* 16-bit types of 8 and 11 significant bits: the weights and the result are rounded to them */
  const double bound = p->dtype == FA_DTYPE_BF16 ? 1e-2 : 1.25e-3;
  uint32_t state = 12345;
  uint16_t *q = random_tensor(nq, p->dtype, &state), *k = random_tensor(nk, p->dtype, &state);
  uint16_t *v = random_tensor(nk, p->dtype, &state), *o = allocate(nq * sizeof *o);
  float *lse = allocate(rows * sizeof *lse);
  double *weights = allocate(((size_t)p->sk + 1) * sizeof *weights);
  double *expected = allocate((size_t)p->d * sizeof *expected);
  double error = 0, lse_error = 0;
  uint64_t bytes = 0;
  int32_t splits = 0, b, s, n, e;
  void *dq, *dk, *dv, *d_o, *dlse, *workspace = NULL;
  fa_fwd_args args = arguments(p, NULL, NULL, NULL, NULL, NULL);
  int result = 2;

  print_problem(p);
  if (fa_supports(0, &args, NULL) != FA_STATUS_OK) {
    printf(": %s\n", fa_last_error());
    goto done;
  }
  memset(o, 0xff, nq * sizeof *o);
  memset(lse, 0xff, rows * sizeof *lse);
  dq = to_device(q, nq * sizeof *q);
  dk = to_device(k, nk * sizeof *k);
  dv = to_device(v, nk * sizeof *v);
  d_o = to_device(o, nq * sizeof *o);
  dlse = to_device(lse, rows * sizeof *lse);
  args = arguments(p, dq, dk, dv, d_o, dlse);
  args.stream = stream;
  result = 1;
  if (fa_fwd_workspace(&args, &bytes, &splits) != FA_STATUS_OK) {
    printf(": fa_fwd_workspace: %s\n", fa_last_error());
    goto done;
  }
  if (bytes > 0) {
    CUDA(cudaMalloc(&workspace, bytes));
    args.workspace = workspace;
    args.workspace_bytes = bytes;
  }
  if (fa_fwd(&args) != FA_STATUS_OK) {
    printf(": fa_fwd: %s\n", fa_last_error());
    goto done;
  }
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaMemcpy(o, d_o, nq * sizeof *o, cudaMemcpyDeviceToHost));
  CUDA(cudaMemcpy(lse, dlse, rows * sizeof *lse, cudaMemcpyDeviceToHost));
  CUDA(cudaFree(dq));
  CUDA(cudaFree(dk));
  CUDA(cudaFree(dv));
  CUDA(cudaFree(d_o));
  CUDA(cudaFree(dlse));
  CUDA(cudaFree(workspace));

  for (b = 0; b < p->batch; ++b) {
    for (n = 0; n < p->h; ++n) {
      for (s = 0; s < p->sq; ++s) {
        const double exact = row_reference(p, q, k, v, b, s, n, weights, expected);
        const double got = lse[((size_t)b * p->h + n) * p->sq + s];
        const uint16_t *row = o + (((size_t)b * p->sq + s) * p->h + n) * p->d;
        for (e = 0; e < p->d; ++e) {
          const double off = fabs(decode(row[e], p->dtype) - expected[e]);
          if (!(off <= error)) error = off; /* a NaN sticks */
        }
        if (!(isinf(exact) && isinf(got) && got > 0)) {
          const double off = fabs(got - exact);
          if (!(off <= lse_error)) lse_error = off;
        }
      }
    }
  }
  result = error <= bound && lse_error <= 1e-3 + 2e-3 * p->softcap ? 0 : 1;
  printf(": %d splits, error %.2e (bound %.2e), lse error %.1e: %s\n", splits, error, bound,
         lse_error, result == 0 ? "ok" : "WRONG");
done:
  free(q);
  free(k);
  free(v);
  free(o);
  free(lse);
  free(weights);
  free(expected);
  return result;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Median TFLOP/s of the kernel, and microseconds that a call takes on the host. */
static void measure(const problem *p, cudaStream_t stream) {
  enum { ROUNDS = 21, CALLS = 10 };
  const size_t nq = (size_t)p->batch * p->sq * p->h * p->d * 2;
  const size_t nk = (size_t)p->batch * p->sk * p->hk * p->d * 2;
  const size_t nlse = (size_t)p->batch * p->h * p->sq * 4;
  const double flop =
      4.0 * p->batch * p->h * p->sq * p->sk * p->d * (p->flags & FA_FLAG_CAUSAL ? 0.5 : 1.0);
  void *data[5];
  const size_t bytes[5] = {nq, nk, nk, nq, nlse};
  double times[ROUNDS], host = INFINITY;
  fa_fwd_args args = arguments(p, NULL, NULL, NULL, NULL, NULL);
  cudaEvent_t from, to;
  int round, i, j;
  if (fa_supports(0, &args, NULL) != FA_STATUS_OK) return;
  for (i = 0; i < 5; ++i) {
    CUDA(cudaMalloc(&data[i], bytes[i]));
    CUDA(cudaMemset(data[i], 0x3c, bytes[i]));
  }
  CUDA(cudaDeviceSynchronize());
  args = arguments(p, data[0], data[1], data[2], data[3], data[4]);
  args.stream = stream;
  CUDA(cudaEventCreate(&from));
  CUDA(cudaEventCreate(&to));
  for (round = 0; round < ROUNDS; ++round) {
    float milliseconds = 0;
    double begin;
    CUDA(cudaEventRecord(from, stream));
    begin = seconds();
    for (i = 0; i < CALLS; ++i) {
      if (fa_fwd(&args) != FA_STATUS_OK) {
        fprintf(stderr, "fa_fwd: %s\n", fa_last_error());
        exit(1);
      }
    }
    host = fmin(host, (seconds() - begin) / CALLS);
    CUDA(cudaEventRecord(to, stream));
    CUDA(cudaEventSynchronize(to));
    CUDA(cudaEventElapsedTime(&milliseconds, from, to));
    for (j = round; j > 0 && times[j - 1] > milliseconds; --j) times[j] = times[j - 1];
    times[j] = milliseconds;
  }
  print_problem(p);
  printf(": %.1f TFLOP/s, %.1f us a call on the GPU, %.2f us on the host\n",
         flop * CALLS / times[ROUNDS / 2] * 1e-9, times[ROUNDS / 2] * 1e3 / CALLS, host * 1e6);
  CUDA(cudaEventDestroy(from));
  CUDA(cudaEventDestroy(to));
  for (i = 0; i < 5; ++i) CUDA(cudaFree(data[i]));
}

int main(int count, char **words) {
  static const problem checked[] = {
      {FA_DTYPE_BF16, 2, 128, 128, 2, 2, 64, 0, 0, 0, 1},
      {FA_DTYPE_BF16, 2, 113, 203, 4, 2, 64, FA_FLAG_CAUSAL, 0, 0, 1},
      {FA_DTYPE_BF16, 1, 203, 113, 2, 2, 64, FA_FLAG_CAUSAL, 0, 0, 1},
      {FA_DTYPE_BF16, 3, 1, 300, 6, 2, 64, 0, 0, 0, 1},
      {FA_DTYPE_BF16, 2, 33, 0, 3, 3, 64, 0, 0, 0, 1},
      {FA_DTYPE_FP16, 2, 65, 129, 3, 1, 40, FA_FLAG_CAUSAL, 0, 0, 1},
      {FA_DTYPE_FP16, 1, 100, 160, 2, 2, 128, FA_FLAG_CAUSAL | FA_FLAG_WINDOW_LEFT, 30, 0, 1},
      {FA_DTYPE_BF16, 1, 64, 100, 2, 2, 256, 0, 0, 5.0f, 1},
      {FA_DTYPE_BF16, 1, 1, 1500, 3, 3, 128, 0, 0, 0, 0},
      {FA_DTYPE_FP16, 1, 5, 1500, 3, 3, 64, FA_FLAG_CAUSAL, 0, 0, 3},
  };
  static const problem timed[] = {
      {FA_DTYPE_BF16, 4, 4096, 4096, 16, 16, 64, 0, 0, 0, 1},
      {FA_DTYPE_BF16, 4, 4096, 4096, 16, 16, 64, FA_FLAG_CAUSAL, 0, 0, 1},
      {FA_DTYPE_BF16, 4, 4096, 4096, 16, 16, 128, 0, 0, 0, 1},
      {FA_DTYPE_BF16, 1, 1, 128, 1, 1, 64, 0, 0, 0, 1},
  };
  const int small = count > 1 && strcmp(words[1], "--small") == 0;
  const char *named = count > 1 ? words[count - 1] : "";
  int wrong = 0, right = 0;
  size_t i;
  fa_info info;
  cudaStream_t stream;
  family = strcmp(named, "fa2") == 0 ? FA_FAMILY_FA2 : strcmp(named, "fa4") == 0 ? FA_FAMILY_FA4 : 0;
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  if (fa_build_info(&info) != FA_STATUS_OK) {
    fprintf(stderr, "fa_build_info: %s\n", fa_last_error());
    return 1;
  }
  printf("%s %s, flashdepot %s, CUDA %d, %d units\n", info.families->name, info.families->upstream,
         info.flashdepot, info.cuda, info.families->units_count);
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (i = 0; i < sizeof checked / sizeof checked[0]; ++i) {
    const int result = check(&checked[i], stream);
    right += result == 0;
    wrong += result == 1;
  }
  for (i = 0; !small && i < sizeof timed / sizeof timed[0]; ++i) measure(&timed[i], stream);
  CUDA(cudaStreamDestroy(stream));
  printf("%d right, %d wrong\n", right, wrong);
  return wrong > 0 ? 1 : right > 0 ? 0 : 2;
}
