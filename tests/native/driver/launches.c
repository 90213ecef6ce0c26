/* Random problems through a library, over the driver that writes down what is launched: the same
 * seed gives the same calls on every system.
 *
 *     launches LIBRARY SEED COUNT ANSWERS
 *
 * ANSWERS gets a line a call: its status, its workspace and splits, and its text. */
#include <flash_attention.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
static void *open_library(const char *path) { return (void *)LoadLibraryA(path); }
static void *find(void *library, const char *name) {
  return (void *)GetProcAddress((HMODULE)library, name);
}
#else
#include <dlfcn.h>
static void *open_library(const char *path) { return dlopen(path, RTLD_NOW); }
static void *find(void *library, const char *name) { return dlsym(library, name); }
#endif

static uint64_t state;

/* SplitMix64: every C library has another rand(). */
static uint64_t number(uint64_t below) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % below;
}
static int one_in(uint64_t count) { return number(count) == 0; }

static void *address(void) { return (void *)(uintptr_t)(0x10000 + 16 * number(1 << 20)); }

static int32_t length(void) {
  const int32_t usual[] = {1, 2, 16, 64, 113, 128, 200, 256, 339, 512, 1024, 2048, 4096};
  return one_in(30) ? 0 : usual[number(sizeof usual / sizeof *usual)];
}

static fa_tensor tensor(int packed, int64_t rows, int32_t heads, int32_t head_dim) {
  fa_tensor made = fa_make_tensor(address(), 0, (int64_t)heads * head_dim, head_dim);
  if (one_in(4)) made.row_stride += 8 * (int64_t)number(5); /* a slice of something wider */
  made.batch_stride = packed ? 0 : rows * made.row_stride;
  return made;
}

static fa_const_tensor input(int packed, int64_t rows, int32_t heads, int32_t head_dim) {
  const fa_tensor made = tensor(packed, rows, heads, head_dim);
  return fa_make_const_tensor(made.data, made.batch_stride, made.row_stride, made.head_stride);
}

/* Both structs have these fields; k, v and o are inputs of one of them only. */
#define FILL_COMMON(args, keys)                                                             \
  do {                                                                                      \
    const int32_t head_dims[] = {64, 64, 64, 128, 128, 40, 72, 96, 120, 32, 192, 256};      \
    (args).size = sizeof(args);                                                             \
    (args).dtype = one_in(12) ? FA_DTYPE_FP16 : FA_DTYPE_BF16;                                          \
    (args).device = (int32_t)number(3);                                                     \
    (args).stream = one_in(2) ? NULL : (void *)(uintptr_t)(16 + 16 * number(4));            \
    (args).batch = 1 + (int32_t)number(6);                                                  \
    (args).seqlen_q = length();                                                             \
    (args).seqlen_k = one_in(2) ? (args).seqlen_q : length();                               \
    (args).heads_k = 1 + (int32_t)number(4);                                                \
    (args).heads_q = (args).heads_k * (one_in(2) ? 1 : 1 + (int32_t)number(8));             \
    (args).head_dim = head_dims[number(sizeof head_dims / sizeof *head_dims)];              \
    if (one_in(2)) (args).scale = 0.0625f * (float)(1 + number(9));                         \
    if (one_in(6)) (args).softcap = 5.0f * (float)(1 + number(9));                          \
    if (one_in(6)) (args).dropout = 0.0625f * (float)(1 + number(9));                       \
    if (one_in(2)) (args).flags |= FA_FLAG_CAUSAL;                                               \
    if (one_in(5)) (args).flags |= FA_FLAG_WINDOW_LEFT, (args).window_left = (int32_t)number(300); \
    if (one_in(5)) (args).flags |= FA_FLAG_WINDOW_RIGHT, (args).window_right = (int32_t)number(300); \
    if (one_in(6)) {                                                                        \
      (args).alibi_slopes = address();                                                      \
      (args).alibi_batch_stride = one_in(2) ? 0 : (args).heads_q;                           \
    }                                                                                       \
    packed = one_in(3);                                                                     \
    if (packed) {                                                                           \
      (args).cu_seqlens_q = address();                                                      \
      (args).cu_seqlens_k = address();                                                      \
      (args).total_q = (int64_t)(args).batch * (args).seqlen_q - (int64_t)number(1 + (uint64_t)(args).seqlen_q); \
      (args).total_k = (int64_t)(args).batch * (args).seqlen_k - (int64_t)number(1 + (uint64_t)(args).seqlen_k); \
    }                                                                                       \
    (args).q = input(packed, (args).seqlen_q, (args).heads_q, (args).head_dim);            \
    (args).k = keys(packed, (args).seqlen_k, (args).heads_k, (args).head_dim);              \
    (args).v = keys(packed, (args).seqlen_k, (args).heads_k, (args).head_dim);              \
    (args).o = keys(packed, (args).seqlen_q, (args).heads_q, (args).head_dim);              \
    (args).lse = address();                                                                 \
    (args).workspace = address();                                                           \
  } while (0)

