/* libflashattention: FlashAttention behind a C ABI. C99 and C++.
 *
 *     fa_fwd_args a = {0};
 *     a.size = sizeof a;
 *     a.dtype = FA_BF16;
 *     a.stream = stream;
 *     ... sizes, q, k, v, o, lse ...
 *     if (fa_fwd(&a) != FA_OK) fprintf(stderr, "%s\n", fa_last_error());
 *
 * Rules that hold for every call
 * - The caller owns every buffer. Nothing is allocated on the device, nothing synchronizes, and
 *   all work goes to args.stream, so calls may be captured in a CUDA graph.
 * - Every call but fa_last_error and fa_status_string returns a fa_status. Unless it is FA_OK
 *   nothing was launched (FA_CUDA: some launches of the call may be missing), and
 *   fa_last_error() names the argument, its value and what was allowed.
 * - Calls are thread-safe. The calling thread's current device is the same afterwards; like any
 *   cudaSetDevice, a call for another device than the current one creates both contexts.
 * - A CUDA error left over from earlier calls is cleared from the runtime's last-error state on
 *   entry, so that it is not taken for one of this call.
 *
 * Structs
 * - `size` is sizeof the struct as the caller was compiled with it. Fields are only ever appended.
 *   A shorter struct reads as zeros beyond its end. A longer one is accepted if the part that this
 *   library does not know is all zero, and FA_INVALID otherwise.
 * - Zero is the default of every field: 0 for numbers, NULL for pointers. Reserved fields must be
 *   zero. Unknown bits in `flags` are FA_INVALID.
 * - Strides are in elements. The last dimension is always contiguous.
 *
 * Shapes use b batch, sq/sk seqlen_q/seqlen_k, h heads_q, hk heads_k, d head_dim.
 */
#ifndef FLASH_ATTENTION_H
#define FLASH_ATTENTION_H

#include <stdint.h>

#define FA_ABI 1 /* fa_info.abi of a library that knows every field below */

