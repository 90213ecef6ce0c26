/* From candle's arguments to fa_fwd's. What fa_fwd would understand otherwise than candle's own
 * kernels is refused here; what fa_fwd refuses itself is left to it. */
#include "mha_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct reason {
  char *text;
  size_t size;
} reason;

static fa_status refuse(const reason *why, fa_status status, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(why->text, why->size, format, values);
  va_end(values);
  return status;
}

static int is_packed(const mha_call *call) {
  return call->cu_seqlens_q != NULL;
}

/* Numbers that fa_fwd takes as int32_t. */
static fa_status check_sizes(const mha_call *call, const reason *why) {
  const struct {
    const char *name;
    uint32_t value;
  } sizes[] = {{"b", call->b},       {"h", call->h},
               {"h_k", call->h_k},   {"d", call->d},
               {"seqlen_q", call->seqlen_q}, {"seqlen_k", call->seqlen_k},
               {"total_q", call->total_q}, {"total_k", call->total_k}};
  size_t i;
  for (i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    if (sizes[i].value > INT32_MAX) {
      return refuse(why, FA_STATUS_INVALID, "%s is %lu; allowed: at most 2147483647", sizes[i].name,
                    (unsigned long)sizes[i].value);
    }
  }
  return FA_STATUS_OK;
}

#define ADD_KERNELS "add candle's: flashdepot link candle --write --candle-kernels all"

static fa_status check_head_dim(const mha_call *call, const reason *why) {
  if (call->d > 256) {
    return refuse(why, FA_STATUS_UNSUPPORTED,
                  "d is %lu, and flash-attention's own kernels end at head dim 256; %s",
                  (unsigned long)call->d,
                  call->is_v3 ? "candle-flash-attn has one for 512" : ADD_KERNELS);
  }
  return FA_STATUS_OK;
}

static fa_status check_numbers(const mha_call *call, const reason *why) {
  if (call->softmax_scale == 0.0f) {
    return refuse(why, FA_STATUS_INVALID, "softmax_scale is 0; allowed: positive numbers");
  }
  if (!call->is_causal) {
    return FA_STATUS_OK;
  }
  if (call->window_right != 0 ||
      (call->window_left >= 0 && (uint32_t)call->window_left < call->seqlen_k)) {
    return refuse(
        why, FA_STATUS_INVALID,
        "is_causal is 1 and the windows are %d and %d; with is_causal, window_size_right is 0 "
        "and window_size_left is -1 or at least seqlen_k, %lu: set is_causal to 0 for a "
        "sliding window",
        call->window_left, call->window_right, (unsigned long)call->seqlen_k);
  }
  return FA_STATUS_OK;
}

static fa_status check_batch(const mha_call *call, const reason *why) {
  if ((call->cu_seqlens_q == NULL) != (call->cu_seqlens_k == NULL)) {
    return refuse(why, FA_STATUS_INVALID,
                  "one of cu_seqlens_q and cu_seqlens_k is NULL; set both or none");
  }
  if (call->arguments >= 37 && (call->unpadded_lse != 0) != is_packed(call)) {
    return refuse(
        why, FA_STATUS_UNSUPPORTED,
        "unpadded_lse is %d and cu_seqlens_q is %s; the lse of a packed batch is written as "
        "(h, total_q), that of another as (b, h, seqlen_q), and not the other way round",
        call->unpadded_lse, is_packed(call) ? "set" : "NULL");
  }
  if (is_packed(call) && call->arguments < 45 && call->seqlen_k == 0) {
    return refuse(
        why, FA_STATUS_UNSUPPORTED,
        "seqlen_k is 0 and the batch is packed; %d arguments do not say how many rows of o "
        "would be 0: leave out the call",
        call->arguments);
  }
  return FA_STATUS_OK;
}

