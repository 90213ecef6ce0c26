/* run_mha from C, with FORM arguments (35, 37 or 45; 41: run_mha_v3), against attention in double precision on the CPU.
 * Device memory comes from the driver, which is loaded at run time: no CUDA toolkit is needed.
 *
 * Problems that the library was not built for are named and left out.
 * Exit status: 0 all right, 1 a wrong result, 2 nothing could run. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flash_attention_candle.h"

enum { SEQUENCES = 3, MOST_PAGES = 16, UNSUPPORTED = 2 };
#define NEW (FORM >= 41) /* has a stream, and says how many rows a packed batch has */
enum { DENSE, PACKED, PAGED };

typedef struct problem {
  int kind, bf16, h, hk, d;
  int sq[SEQUENCES], sk[SEQUENCES]; /* dense: those of the first, for all */
  int causal, left, right;          /* -1: unbounded */
  float softcap;
  int alibi;
  int page; /* rows of one, for PAGED */
} problem;

#if FORM == 41
#define run_mha run_mha_v3
#endif
void run_mha(void *q, void *k, void *v, void *o, void *lse, void *alibi,
#if FORM == 41
             int32_t *semaphore,
#endif
             int32_t *cu_q, int32_t *cu_k,
             uint32_t q_batch, uint32_t k_batch, uint32_t v_batch, uint32_t o_batch, uint32_t alibi_batch,
             uint32_t q_row, uint32_t k_row, uint32_t v_row, uint32_t o_row, uint32_t q_head,
             uint32_t k_head, uint32_t v_head, uint32_t o_head, uint32_t b, uint32_t h, uint32_t h_k,
             uint32_t d, uint32_t d_rounded, float scale, uint32_t sq, uint32_t sk, uint32_t sq_rounded,
             uint32_t sk_rounded,
#if FORM == 45
             uint32_t total_q,
#endif
             int bf16, int causal,
#if FORM >= 37
             int unpadded_lse,
#endif
#if FORM == 41
             int gqa_packing,
#endif
             int left, int right
#if FORM == 37 || FORM == 45
             ,
             float softcap
#endif
#if FORM == 41
             ,
             uint32_t total_q, uint32_t total_k, void *stream
#elif FORM == 45
             ,
             int32_t *table, uint32_t table_stride, int page_size, int32_t *ranges, uint32_t ranges_stride,
             int ranges_count, void *stream
#endif
);

/* The few driver functions that are needed; a CUdeviceptr is an address. */
static int (*driver_allocate)(uint64_t *, size_t);
static int (*driver_free)(uint64_t);
static int (*driver_to_device)(uint64_t, const void *, size_t);
static int (*driver_from_device)(void *, uint64_t, size_t);
static int (*driver_wait)(void);
static void *stream;

static void need(int code, const char *what) {
  if (code != 0) {
    fprintf(stderr, "%s: error %d of the driver\n", what, code);
    exit(1);
  }
}

static void *symbol(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "libcuda.so.1 has no %s\n", name);
    exit(2);
  }
  return found;
}

static void open_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  void *context = NULL;
  if (library == NULL) {
    fprintf(stderr, "no driver: %s\n", dlerror());
    exit(2);
  }
  driver_allocate = (int (*)(uint64_t *, size_t))symbol(library, "cuMemAlloc_v2");
  driver_free = (int (*)(uint64_t))symbol(library, "cuMemFree_v2");
  driver_to_device = (int (*)(uint64_t, const void *, size_t))symbol(library, "cuMemcpyHtoD_v2");
  driver_from_device = (int (*)(void *, uint64_t, size_t))symbol(library, "cuMemcpyDtoH_v2");
  driver_wait = (int (*)(void))symbol(library, "cuCtxSynchronize");
  need(((int (*)(unsigned))symbol(library, "cuInit"))(0), "cuInit");
  need(((int (*)(void **, int))symbol(library, "cuDevicePrimaryCtxRetain"))(&context, 0), "cuDevicePrimaryCtxRetain");
  need(((int (*)(void *))symbol(library, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
  /* 1: a stream that does not wait for the default one, as candle's own streams are. */
  need(((int (*)(void **, unsigned))symbol(library, "cuStreamCreate"))(&stream, 1), "cuStreamCreate");
}

static void *on_device(const void *data, size_t bytes) {
  uint64_t address = 0;
  need(driver_allocate(&address, bytes), "cuMemAlloc");
  need(driver_to_device(address, data, bytes), "cuMemcpyHtoD");
  return (void *)(uintptr_t)address;
}

static void *allocate(size_t bytes) {
  void *data = calloc(bytes ? bytes : 1, 1);
  if (data == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  return data;
}

/* Multiples of 1/128 between -1 and 1, which both types hold exactly. */
static uint16_t encode(float value, int bf16) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (bf16 || value == 0.0f) {
    return (uint16_t)(bits >> 16);
  }
  return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 112) << 10) | (bits >> 13 & 0x3ff));
}

