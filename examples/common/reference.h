/* Inputs, and what attention of them should be, in double precision on the CPU. C99 and C++11. */
#ifndef EXAMPLES_REFERENCE_H
#define EXAMPLES_REFERENCE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A dense problem in the layout (batch, seqlen, heads, head_dim), contiguous. */
typedef struct problem {
  int batch, seqlen_q, seqlen_k, heads_q, heads_k, head_dim, causal;
} problem;

static inline size_t count_q(const problem *p) {
  return (size_t)p->batch * (size_t)p->seqlen_q * (size_t)p->heads_q * (size_t)p->head_dim;
}
static inline size_t count_k(const problem *p) {
  return (size_t)p->batch * (size_t)p->seqlen_k * (size_t)p->heads_k * (size_t)p->head_dim;
}
static inline size_t count_lse(const problem *p) {
  return (size_t)p->batch * (size_t)p->heads_q * (size_t)p->seqlen_q;
}

/* Of two matrix products, each of one multiplication and one addition; with the causal mask about half of it. */
static inline double floating_point_operations(const problem *p) {
  double all = 4.0 * p->batch * p->heads_q * p->seqlen_q * (double)p->seqlen_k * p->head_dim;
  return p->causal ? all / 2 : all;
}

static inline double from_bf16(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

static inline uint16_t to_bf16(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

/* Numbers of mean 0 and variance 1, nearly normal: the sum of four that are uniform. The same ones for a seed. */
static inline void fill(uint16_t *values, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; ++i) {
    uint64_t word = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xd1b54a32d192ed03); /* splitmix64 */
    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    word ^= word >> 31;
    double sum = 0;
    for (int part = 0; part < 4; ++part) sum += (double)(word >> (16 * part) & 0xffff) / 65536.0;
    values[i] = to_bf16((float)((sum - 2.0) * sqrt(3.0)));
  }
}

/* How far a result is from the reference. `of_bound` is the largest error as a part of what rounding can explain. */
typedef struct difference {
  double largest, of_bound, of_lse;
  int rows;
} difference;

/* The larger of two errors, and a NaN rather than either: it counts as wrong. */
static inline double worse(double a, double b) { return isnan(a) || a > b ? a : b; }

/* Compare the outputs of some query rows, in every batch and head, the first and the last among them.
 *
 * The kernel rounds two things to bfloat16, each by at most 2^-8 of its size: every weight before it meets its value
 * vector, and the sum. So an output may be off by 2^-8 (sum(weight * |value|) + |output|), and a little for float. */
static inline difference compare(const problem *p, const uint16_t *q, const uint16_t *k, const uint16_t *v,
                                 const uint16_t *o, const float *lse, int step) {
  difference found = {0, 0, 0, 0};
  double *weights = (double *)malloc((size_t)p->seqlen_k * sizeof(double));
  if (!weights) abort();
  const double scale = 1 / sqrt((double)p->head_dim), unit = 1.0 / 256;
  const int dim = p->head_dim, group = p->heads_q / p->heads_k;
  for (int row = 0; row < p->batch * p->heads_q * p->seqlen_q; ++row) {
    const int i = row % p->seqlen_q, head = row / p->seqlen_q % p->heads_q, batch = row / p->seqlen_q / p->heads_q;
    if (i % step != 0 && i != p->seqlen_q - 1) continue;
    const size_t at_q = (((size_t)batch * p->seqlen_q + i) * p->heads_q + head) * dim;
    const int visible = p->causal ? i + p->seqlen_k - p->seqlen_q + 1 : p->seqlen_k;
    double largest = -INFINITY, sum = 0;
    for (int j = 0; j < visible; ++j) {
      const size_t at_k = (((size_t)batch * p->seqlen_k + j) * p->heads_k + head / group) * dim;
      double score = 0;
      for (int e = 0; e < dim; ++e) score += from_bf16(q[at_q + e]) * from_bf16(k[at_k + e]);
      weights[j] = score * scale;
      largest = fmax(largest, weights[j]);
    }
    for (int j = 0; j < visible; ++j) sum += weights[j] = exp(weights[j] - largest);
    for (int e = 0; e < dim; ++e) {
      double expected = 0, size = 0;
      for (int j = 0; j < visible; ++j) {
        const size_t at_v = (((size_t)batch * p->seqlen_k + j) * p->heads_k + head / group) * dim;
        const double term = weights[j] / sum * from_bf16(v[at_v + e]);
        expected += term;
        size += fabs(term);
      }
      const double error = fabs(from_bf16(o[at_q + e]) - expected);
      const double part = error / (unit * (size + fabs(expected)) + 1e-5);
      found.largest = worse(found.largest, error);
      found.of_bound = worse(found.of_bound, part);
    }
    found.of_lse = worse(found.of_lse, fabs(lse[row] - (largest + log(sum))));
    ++found.rows;
  }
  free(weights);
  return found;
}

static inline int is_right(difference d) { return d.rows > 0 && d.of_bound <= 1 && d.of_lse <= 1e-4; }

#endif /* EXAMPLES_REFERENCE_H */