static fa_status check_pages(const mha_call *call, const reason *why) {
  if (call->prefix_ranges != NULL || call->max_prefix_ranges > 0) {
    return refuse(
        why, FA_STATUS_UNSUPPORTED,
        "mm_prefix_ranges is set (max_mm_prefix_ranges %d), and no kernel of flash-attention "
        "has prefix ranges; " ADD_KERNELS,
        call->max_prefix_ranges);
  }
  if (call->block_table == NULL) {
    return FA_STATUS_OK;
  }
  if (!is_packed(call)) {
    return refuse(
        why, FA_STATUS_UNSUPPORTED,
        "block_table is set and cu_seqlens_q is NULL; allowed: pages with a packed batch");
  }
  if (call->page_size <= 0) {
    return refuse(why, FA_STATUS_INVALID, "page_block_size is %d; allowed: positive numbers", call->page_size);
  }
  return FA_STATUS_OK;
}

/* candle cuts strides to 32 bits without a check. A tensor of more elements than that can count has
 * at least one stride that shows it: its last element cannot lie as far out as it must. A stride of 0
 * repeats elements, which is a layout of its own. */
static fa_status check_reach(const char *name, const mha_strides *strides, uint64_t batch,
                             uint64_t rows, uint64_t heads, uint64_t d, const reason *why) {
  const uint64_t extents[3] = {batch, rows, heads};
  const uint32_t steps[3] = {strides->batch, strides->row, strides->head};
  uint64_t reach = d, count = d;
  int i;
  for (i = 0; i < 3; ++i) {
    if (extents[i] > 1 && steps[i] == 0) {
      return FA_STATUS_OK;
    }
    reach += extents[i] > 0 ? (extents[i] - 1) * steps[i] : 0;
    count *= extents[i];
  }
  if (count > UINT32_MAX && reach < count) {
    return refuse(
        why, FA_STATUS_INVALID,
        "%s has %llu elements and its strides, %lu, %lu and %lu, reach %llu; candle passes "
        "strides in 32 bits, which is too few here: use a smaller batch",
        name, (unsigned long long)count, (unsigned long)strides->batch, (unsigned long)strides->row,
        (unsigned long)strides->head, (unsigned long long)reach);
  }
  return FA_STATUS_OK;
}

static fa_status check_strides(const mha_call *call, const reason *why) {
  const struct {
    const char *name;
    const mha_strides *strides;
    uint32_t rows, heads;
  } tensors[] = {{"q", &call->q_strides, call->seqlen_q, call->h},
                 {"k", &call->k_strides, call->seqlen_k, call->h_k},
                 {"v", &call->v_strides, call->seqlen_k, call->h_k},
                 {"o", &call->o_strides, call->seqlen_q, call->h}};
  size_t i;
  for (i = 0; i < sizeof tensors / sizeof tensors[0]; ++i) {
    const mha_strides *strides = tensors[i].strides;
    fa_status status;
    if (is_packed(call)) {
      /* fa_fwd does not check this: it knows of fewer rows than there may be. */
      if (strides->row % 8 != 0) {
        return refuse(why, FA_STATUS_INVALID, "%s_row_stride is %lu; allowed: multiples of 8",
                      tensors[i].name, (unsigned long)strides->row);
      }
      continue;
    }
    status = check_reach(tensors[i].name, strides, call->b, tensors[i].rows, tensors[i].heads, call->d,
                         why);
    if (status != FA_STATUS_OK) {
      return status;
    }
  }
  return FA_STATUS_OK;
}

static fa_tensor tensor_of(void *data, const mha_strides *strides) {
  return fa_make_tensor(data, strides->batch, strides->row, strides->head);
}

static void set_mask(const mha_call *call, fa_fwd_args *args) {
  if (call->is_causal) {
    args->flags |= FA_FLAG_CAUSAL;
    return;
  }
  if (call->window_left >= 0) {
    args->flags |= FA_FLAG_WINDOW_LEFT;
    args->window_left = call->window_left;
  }
  if (call->window_right >= 0) {
    args->flags |= FA_FLAG_WINDOW_RIGHT;
    args->window_right = call->window_right;
  }
}