static double decode_slowly(uint16_t half, int bf16) {
  const int exponent = half >> 10 & 0x1f;
  const double fraction = half & 0x3ff, sign = half & 0x8000 ? -1.0 : 1.0;
  if (bf16) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  if (exponent == 31) {
    return NAN;
  }
  return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024.0 + fraction, exponent - 25));
}

static double values[2][1 << 16];

static void fill_values(void) {
  uint32_t half;
  for (half = 0; half < 1 << 16; ++half) {
    values[0][half] = decode_slowly((uint16_t)half, 0);
    values[1][half] = decode_slowly((uint16_t)half, 1);
  }
}

static double decode(uint16_t half, int bf16) { return values[bf16][half]; }

static uint16_t *random_values(size_t count, int bf16, uint32_t *state) {
  uint16_t *data = allocate(count * sizeof *data);
  size_t i;
  for (i = 0; i < count; ++i) {
    *state = *state * 1664525u + 1013904223u;
    data[i] = encode((float)((int32_t)(*state >> 24) - 128) / 128.0f, bf16);
  }
  return data;
}

/* Where things are: rows of the first query and key of each sequence, and in all. */
typedef struct layout {
  int32_t q_start[SEQUENCES + 1], k_start[SEQUENCES + 1];
  int sq[SEQUENCES], sk[SEQUENCES], longest_q, longest_k;
  int32_t table[SEQUENCES][MOST_PAGES]; /* pages, last ones first */
  size_t key_rows;             /* that the tensor has */
} layout;

static layout lay_out(const problem *p) {
  layout l;
  int i, j, pages = 0;
  memset(&l, 0, sizeof l);
  for (i = 0; i < SEQUENCES; ++i) {
    l.sq[i] = p->sq[p->kind == DENSE ? 0 : i];
    l.sk[i] = p->sk[p->kind == DENSE ? 0 : i];
    l.q_start[i + 1] = l.q_start[i] + l.sq[i];
    l.k_start[i + 1] = l.k_start[i] + l.sk[i];
    l.longest_q = l.sq[i] > l.longest_q ? l.sq[i] : l.longest_q;
    l.longest_k = l.sk[i] > l.longest_k ? l.sk[i] : l.longest_k;
  }
  for (i = SEQUENCES - 1; i >= 0 && p->kind == PAGED; --i) {
    for (j = (l.longest_k + p->page - 1) / p->page - 1; j >= 0; --j) l.table[i][j] = pages++;
  }
  l.key_rows = p->kind == PAGED ? (size_t)(pages * p->page) : (size_t)l.k_start[SEQUENCES];
  return l;
}

static size_t key_row(const problem *p, const layout *l, int i, int j) {
  return p->kind == PAGED ? (size_t)(l->table[i][j / p->page] * p->page + j % p->page)
                          : (size_t)(l->k_start[i] + j);
}

static float slope(int head) { return 0.5f / (float)(head + 1); }