#if defined(_WIN32) && defined(FA_BUILD)
#define FA_API __declspec(dllexport)
#elif defined(_WIN32) && !defined(FA_STATIC) /* define FA_STATIC to link the static library */
#define FA_API __declspec(dllimport)
#elif defined(_WIN32)
#define FA_API
#else
#define FA_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
#define FA_NOEXCEPT noexcept
extern "C" {
#else
#define FA_NOEXCEPT
#endif

typedef int32_t fa_status;
enum {
  FA_OK = 0,
  FA_INVALID = 1,             /* an argument is wrong, whatever the library and the GPU */
  FA_UNSUPPORTED = 2,         /* right, but not in this library; the text says what would have it */
  FA_NO_KERNEL_FOR_ARCH = 3,  /* the library has no SASS that this GPU runs */
  FA_WORKSPACE_TOO_SMALL = 4, /* ask fa_fwd_workspace or fa_bwd_workspace */
  FA_CUDA = 5,                /* the CUDA runtime answered with an error */
  FA_INTERNAL = 6             /* a fault of this library */
};

/* family: a line of kernels with one source, by the number in its name. 0 takes the one that was
 * measured to be fastest, of those in the library that do the problem; a number takes that one, and
 * what it cannot do is refused. The answers are the same up to rounding. */
enum { FA_FAMILY_BEST = 0, FA_FAMILY_FA2 = 2, FA_FAMILY_FA4 = 4 };

/* dtype: of q, k, v, o and their gradients. There is no default. */
enum { FA_FP16 = 1, FA_BF16 = 2 };

/* flags */
enum {
  FA_CAUSAL = 1 << 0,             /* query i sees keys j <= i + sk - sq; window_right is ignored */
  FA_WINDOW_LEFT = 1 << 1,        /* window_left is set: keys j >= i + sk - sq - window_left */
  FA_WINDOW_RIGHT = 1 << 2,       /* window_right is set: keys j <= i + sk - sq + window_right */
  FA_ROTARY_INTERLEAVED = 1 << 3, /* fwd: rotary pairs are (0,1), (2,3), .. and not (0,rotary_dim/2), .. */
  FA_DETERMINISTIC = 1 << 4       /* bwd: the same bits every time; the forward pass always is */
};

/* A tensor of head vectors: element (i, s, n, e) is at
 * data + i * batch_stride + s * row_stride + n * head_stride + e.
 * data is aligned to 16 bytes. A stride is a multiple of 8 and in [0, 2^46]; the stride of a
 * dimension of extent 1 is not looked at. Inputs are never written. */
typedef struct fa_tensor {
  void *data;
  int64_t batch_stride; /* of the page with block_table; else not looked at in a packed batch */
  int64_t row_stride;
  int64_t head_stride;
} fa_tensor;

/* o = softmax(scale * q k^T + bias) v, and lse = log(sum(exp(scale * q k^T + bias))).
 *
 * A row that sees no key (sk 0, or masked) gets o = 0 and lse = +inf.
 * With FA_CAUSAL and ALiBi, lse is that of the bias slope * j, which differs from the ALiBi bias
 * by a constant in each row; o is the same for both.
 *
 * Pointers say which of three kinds a call is:
 * - packed: cu_seqlens_q and cu_seqlens_k are set (one alone is FA_INVALID). Sequences lie one
 *   after the other in q, k, v and o, without a batch dimension; any may be empty. May have
 *   seqused_k, leftpad_k or block_table, and dropout.
 * - cache: no cu_seqlens, and any of cache_seqlens, cache_batch_idx, block_table or k_new is set.
 *   q and o are (b, sq, h, d), k and v hold keys of past calls. May have leftpad_k and rotary_cos.
 *   No dropout.
 * - dense: none of those. May have dropout.
 *
 * What is on the device is not looked at before the launch: lengths, page and batch indices must be
 * what their comments say. sq - sk below is that of each sequence: its queries are the last ones.
 *
 * block_table, k_new and cache_batch_idx run in the split-KV kernels, with one split too. */
typedef struct fa_fwd_args {
  uint32_t size;  /* sizeof(fa_fwd_args) */
  uint32_t flags; /* FA_CAUSAL .. FA_ROTARY_INTERLEAVED */
  int32_t device; /* CUDA ordinal of the device that holds every buffer */
  int32_t dtype;  /* FA_FP16 or FA_BF16 */
  void *stream;   /* cudaStream_t (CUstream) of that device; NULL is the legacy default stream */

  int32_t batch;    /* 0..65535; nothing is done when batch or seqlen_q is 0 */
  int32_t seqlen_q; /* 0..2^29; the longest one when cu_seqlens_q is set */
  int32_t seqlen_k; /* 0..2^29; the longest one when cu_seqlens_k is set; the capacity of a cache:
                       its rows, or pages of a sequence * page_size */
  int32_t heads_q;  /* 1..65535, a multiple of heads_k; batch * heads_q * seqlen_q < 2^31, packed:
                       heads_q * total_q < 2^31 */
  int32_t heads_k;  /* 1..heads_q; query head n uses key head n / (heads_q / heads_k) */
  int32_t head_dim; /* a multiple of 8, at most 256 */
  int64_t total_q;  /* packed: rows of q, 0..2^31-1; else 0 */
  int64_t total_k;  /* packed: rows of k, 0..2^31-1; 0 with block_table; else 0 */

  float scale;          /* finite and > 0; 0: 1 / sqrt(head_dim) */
  float softcap;        /* scores become softcap * tanh(score / softcap); 0: they do not */
  float dropout;        /* probability of dropping, in [0, 1); not with softcap */
  int32_t num_splits;   /* split-KV: 1..128; 0: chosen by fa_fwd_workspace's rule, and 1 when
                           workspace is NULL. More than 1 not with dropout, and packed only where
                           seqlen_q is 1, heads_q > heads_k, total_q is batch, and there are neither
                           windows nor ALiBi */
  int32_t window_left;  /* >= 0, with FA_WINDOW_LEFT; without it unbounded */
  int32_t window_right; /* >= 0, with FA_WINDOW_RIGHT; without it unbounded */

  fa_tensor q;  /* (b, sq, h, d), or (total_q, h, d) */
  fa_tensor k;  /* (b, sk, hk, d), (total_k, hk, d), or (pages, page_size, hk, d) */
  fa_tensor v;  /* as k */
  fa_tensor o;  /* as q; written; overlaps no input */
  float *lse;   /* (b, h, sq) contiguous, or (h, total_q) when packed; written. Rows of no sequence
                   are left alone, in o too */

  void *workspace;          /* aligned to 16 bytes; in use until the work on the stream is done */
  uint64_t workspace_bytes; /* at least what fa_fwd_workspace said */

  const float *alibi_slopes;  /* (h) or (b, h): bias -slope * |i + sk - sq - j| */
  int64_t alibi_batch_stride; /* of (b, h); 0 for (h) */

  /* Variable lengths. Device pointers; b + 1 or b entries. */
  const int32_t *cu_seqlens_q; /* (b + 1) row of q where each sequence starts; the last: ends. When
                                  seqlen_q is 1 and total_q is batch: 0, 1, .., batch */
  const int32_t *cu_seqlens_k; /* (b + 1) row of k where each sequence starts; the last: ends. With
                                  block_table the differences count: keys of each sequence */
  const int32_t *seqused_k;    /* (b) packed: keys in use of each sequence, with leftpad_k's */
  const int32_t *leftpad_k;    /* (b) keys to skip at the start of each sequence; packed, or with
                                  cache_seqlens; not with block_table */

  /* Paged keys and values. */
  const int32_t *block_table; /* (b, pages of a sequence): index of each page in k and v */
  int64_t block_table_stride; /* of the batch, 0..2^46 */
  int32_t page_size;          /* rows in a page, a multiple of 256 */

  /* A KV cache in k and v. k_new and v_new are written there, at cache_seqlens, then attended to
   * with the rest; k and v are outputs then. cache_seqlens does not change. */
  int32_t seqlen_new;             /* rows in k_new and v_new, at most seqlen_k; 0: none */
  fa_tensor k_new;                /* (b, seqlen_new, hk, d); needs cache_seqlens and seqlen_q >= 1 */
  fa_tensor v_new;                /* as k_new */
  const int32_t *cache_seqlens;   /* (b) keys in the cache, with leftpad_k's; NULL: seqlen_k */
  const int32_t *cache_batch_idx; /* (b) batch index in k and v; not with block_table */
  const void *rotary_cos;         /* (rotary_seqlen, rotary_dim / 2) contiguous, of dtype, aligned to
                                     16 bytes; needs k_new. Turns k_new to where it is written, and
                                     query i to cache_seqlens + i; without FA_CAUSAL and windows
                                     every query to cache_seqlens */
  const void *rotary_sin;         /* as rotary_cos */
  int32_t rotary_dim;             /* a multiple of 16, at most head_dim */
  int32_t rotary_seqlen;          /* at least seqlen_k */

  /* Dropout. While dropout is 0, p_debug must be NULL and the others are not looked at. Advance the
   * generator by b * h * 32 after a call. A dropout that 1 - dropout rounds away is 0. */
  uint64_t seed;              /* Philox seed, and */
  uint64_t offset;            /* Philox offset, unless */
  const int64_t *seed_ptr;    /* both come from the device (a captured generator), */
  const int64_t *offset_ptr;  /* where */
  uint64_t offset_intragraph; /* is added to *offset_ptr */
  uint64_t *rng_state;        /* (2) on the device; written: seed, offset; fa_bwd reads it */
  void *p_debug;              /* (b, h, sq up to 128s, sk up to 128s) of dtype, aligned to 16 bytes;
                                 written: exp(score - largest so far in the row), with the sign bit
                                 set where dropped. What is wholly masked is left alone */

  int32_t family; /* FA_FAMILY_; 0: the best in the library */
  int32_t reserved0;
} fa_fwd_args;

/* Gradients of fa_fwd, dense or (cu_seqlens_q and cu_seqlens_k set) packed. Fields that
 * fa_fwd_args has too mean the same and hold what they held there; o and lse are its outputs.
 *
 * A query that sees no key gets dq = 0, a key that no query sees dk = dv = 0. Rows of no sequence
 * are left alone in dq, and undefined in dk and dv.
 * batch * heads_q * (seqlen_q up to 128s) < 2^31; packed: heads_q * (total_q + 128 * batch) < 2^31.
 * FA_DETERMINISTIC needs a larger workspace: a dq for each of the blocks that add to it. */
typedef struct fa_bwd_args {
  uint32_t size;  /* sizeof(fa_bwd_args) */
  uint32_t flags; /* FA_CAUSAL, FA_WINDOW_LEFT, FA_WINDOW_RIGHT, FA_DETERMINISTIC */
  int32_t device;
  int32_t dtype;
  void *stream;

  int32_t batch;
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t heads_q;
  int32_t heads_k;
  int32_t head_dim;
  int64_t total_q;
  int64_t total_k;

  float scale;
  float softcap;
  float dropout;  /* with it rng_state is required */
  int32_t family; /* as in fa_fwd_args; any family takes what any other's forward pass wrote */
  int32_t window_left;
  int32_t window_right;

  fa_tensor q;
  fa_tensor k;
  fa_tensor v;
  fa_tensor o;
  fa_tensor d_o;    /* gradient of o, as o */
  fa_tensor dq;     /* as q; written */
  fa_tensor dk;     /* as k; written */
  fa_tensor dv;     /* as v; written */
  const float *lse; /* from fa_fwd */
  float *softmax_d; /* (b, h, sq up to 128s), or (h, total_q + 128 * b); written: sum(d_o * o)
                       times 1 - dropout. Packed, sequence i is at cu_seqlens_q[i] + 128 * i */

  void *workspace;          /* as in fa_fwd_args */
  uint64_t workspace_bytes; /* at least what fa_bwd_workspace said */

  const float *alibi_slopes;
  int64_t alibi_batch_stride;

  const int32_t *cu_seqlens_q;
  const int32_t *cu_seqlens_k;

  const uint64_t *rng_state; /* (2) on the device, from fa_fwd; required with dropout */
} fa_bwd_args;

/* What a library holds. */
enum { FA_FWD = 1, FA_SPLITKV = 2, FA_BWD = 3 };
enum {
  FA_FEATURE_DROPOUT = 1 << 0,
  FA_FEATURE_ALIBI = 1 << 1,
  FA_FEATURE_SOFTCAP = 1 << 2,
  FA_FEATURE_LOCAL = 1 << 3,   /* windows other than causal */
  FA_FEATURE_UNEVEN_K = 1 << 4 /* head dims between those of the units */
};

typedef struct fa_unit {
  int32_t pass; /* FA_FWD, FA_SPLITKV or FA_BWD */
  int32_t dtype;
  int32_t head_dim;
  int32_t causal; /* 0 or 1 */
} fa_unit;

typedef struct fa_family {
  int32_t family;           /* FA_FAMILY_FA2 or FA_FAMILY_FA4 */
  uint32_t features;        /* FA_FEATURE_ bits */
  const char *name;         /* "fa2" */
  const char *upstream;     /* version of its source, "2.8.3.post2" */
  const int32_t *sass;      /* architectures with SASS, 10 * major + minor: 80, 90 */
  const int32_t *head_dims; /* that upstream has, ascending; a head_dim runs in the next one up */
  const fa_unit *units;     /* step by unit_size, not by sizeof(fa_unit) */
  int32_t sass_count;
  int32_t head_dims_count;
  int32_t units_count;
  int32_t unit_size;
} fa_family;

typedef struct fa_info {
  uint32_t size;          /* in: sizeof(fa_info); out: unchanged */
  uint32_t abi;           /* FA_ABI of the library; 0 in no library */
  const char *flashdepot; /* version of flashdepot that built it */
  int32_t cuda;           /* toolkit that compiled it, 1000 * major + 10 * minor: 13000 */
  int32_t families_count;
  const fa_family *families; /* the best first; step by family_size, not by sizeof(fa_family) */
  int32_t family_size;
  int32_t reserved0;
} fa_info;

/* Fills *info; pointers in it stay valid while the library is loaded. Needs no GPU. */
FA_API fa_status fa_build_info(fa_info *info) FA_NOEXCEPT;

/* Which family runs a forward pass. */
typedef struct fa_choice {
  uint32_t size;       /* in: sizeof(fa_choice); out: unchanged */
  int32_t family;      /* FA_FAMILY_FA2 or FA_FAMILY_FA4; 0 where the answer is not FA_OK */
  const char *name;    /* "fa2"; "" for none */
  const char *why_not; /* the families that come before it with args.family 0, and why each of them
                          does not run these args: "fa4: dropout is 0.1; ..", or "". Valid until the
                          next fa_supports of this thread */
} fa_choice;

/* Whether fa_fwd would run these args on this device. Looks at sizes, dtype, flags and numbers,
 * and at optional pointers for being NULL or not; q, k, v, o, lse, strides and the workspace are
 * not looked at. args->device is ignored. device -1: on any GPU that the library has SASS for;
 * needs no GPU then. choice may be NULL. */
FA_API fa_status fa_supports(int32_t device, const fa_fwd_args *args,
                             fa_choice *choice) FA_NOEXCEPT;

/* Workspace in bytes and number of splits for these args, looked at as by fa_supports. With
 * num_splits 0 the number is upstream's choice for args->device: 1 unless the GPU would be left
 * idle, and 1 when the library has no split-KV unit for the problem. splits may be NULL. A packed
 * batch with block_table needs a workspace with one split too. In a library of several families
 * the need is that of the one that runs on args->device. */
FA_API fa_status fa_fwd_workspace(const fa_fwd_args *args, uint64_t *bytes,
                                   int32_t *splits) FA_NOEXCEPT;
FA_API fa_status fa_fwd(const fa_fwd_args *args) FA_NOEXCEPT;

/* Workspace in bytes, looked at as by fa_supports. With FA_DETERMINISTIC it depends on
 * args->device. */
FA_API fa_status fa_bwd_workspace(const fa_bwd_args *args, uint64_t *bytes) FA_NOEXCEPT;
FA_API fa_status fa_bwd(const fa_bwd_args *args) FA_NOEXCEPT;

/* "FA_OK", "FA_INVALID", ..; "unknown fa_status" for any other number. */
FA_API const char *fa_status_string(fa_status status) FA_NOEXCEPT;

/* Text of the last call on this thread that was not FA_OK, "" before the first. Valid until the
 * next such call on this thread. UTF-8, one line. */
FA_API const char *fa_last_error(void) FA_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FLASH_ATTENTION_H */