/* Without total_q the heads of lse are one float apart: whatever the batch, the h rows of it then end
 * within h * total_q floats, which is all that is known to be there. They overlap, so it is scratch.
 * fa4 copies by the numbers of rows, of which only run_mha_v3 tells that of k, and pages need none.
 * Else fa2 it is, which needs only cu_seqlens. */
static void set_packed(const mha_call *call, fa_fwd_args *args) {
  const uint64_t most_keys = (uint64_t)call->b * call->seqlen_k;
  const int knows_rows = call->total_k > 0 || call->block_table != NULL;
  args->family = knows_rows ? FA_FAMILY_BEST : FA_FAMILY_FA2;
  args->cu_seqlens_q = call->cu_seqlens_q;
  args->cu_seqlens_k = call->cu_seqlens_k;
  args->total_q = call->arguments == 45 ? call->total_q : 1;
  if (call->block_table != NULL) {
    args->block_table = call->block_table;
    args->block_table_stride = call->block_table_batch_stride;
    args->page_size = call->page_size;
  } else if (call->total_k > 0) {
    args->total_k = call->total_k;
  } else {
    args->total_k = most_keys < INT32_MAX ? (int64_t)most_keys : INT32_MAX;
  }
}

fa_status flashdepot_mha_checks(const mha_call *call, char *text, size_t text_size) {
  const reason why = {text, text_size};
  fa_status (*const checks[])(const mha_call *, const reason *) = {check_sizes, check_numbers,
                                                                   check_batch, check_strides};
  size_t i;
  for (i = 0; i < sizeof checks / sizeof checks[0]; ++i) {
    const fa_status status = checks[i](call, &why);
    if (status != FA_STATUS_OK) {
      return status;
    }
  }
  return FA_STATUS_OK;
}

fa_status flashdepot_mha_arguments(const mha_call *call, fa_fwd_args *args, char *text,
                                   size_t text_size) {
  const reason why = {text, text_size};
  fa_status status = flashdepot_mha_checks(call, text, text_size);
  if (status == FA_STATUS_OK) {
    status = check_head_dim(call, &why);
  }
  if (status == FA_STATUS_OK) {
    status = check_pages(call, &why);
  }
  if (status != FA_STATUS_OK) {
    return status;
  }
  memset(args, 0, sizeof *args);
  args->size = sizeof *args;
  args->dtype = call->is_bf16 ? FA_DTYPE_BF16 : FA_DTYPE_FP16;
  args->stream = call->stream;
  args->batch = (int32_t)call->b;
  args->seqlen_q = (int32_t)call->seqlen_q;
  args->seqlen_k = (int32_t)call->seqlen_k;
  args->heads_q = (int32_t)call->h;
  args->heads_k = (int32_t)call->h_k;
  args->head_dim = (int32_t)call->d;
  args->scale = call->softmax_scale;
  args->softcap = call->softcap;
  args->num_splits = 1;
  args->q = fa_make_const_tensor(call->q, call->q_strides.batch, call->q_strides.row, call->q_strides.head);
  args->k = tensor_of(call->k, &call->k_strides);
  args->v = tensor_of(call->v, &call->v_strides);
  args->o = tensor_of(call->o, &call->o_strides);
  args->lse = call->lse;
  args->alibi_slopes = call->alibi_slopes;
  args->alibi_batch_stride = call->alibi_slopes != NULL ? call->alibi_batch_stride : 0;
  set_mask(call, args);
  if (is_packed(call)) {
    set_packed(call, args);
  }
  return FA_STATUS_OK;
}

uint64_t flashdepot_mha_output_bytes(const mha_call *call) {
  const uint64_t row = (uint64_t)call->h * call->d;
  const uint64_t rows =
      is_packed(call) ? call->total_q : (uint64_t)call->b * call->seqlen_q;
  const mha_strides *strides = &call->o_strides;
  const int in_one_piece = (call->h == 1 || strides->head == call->d) && strides->row == row &&
                           (is_packed(call) || call->b == 1 || strides->batch == call->seqlen_q * row);
  return in_one_piece ? rows * row * 2 : 0;
}