/* One row of attention; returns its lse. */
static double exact_row(const problem *p, const layout *l, const uint16_t *q, const uint16_t *k,
                        const uint16_t *v, int i, int s, int n, double *out) {
  const int sk = l->sk[i], at = s + sk - l->sq[i], kn = n / (p->h / p->hk);
  const uint16_t *query = q + ((size_t)(l->q_start[i] + s) * (size_t)p->h + (size_t)n) * (size_t)p->d;
  double *weights = allocate((size_t)sk * sizeof *weights);
  double most = -INFINITY, sum = 0;
  int j, e;
  memset(out, 0, (size_t)p->d * sizeof *out);
  for (j = 0; j < sk; ++j) {
    const uint16_t *key = k + (key_row(p, l, i, j) * (size_t)p->hk + (size_t)kn) * (size_t)p->d;
    double score = 0;
    for (e = 0; e < p->d; ++e) score += decode(query[e], p->bf16) * decode(key[e], p->bf16);
    score /= sqrt((double)p->d);
    if (p->softcap > 0) score = p->softcap * tanh(score / p->softcap);
    if (p->alibi) score -= slope(n) * abs(at - j);
    if ((p->causal && j > at) || (p->left >= 0 && j < at - p->left) ||
        (p->right >= 0 && j > at + p->right)) {
      score = -INFINITY;
    }
    weights[j] = score;
    most = score > most ? score : most;
  }
  for (j = 0; j < sk; ++j) {
    const uint16_t *value = v + (key_row(p, l, i, j) * (size_t)p->hk + (size_t)kn) * (size_t)p->d;
    const double weight = weights[j] == -INFINITY ? 0 : exp(weights[j] - most);
    sum += weight;
    for (e = 0; e < p->d; ++e) out[e] += weight * decode(value[e], p->bf16);
  }
  for (e = 0; e < p->d; ++e) out[e] = sum > 0 ? out[e] / sum : 0;
  free(weights);
  return sum > 0 ? most + log(sum) : INFINITY;
}

/* As candle sends them: is_causal for (none, 0), and the other end of a window at the longest sequence. */
static void call(const problem *p, const layout *l, void *const data[5], void *alibi, void *cu_q, void *cu_k,
                 void *table) {
  const int packed = p->kind != DENSE;
  const uint32_t d = (uint32_t)p->d, h = (uint32_t)p->h, hk = (uint32_t)p->hk;
  const uint32_t sq = (uint32_t)l->longest_q, sk = (uint32_t)l->longest_k;
  const uint32_t q_batch = packed ? 0 : sq * h * d;
  const uint32_t k_batch = p->kind == PAGED ? (uint32_t)p->page * hk * d : packed ? 0 : sk * hk * d;
  int left = p->left, right = p->causal ? 0 : p->right;
  if (left < 0 && right >= 0) left = l->longest_k;
  if (left >= 0 && right < 0) right = l->longest_k;
  run_mha(data[0], data[1], data[2], data[3], data[4], alibi,
#if FORM == 41
          NULL,
#endif
          packed ? cu_q : NULL, packed ? cu_k : NULL,
          q_batch, k_batch, k_batch, q_batch, 0, h * d, hk * d, hk * d, h * d, d, d, d, d, SEQUENCES, h, hk,
          d, (d + 31) / 32 * 32, 1.0f / sqrtf((float)p->d), sq, sk, (sq + 127) / 128 * 128,
          (sk + 127) / 128 * 128,
#if FORM == 45
          (uint32_t)l->q_start[SEQUENCES],
#endif
          p->bf16, p->causal,
#if FORM >= 37
          packed,
#endif
#if FORM == 41
          1,
#endif
          left, right
#if FORM == 37 || FORM == 45
          ,
          p->softcap
#endif
#if FORM == 41
          ,
          packed ? (uint32_t)l->q_start[SEQUENCES] : 0, packed ? (uint32_t)l->k_start[SEQUENCES] : 0, stream
#elif FORM == 45
          ,
          p->kind == PAGED ? table : NULL, MOST_PAGES, p->kind == PAGED ? p->page : packed ? 0 : -1, NULL, 0, 0,
          stream
#endif
  );
#if FORM != 45
  (void)table;
#endif
}

static void name(const problem *p) {
  static const char *const kinds[] = {"dense", "packed", "paged"};
  printf("%d %s %s h%d/%d d%d sq%d sk%d%s", FORM, kinds[p->kind], p->bf16 ? "bf16" : "fp16", p->h, p->hk, p->d,
         p->sq[0], p->sk[0], p->causal ? " causal" : "");
  if (p->left >= 0 || p->right >= 0) printf(" window %d,%d", p->left, p->right);
  if (p->softcap > 0) printf(" softcap %g", (double)p->softcap);
  if (p->alibi) printf(" alibi");
  if (p->kind == PAGED) printf(" pages of %d", p->page);
}

