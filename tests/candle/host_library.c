/* libflashattention and the CUDA runtime on the host, as flash_attention.h words them: plain loops in
 * double precision over memory of malloc. With it, programs for a GPU run without one. Built with
 * -DWRONG it masks one key too many. */
#include <flash_attention.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifdef WRONG
enum { EXTRA = 1 };
#else
enum { EXTRA = 0 };
#endif

static float bf16_of(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float fp16_of(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const double magnitude = ldexp((half & 0x3ff) + (exponent ? 1024 : 0), (exponent ? exponent : 1) - 25);
  return (float)(half & 0x8000 ? -magnitude : magnitude);
}

/* A table, because these loops are most of what the tests of a program do. */
static float values[2][1 << 16];

static void fill_values(void) {
  static int filled;
  uint32_t half;
  for (half = 0; half < 1 << 16 && !filled; ++half) {
    values[0][half] = fp16_of((uint16_t)half);
    values[1][half] = bf16_of((uint16_t)half);
  }
  filled = 1;
}

static double decode(uint16_t half, int32_t dtype) { return values[dtype == FA_DTYPE_BF16][half]; }

static uint16_t encode(double number, int32_t dtype) {
  const float value = (float)number;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (dtype == FA_DTYPE_FP16) {
    const uint32_t sign = bits >> 16 & 0x8000;
    int exponent = 0;
    if (number == 0) {
      return (uint16_t)sign;
    }
    frexp(number, &exponent);
    exponent = exponent < -13 ? -13 : exponent; /* below that the exponent is fixed */
    return (uint16_t)(sign + ((uint32_t)(exponent + 13) << 10) +
                      (uint32_t)nearbyint(ldexp(fabs(number), 11 - exponent)));
  }
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

typedef struct span {
  int64_t start, length;
} span;

static span queries_of(const fa_fwd_args *a, int32_t i) {
  const span packed = {a->cu_seqlens_q ? a->cu_seqlens_q[i] : 0,
                       a->cu_seqlens_q ? a->cu_seqlens_q[i + 1] - a->cu_seqlens_q[i] : a->seqlen_q};
  return packed;
}

static span keys_of(const fa_fwd_args *a, int32_t i) {
  const span packed = {a->cu_seqlens_k ? a->cu_seqlens_k[i] : 0,
                       a->cu_seqlens_k ? a->cu_seqlens_k[i + 1] - a->cu_seqlens_k[i] : a->seqlen_k};
  return packed;
}

static const uint16_t *key(const fa_fwd_args *a, const fa_tensor *t, int32_t i, int64_t j,
                           int64_t head) {
  const uint16_t *data = t->data;
  if (a->block_table != NULL) {
    const int64_t page = a->block_table[i * a->block_table_stride + j / a->page_size];
    return data + page * t->batch_stride + j % a->page_size * t->row_stride + head * t->head_stride;
  }
  return data + (a->cu_seqlens_k ? 0 : i) * t->batch_stride + (keys_of(a, i).start + j) * t->row_stride +
         head * t->head_stride;
}

static int masked(const fa_fwd_args *a, int64_t at, int64_t j) {
  return (a->flags & FA_FLAG_CAUSAL && j > at - EXTRA) ||
         (!(a->flags & FA_FLAG_CAUSAL) &&
          ((a->flags & FA_FLAG_WINDOW_RIGHT && j > at + a->window_right - EXTRA) ||
           (a->flags & FA_FLAG_WINDOW_LEFT && j < at - a->window_left)));
}

static void row(const fa_fwd_args *a, int32_t i, int64_t s, int32_t n, double *scores) {
  const span mine = queries_of(a, i), keys = keys_of(a, i);
  const int64_t in_batch = a->cu_seqlens_q ? 0 : i, at = s + keys.length - mine.length;
  const int32_t kn = n / (a->heads_q / a->heads_k);
  const fa_const_tensor *q = &a->q;
  const fa_tensor *o = &a->o;
  const uint16_t *query = (const uint16_t *)q->data + in_batch * q->batch_stride +
                          (mine.start + s) * q->row_stride + n * q->head_stride;
  uint16_t *out = (uint16_t *)o->data + in_batch * o->batch_stride + (mine.start + s) * o->row_stride +
                  n * o->head_stride;
  double most = -INFINITY, sum = 0;
  int64_t j;
  int32_t e;
  for (j = 0; j < keys.length; ++j) {
    double score = 0;
    for (e = 0; e < a->head_dim; ++e) {
      score += decode(query[e], a->dtype) * decode(key(a, &a->k, i, j, kn)[e], a->dtype);
    }
    score *= a->scale;
    if (a->softcap > 0) score = a->softcap * tanh(score / a->softcap);
    if (a->alibi_slopes) {
      score -= a->alibi_slopes[i * a->alibi_batch_stride + n] * (double)llabs(at - j);
    }
    scores[j] = masked(a, at, j) ? -INFINITY : score;
    most = fmax(most, scores[j]);
  }
  for (j = 0; j < keys.length; ++j) {
    scores[j] = most == -INFINITY ? 0 : exp(scores[j] - most);
    sum += scores[j];
  }
  for (e = 0; e < a->head_dim; ++e) {
    double value = 0;
    for (j = 0; j < keys.length; ++j) value += scores[j] * decode(key(a, &a->v, i, j, kn)[e], a->dtype);
    out[e] = encode(sum > 0 ? value / sum : 0, a->dtype);
  }
  a->lse[a->cu_seqlens_q ? n * a->total_q + mine.start + s
                         : ((int64_t)i * a->heads_q + n) * a->seqlen_q + s] =
      sum > 0 ? (float)(most + log(sum)) : INFINITY;
}

fa_status fa_fwd(const fa_fwd_args *a) {
  int32_t i, n;
  int64_t s;
  fill_values();
  for (i = 0; i < a->batch; ++i) {
    double *scores = calloc((size_t)keys_of(a, i).length + 1, sizeof *scores);
    for (s = 0; s < queries_of(a, i).length; ++s) {
      for (n = 0; n < a->heads_q; ++n) row(a, i, s, n, scores);
    }
    free(scores);
  }
  return FA_STATUS_OK;
}

fa_status fa_supports(int32_t device, const fa_fwd_args *args, fa_choice *choice) {
  (void)device;
  (void)args;
  (void)choice;
  return FA_STATUS_OK;
}

fa_status fa_fwd_workspace(const fa_fwd_args *args, uint64_t *bytes, int32_t *splits) {
  (void)splits;
  *bytes = (uint64_t)args->batch * 64;
  return FA_STATUS_OK;
}

const char *fa_last_error(void) { return ""; }
const char *fa_status_string(fa_status status) {
  return status == FA_STATUS_UNSUPPORTED ? "FA_STATUS_UNSUPPORTED" : "?";
}

int cudaGetDevice(int *device) {
  *device = 0;
  return 0;
}
int cudaDeviceSynchronize(void) { return 0; }
int cudaMallocAsync(void **data, size_t bytes, void *stream) {
  (void)stream;
  *data = malloc(bytes);
  return *data == NULL;
}
int cudaFreeAsync(void *data, void *stream) {
  (void)stream;
  free(data);
  return 0;
}
int cudaMemsetAsync(void *data, int value, size_t bytes, void *stream) {
  (void)stream;
  memset(data, value, bytes);
  return 0;
}
const char *cudaGetErrorString(int code) {
  (void)code;
  return "";
}