static void fill_cache(fa_fwd_args *args) {
  args->cache_seqlens = address();
  args->dropout = 0;
  if (one_in(2)) {
    args->page_size = 256 * (1 + (int32_t)number(2));
    args->block_table = address();
    args->block_table_stride = (args->seqlen_k + args->page_size - 1) / args->page_size;
    args->seqlen_k = (int32_t)args->block_table_stride * args->page_size;
    args->k = tensor(0, args->page_size, args->heads_k, args->head_dim);
    args->v = tensor(0, args->page_size, args->heads_k, args->head_dim);
  } else {
    if (one_in(2)) args->cache_batch_idx = address();
    if (one_in(3)) args->leftpad_k = address();
  }
  if (one_in(2)) {
    args->seqlen_new = args->seqlen_k == 0 ? 0 : 1 + (int32_t)number((uint64_t)args->seqlen_k);
    args->k_new = input(0, args->seqlen_new, args->heads_k, args->head_dim);
    args->v_new = input(0, args->seqlen_new, args->heads_k, args->head_dim);
    if (one_in(2)) {
      args->rotary_cos = address();
      args->rotary_sin = address();
      args->rotary_dim = 16 * (1 + (int32_t)number((uint64_t)(args->head_dim + 15) / 16));
      args->rotary_seqlen = args->seqlen_k;
      if (one_in(2)) args->flags |= FA_FLAG_ROTARY_INTERLEAVED;
    }
  }
}

static fa_fwd_args forward_problem(void) {
  fa_fwd_args args;
  int packed;
  memset(&args, 0, sizeof args);
  FILL_COMMON(args, tensor);
  if (!packed && one_in(2)) fill_cache(&args);
  if (packed && one_in(4)) args.seqused_k = address();
  if (args.dropout == 0 && !one_in(3)) args.num_splits = one_in(2) ? (int32_t)number(20) : 0;
  if (args.num_splits > 1 && packed) args.num_splits = 1;
  args.seed = number(UINT64_MAX);
  args.offset = number(1 << 20);
  if (one_in(4)) {
    args.seed_ptr = address();
    args.offset_ptr = address();
    args.offset_intragraph = number(1 << 20);
  }
  if (args.dropout != 0 || one_in(2)) args.rng_state = address();
  if (args.dropout != 0 && !packed && one_in(3)) args.p_debug = address();
  return args;
}

static fa_bwd_args backward_problem(void) {
  fa_bwd_args args;
  int packed;
  memset(&args, 0, sizeof args);
  FILL_COMMON(args, input);
  if (one_in(4)) args.flags |= FA_FLAG_DETERMINISTIC;
  args.d_o = input(packed, args.seqlen_q, args.heads_q, args.head_dim);
  args.dq = tensor(packed, args.seqlen_q, args.heads_q, args.head_dim);
  args.dk = tensor(packed, args.seqlen_k, args.heads_k, args.head_dim);
  args.dv = tensor(packed, args.seqlen_k, args.heads_k, args.head_dim);
  args.softmax_d = address();
  args.rng_state = address();
  return args;
}

int main(int count, char **words) {
  void *library;
  FILE *answers;
  long left, i;
  if (count != 5 || (answers = fopen(words[4], "wb")) == NULL) return 2;
  if ((library = open_library(words[1])) == NULL) return 3;
  fa_status (*fwd)(const fa_fwd_args *) = find(library, "fa_fwd");
  fa_status (*bwd)(const fa_bwd_args *) = find(library, "fa_bwd");
  fa_status (*fwd_workspace)(const fa_fwd_args *, uint64_t *, int32_t *) =
      find(library, "fa_fwd_workspace");
  fa_status (*bwd_workspace)(const fa_bwd_args *, uint64_t *) = find(library, "fa_bwd_workspace");
  const char *(*last_error)(void) = find(library, "fa_last_error");
  if (!fwd || !bwd || !fwd_workspace || !bwd_workspace || !last_error) return 4;
  state = strtoull(words[2], NULL, 10);
  left = strtol(words[3], NULL, 10);
  for (i = 0; i < left; ++i) {
    uint64_t bytes = 0;
    int32_t splits = 0;
    fa_status sized, status;
    const int forward = !one_in(3);
    if (forward) {
      fa_fwd_args args = forward_problem();
      sized = fwd_workspace(&args, &bytes, &splits);
      args.workspace_bytes = bytes;
      status = fwd(&args);
    } else {
      fa_bwd_args args = backward_problem();
      sized = bwd_workspace(&args, &bytes);
      args.workspace_bytes = bytes;
      status = bwd(&args);
    }
    fprintf(answers, "%s %d %d %" PRIu64 " %d %s\n", forward ? "fwd" : "bwd", (int)sized,
            (int)status, bytes, (int)splits, status == FA_STATUS_OK ? "" : last_error());
  }
  return fclose(answers) == 0 ? 0 : 5;
}