/* 0 right, 1 wrong, 2 not in this library. */
static int check(const problem *p) {
  const layout l = lay_out(p);
  const size_t rows = (size_t)l.q_start[SEQUENCES], query_count = rows * (size_t)(p->h * p->d);
  const size_t key_count = l.key_rows * (size_t)(p->hk * p->d), lse_count = rows * (size_t)p->h;
  /* Weights and results are rounded to 8 or 11 significant bits. */
  const double bound = p->bf16 ? 1e-2 : 1.25e-3;
  /* The kernels' causal lse has another constant in each row of ALiBi; see flash_attention.h. */
  const int lse_is_exact = (p->kind == DENSE || NEW) && !(p->alibi && p->causal);
  uint32_t state = 4711;
  uint16_t *q = random_values(query_count, p->bf16, &state), *k = random_values(key_count, p->bf16, &state);
  uint16_t *v = random_values(key_count, p->bf16, &state), *o = allocate(query_count * 2);
  float *lse = allocate(lse_count * sizeof *lse), slopes[64];
  double *expected = allocate((size_t)p->d * sizeof *expected), error = 0, lse_error = 0;
  void *data[5], *lists[4];
  int i, s, n, e, status;
  for (n = 0; n < p->h; ++n) slopes[n] = slope(n);
  data[0] = on_device(q, query_count * 2);
  data[1] = on_device(k, key_count * 2);
  data[2] = on_device(v, key_count * 2);
  data[3] = on_device(o, query_count * 2);
  data[4] = on_device(lse, lse_count * sizeof *lse);
  lists[0] = on_device(slopes, sizeof slopes);
  lists[1] = on_device(l.q_start, sizeof l.q_start);
  lists[2] = on_device(l.k_start, sizeof l.k_start);
  lists[3] = on_device(l.table, sizeof l.table);
  call(p, &l, data, p->alibi ? lists[0] : NULL, lists[1], lists[2], lists[3]);
  status = fa_candle_last_status();
  need(driver_wait(), "cuCtxSynchronize");
  need(driver_from_device(o, (uint64_t)(uintptr_t)data[3], query_count * 2), "cuMemcpyDtoH");
  need(driver_from_device(lse, (uint64_t)(uintptr_t)data[4], lse_count * sizeof *lse), "cuMemcpyDtoH");
  for (i = 0; i < 5; ++i) need(driver_free((uint64_t)(uintptr_t)data[i]), "cuMemFree");
  for (i = 0; i < 4; ++i) need(driver_free((uint64_t)(uintptr_t)lists[i]), "cuMemFree");
  name(p);
  if (status != 0) {
    size_t numbers = 0, at;
    for (at = 0; at < query_count; ++at) numbers += !isnan(decode(o[at], p->bf16));
    printf(": %s; %zu numbers left in the output\n", fa_candle_last_error(), numbers);
    return status == UNSUPPORTED && numbers == 0 ? 2 : 1;
  }
  for (i = 0; i < SEQUENCES; ++i) {
    for (s = 0; s < l.sq[i]; ++s) {
      for (n = 0; n < p->h; ++n) {
        const double exact = exact_row(p, &l, q, k, v, i, s, n, expected);
        const size_t row = (size_t)(l.q_start[i] + s);
        const size_t at = p->kind == DENSE ? ((size_t)i * (size_t)p->h + (size_t)n) * (size_t)l.sq[0] + (size_t)s
                                           : (size_t)n * rows + row;
        for (e = 0; e < p->d; ++e) {
          const double off = fabs(decode(o[(row * (size_t)p->h + (size_t)n) * (size_t)p->d + (size_t)e], p->bf16) -
                                  expected[e]);
          error = off <= error ? error : off; /* a NaN sticks */
        }
        if (lse_is_exact && !(isinf(exact) && isinf(lse[at]) && lse[at] > 0)) {
          const double off = fabs(lse[at] - exact);
          lse_error = off <= lse_error ? lse_error : off;
        }
      }
    }
  }
  free(q);
  free(k);
  free(v);
  free(o);
  free(lse);
  free(expected);
  i = error <= bound && lse_error <= 1e-3 + 2e-3 * p->softcap ? 0 : 1;
  printf(": error %.2e (bound %.2e), lse error %.1e: %s\n", error, bound, lse_error, i == 0 ? "ok" : "WRONG");
  return i;
}

/* Whether a dense problem of the same kind of kernel runs. A refused packed one, whose output has no
 * known length in the shorter lists, would end this program. Not few rows: kernels for decoding run those. */
