/* libflashattention.so.1 for machines without a GPU: attention in float with the kernels' two roundings to bfloat16.
 * FAKE_FAULT makes it wrong in one way, as a kernel could be. What would take long is not done: problems that are
 * timed, and rows that the examples do not look at. */
#include <flash_attention.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float widen(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, 4);
  return value;
}

static uint16_t narrow(float value) {
  uint32_t word;
  memcpy(&word, &value, 4);
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static int fault(const char *name) {
  const char *asked = getenv("FAKE_FAULT");
  return asked && !strcmp(asked, name);
}

#define AT(t, b, row, head) \
  ((const uint16_t *)(t).data + (b) * (t).batch_stride + (row) * (t).row_stride + (head) * (t).head_stride)

static void attend_row(const fa_fwd_args *a, float *p, int b, int head, int i) {
  const int shift = fault("mask from the top left") ? 0 : a->seqlen_k - a->seqlen_q;
  const int visible = a->flags & FA_FLAG_CAUSAL ? i + shift + 1 : a->seqlen_k;
  const int key_head = fault("heads not grouped") ? head % a->heads_k : head / (a->heads_q / a->heads_k);
  const uint16_t *q = AT(a->q, b, i, head);
  float largest = -INFINITY, sum = 0, out[256] = {0};
  for (int j = 0; j < visible; ++j) {
    const uint16_t *k = AT(a->k, b, j, key_head);
    p[j] = 0;
    for (int e = 0; e < a->head_dim; ++e) p[j] += widen(q[e]) * widen(k[e]);
    p[j] /= sqrtf((float)a->head_dim);
    if (p[j] > largest) largest = p[j];
  }
  for (int j = 0; j < visible; ++j) {
    const uint16_t *v = AT(a->v, b, j, key_head);
    p[j] = expf(p[j] - largest);
    sum += p[j];
    const float weight = widen(narrow(p[j]));
    for (int e = 0; e < a->head_dim; ++e) out[e] += weight * widen(v[e]);
  }
  uint16_t *o = (uint16_t *)AT(a->o, b, i, head);
  for (int e = 0; e < a->head_dim; ++e) o[e] = narrow(out[e] / sum);
  if (fault("a NaN") && i == a->seqlen_q - 1) o[0] = 0x7fff;
  a->lse[((int64_t)b * a->heads_q + head) * a->seqlen_q + i] = largest + logf(sum) + (fault("lse") ? 1e-3f : 0);
}

fa_status fa_fwd(const fa_fwd_args *a) {
  if (fault("refusal")) return FA_STATUS_UNSUPPORTED;
  if (a->seqlen_q > 1024) return FA_STATUS_OK;
  float *p = malloc((size_t)a->seqlen_k * sizeof *p);
  for (int b = 0; b < a->batch; ++b)
    for (int head = 0; head < a->heads_q; ++head)
      for (int i = 0; i < a->seqlen_q; ++i)
        if (i % 17 == 0 || i == a->seqlen_q - 1) attend_row(a, p, b, head, i);
  free(p);
  return FA_STATUS_OK;
}

fa_status fa_build_info(fa_info *info) {
  static const int32_t sass[] = {90};
  static const fa_family families[] = {{.family = FA_FAMILY_FA2,
                                        .name = "fa2",
                                        .upstream = "fake",
                                        .sass = sass,
                                        .sass_count = 1,
                                        .unit_size = sizeof(fa_unit)}};
  info->version = FA_VERSION;
  info->cuda = 13000;
  info->families = families;
  info->families_count = 1;
  info->family_size = sizeof families[0];
  return FA_STATUS_OK;
}

const char *fa_last_error(void) { return "refused by the fake"; }