static int dense_runs(const problem *p) {
  problem dense = *p;
  dense.kind = DENSE;
  dense.sq[0] = 70;
  dense.sk[0] = 70;
  return check(&dense) == 0;
}

int main(void) {
  static const problem problems[] = {
      {DENSE, 1, 4, 4, 64, {100}, {100}, 0, -1, -1, 0, 0, 0},
      {DENSE, 1, 4, 2, 64, {113}, {203}, 1, -1, -1, 0, 0, 0},
      {DENSE, 1, 6, 2, 64, {1}, {300}, 0, -1, -1, 0, 0, 0},
      {DENSE, 1, 6, 2, 64, {1}, {300}, 1, -1, -1, 0, 0, 0},
      {DENSE, 0, 4, 1, 96, {70}, {129}, 1, -1, -1, 0, 0, 0},
      {DENSE, 0, 4, 4, 128, {129}, {200}, 0, -1, -1, 0, 0, 0},
      {DENSE, 1, 2, 2, 160, {65}, {130}, 1, -1, -1, 0, 0, 0},
      {DENSE, 1, 2, 2, 224, {65}, {130}, 0, -1, -1, 0, 0, 0},
      {DENSE, 0, 2, 2, 40, {65}, {130}, 0, -1, -1, 0, 0, 0},
      {DENSE, 1, 4, 2, 128, {100}, {160}, 0, 30, 0, 0, 0, 0},
      {DENSE, 0, 4, 2, 64, {100}, {160}, 0, 20, 10, 0, 0, 0},
      {DENSE, 1, 4, 2, 64, {100}, {160}, 0, 30, -1, 0, 0, 0},
      {DENSE, 0, 4, 4, 64, {50}, {120}, 0, -1, -1, 0, 1, 0},
      {DENSE, 1, 4, 2, 128, {50}, {120}, 1, -1, -1, 0, 1, 0},
      {PACKED, 1, 4, 2, 64, {37, 100, 1}, {64, 150, 300}, 1, -1, -1, 0, 0, 0},
      {PACKED, 0, 4, 4, 128, {129, 3, 64}, {200, 3, 64}, 0, -1, -1, 0, 0, 0},
      {PACKED, 1, 6, 2, 96, {1, 1, 1}, {17, 300, 129}, 1, -1, -1, 0, 0, 0},
      {PACKED, 0, 4, 2, 64, {60, 100, 9}, {60, 100, 9}, 0, 15, 0, 0, 0, 0},
#if FORM == 37 || FORM == 45
      {DENSE, 1, 4, 2, 64, {100}, {160}, 1, -1, -1, 5.0f, 0, 0},
      {PACKED, 0, 4, 2, 128, {60, 100, 9}, {90, 100, 9}, 0, -1, -1, 5.0f, 0, 0},
#endif
#if FORM == 45
      {PAGED, 1, 4, 2, 64, {1, 40, 100}, {300, 512, 257}, 1, -1, -1, 0, 0, 256},
      {PAGED, 0, 6, 2, 128, {1, 1, 1}, {256, 3, 500}, 1, -1, -1, 0, 0, 256},
      {PAGED, 1, 2, 2, 96, {30, 2, 5}, {300, 40, 5}, 0, -1, -1, 0, 0, 256},
      {PAGED, 1, 4, 2, 64, {1, 40, 100}, {300, 512, 257}, 1, -1, -1, 0, 0, 32},
      {PAGED, 1, 4, 2, 64, {1, 1, 1}, {100, 3, 230}, 0, -1, -1, 0, 0, 16},
      {PAGED, 0, 4, 2, 64, {7, 1, 30}, {100, 33, 96}, 1, -1, -1, 0, 0, 48},
#endif
  };
  static const problem refused = {DENSE, 1, 2, 2, 512, {20}, {30}, 0, -1, -1, 0, 0, 0};
  int wrong = 0, right = 0;
  size_t i;
  open_driver();
  fill_values();
  for (i = 0; i < sizeof problems / sizeof problems[0]; ++i) {
    if (problems[i].kind == DENSE || NEW || dense_runs(&problems[i])) {
      const int result = check(&problems[i]);
      right += result == 0;
      wrong += result == 1;
    }
  }
  wrong += check(&refused) != 2;
  printf("%d right, %d wrong\n", right, wrong);
  return wrong > 0 ? 1 : right > 0 ? 0 : 2;
}
