/* SPDX-License-Identifier: BSD-3-Clause
 *
 * libflashattention: FlashAttention behind a C ABI. C99, C++98 and later.
 *
 *     fa_fwd_args a = FA_FWD_ARGS_INIT;
 *     a.dtype = FA_DTYPE_BF16;
 *     a.stream = stream;
 *     a.q = fa_make_const_tensor(q, batch_stride, row_stride, head_stride);
 *     ... sizes, k, v, o, lse ...
 *     if (fa_fwd_workspace(&a, &a.workspace_bytes, NULL) != FA_STATUS_OK) ...;
 *     a.workspace = of that many bytes on the device, or NULL for 0
 *     if (fa_fwd(&a) != FA_STATUS_OK) fprintf(stderr, "%s\n", fa_last_error());
 *
 * Rules that hold for every call
 * - Memory: the caller owns every buffer. A call allocates nothing on the device and keeps no
 *   pointer. Buffers are in use until the call's work on the stream is done.
 * - Synchronization: a call never waits for the device. All work goes to args.stream, in order.
 * - CUDA graphs: every call may be made while its stream is captured. A graph holds the buffers'
 *   addresses, and may run as long as they and the library are there.
 * - Statuses: a call returns FA_STATUS_OK or what went wrong; fa_last_error() then names the
 *   argument, its value and what is allowed. Unless it is FA_STATUS_OK nothing was launched
 *   (FA_STATUS_CUDA: some launches of the call may be missing).
 * - Threads: every function may be called from any thread at any time. The text of fa_last_error
 *   belongs to the calling thread.
 * - Devices: the calling thread's current device is the same afterwards. Like cudaSetDevice, a call
 *   for another device than the current one creates that device's context.
 * - Errors of others: a CUDA error left over from earlier calls is cleared on entry, so that it is
 *   not taken for one of this call.
 *
 * The life of a process
 * - First call: the library opens the driver with its first call that needs a GPU, and loads a
 *   kernel onto a device with the first call that runs it, which takes milliseconds. fa_preload
 *   does that ahead of time.
 * - Fork: CUDA cannot be used in a process that was forked from one that used it; calls there
 *   answer FA_STATUS_CUDA. A fork before the first call that needs a GPU is harmless.
 * - Unloading (dlclose, FreeLibrary) takes the kernels out of the driver. Before it, wait for the
 *   library's work and drop the graphs that hold its kernels.
 * - Device reset (cudaDeviceReset, cuDevicePrimaryCtxReset) invalidates buffers, streams and graphs
 *   of that device, and needs that no call is running. Later calls load their kernels anew.
 *
 * Structs
 * - `size` is sizeof the struct as the caller was compiled with it; the FA_..._INIT macros set it
 *   and zero the rest.
 * - Zero is the default of every field: 0 for numbers, NULL for pointers. Reserved fields must be
 *   zero. Unknown bits in `flags` are FA_STATUS_INVALID.
 * - Strides are in elements. The last dimension is always contiguous.
 *
 * Versions
 * - Everything here is since 1.0 unless it says otherwise.
 * - Growth: a new minor version appends fields to structs that have a `size`, adds constants and
 *   functions, and serves what it refused before. A field or a meaning never changes within a major
 *   version. An old program runs with a new library: a shorter struct reads as zeros beyond its end.
 *   A new program runs with an old library: a longer struct is accepted if the part that the library
 *   does not know is all zero, and FA_STATUS_INVALID otherwise. Functions of a newer minor version
 *   are looked up by those who want to run with older ones.
 * - Deprecation: what is to go is marked with the version that says so, and works at least until
 *   the next major version, whose library has another file name.
 *
 * Shapes use b batch, sq/sk seqlen_q/seqlen_k, h heads_q, hk heads_k, d head_dim, dv head_dim_v.
 */
#ifndef FLASH_ATTENTION_H
#define FLASH_ATTENTION_H

#include <stdint.h>

/* The version of this header; fa_version() has the library's. */
#define FA_VERSION_MAJOR 1
#define FA_VERSION_MINOR 0
#define FA_VERSION_PATCH 0
#define FA_VERSION (FA_VERSION_MAJOR * 10000 + FA_VERSION_MINOR * 100 + FA_VERSION_PATCH)

#if defined(_WIN32) && defined(FA_BUILD)
#define FA_API __declspec(dllexport)
#elif defined(_WIN32) && !defined(FA_STATIC) /* define FA_STATIC to link the static library */
#define FA_API __declspec(dllimport)
#elif defined(_WIN32)
#define FA_API
#else
#define FA_API __attribute__((visibility("default")))
#endif

#if !defined(__cplusplus)
#define FA_NOEXCEPT
#elif __cplusplus >= 201103L || defined(_MSC_VER)
#define FA_NOEXCEPT noexcept
#else
#define FA_NOEXCEPT throw()
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A status. Take numbers that are not listed, which a newer library may return, for failures. */
typedef int32_t fa_status;
enum {
  FA_STATUS_OK = 0,
  FA_STATUS_INVALID = 1,             /* an argument is wrong, whatever the library and the GPU */
  FA_STATUS_UNSUPPORTED = 2,         /* right, but not in this library; the text says what has it */
  FA_STATUS_NO_KERNEL_FOR_ARCH = 3,  /* the library has no SASS that this GPU runs */
  FA_STATUS_WORKSPACE_TOO_SMALL = 4, /* ask fa_fwd_workspace or fa_bwd_workspace */
  FA_STATUS_CUDA = 5,                /* CUDA answered with an error, or there is no driver or GPU */
  FA_STATUS_INTERNAL = 6             /* a fault of this library */
};

/* family: a line of kernels with one source, by the number in its name. 0 takes the one that was
 * measured to be fastest, of those in the library that do the problem; a number takes that one, and
 * what it cannot do is refused. The answers are the same up to rounding. */
enum { FA_FAMILY_BEST = 0, FA_FAMILY_FA2 = 2, FA_FAMILY_FA3 = 3, FA_FAMILY_FA4 = 4 };

/* dtype: of q, k, v, o and their gradients. There is no default. */
enum {
  FA_DTYPE_FP16 = 1,
  FA_DTYPE_BF16 = 2,
  FA_DTYPE_E4M3 = 3, /* of q, k and v of fa_fwd, whose o is bf16; family fa3 has it */
  FA_DTYPE_FP32 = 4  /* of fa_combine */
};

/* flags */
enum {
  FA_FLAG_CAUSAL = 1 << 0,       /* query i sees keys j <= i + sk - sq; window_right is ignored */
  FA_FLAG_WINDOW_LEFT = 1 << 1,  /* window_left is set: keys j >= i + sk - sq - window_left */
  FA_FLAG_WINDOW_RIGHT = 1 << 2, /* window_right is set: keys j <= i + sk - sq + window_right */
  FA_FLAG_ROTARY_INTERLEAVED = 1 << 3, /* fwd: rotary pairs are (0,1), (2,3), .. and not
                                          (0,rotary_dim/2), .. */
  FA_FLAG_DETERMINISTIC = 1 << 4, /* bwd: the same bits every time; the forward pass always is */
  FA_FLAG_EMPTY_LSE_NEG_INF = 1 << 5 /* the lse of a row that sees no key is -inf and not +inf */
};

/* A tensor of head vectors: element (i, s, n, e) is at
 * data + i * batch_stride + s * row_stride + n * head_stride + e.
 * data is aligned to 16 bytes. A stride is a multiple of 8, of FA_DTYPE_E4M3 of 16, and in [0, 2^46];
 * the stride of a dimension of extent 1 is not looked at. */
typedef struct fa_tensor {
  void *data;
  int64_t batch_stride; /* of the page with block_table; else not looked at in a packed batch */
  int64_t row_stride;
  int64_t head_stride;
  int64_t reserved0;
  int64_t reserved1;
} fa_tensor;

/* A fa_tensor that is only read. */
typedef struct fa_const_tensor {
  const void *data;
  int64_t batch_stride;
  int64_t row_stride;
  int64_t head_stride;
  int64_t reserved0;
  int64_t reserved1;
} fa_const_tensor;

/* o = softmax(scale * q k^T + bias) v, and lse = log(sum(exp(scale * q k^T + bias))).
 *
 * A row that sees no key (sk 0, or masked) gets o = 0 and lse = +inf, or -inf with
 * FA_FLAG_EMPTY_LSE_NEG_INF.
 * With FA_FLAG_CAUSAL and ALiBi, lse is that of the bias slope * j, which differs from the ALiBi bias
 * by a constant in each row; o is the same for both.
 *
 * Pointers say which of three kinds a call is:
 * - packed: cu_seqlens_q and cu_seqlens_k are set (only one is FA_STATUS_INVALID). Sequences lie one
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
  uint32_t flags; /* FA_FLAG_ bits, all but FA_FLAG_DETERMINISTIC */
  int32_t device; /* CUDA ordinal of the device that holds every buffer */
  int32_t dtype;  /* FA_DTYPE_FP16, FA_DTYPE_BF16 or FA_DTYPE_E4M3 */
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
  int32_t num_splits;   /* split-KV: 1..128; 0: the number that fa_fwd_workspace answers, which may
                           need a workspace. More than 1 not with dropout, and packed only where
                           seqlen_q is 1, heads_q > heads_k, total_q is batch, and there are neither
                           windows nor ALiBi */
  int32_t window_left;  /* >= 0, with FA_FLAG_WINDOW_LEFT; without it unbounded */
  int32_t window_right; /* >= 0, with FA_FLAG_WINDOW_RIGHT; without it unbounded */

  fa_const_tensor q; /* (b, sq, h, d), or (total_q, h, d) */
  fa_tensor k;  /* (b, sk, hk, d), (total_k, hk, d), or (pages, page_size, hk, d); written only where
                   k_new is set */
  fa_tensor v;  /* as k, with dv */
  fa_tensor o;  /* as q, with dv; written; overlaps no input */
  float *lse;   /* (b, h, sq) contiguous, or (h, total_q) when packed; written. Rows of no sequence
                   are not, in o too */

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
  int32_t page_size;          /* rows in a page, at least 1. fa2 reads pages of a multiple of 256 (head_dim
                                 up to 64), 128 (up to 128) or 64 where they lie; others it copies to the
                                 workspace, and appends no k_new to them */

  /* A KV cache in k and v. k_new and v_new are written there, at cache_seqlens, then attended to
   * with the rest; k and v are outputs then. cache_seqlens does not change. */
  int32_t seqlen_new;             /* rows in k_new and v_new, at most seqlen_k; 0: none. fa2 and fa3 take
                                     no more than queries see by a left window or attention_chunk */
  fa_const_tensor k_new;          /* (b, seqlen_new, hk, d); needs cache_seqlens and seqlen_q >= 1 */
  fa_const_tensor v_new;          /* as k_new, with dv */
  const int32_t *cache_seqlens;   /* (b) keys in the cache, with leftpad_k's; NULL: seqlen_k */
  const int32_t *cache_batch_idx; /* (b) batch index in k and v; not with block_table */
  const void *rotary_cos;         /* (rotary_seqlen, rotary_dim / 2) contiguous, of dtype, aligned to
                                     16 bytes; needs k_new. Turns k_new to where it is written, and
                                     query i to cache_seqlens + i; without FA_FLAG_CAUSAL and windows
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
                                 set where dropped. What is wholly masked is not written */

  int32_t family;     /* FA_FAMILY_; 0: the best in the library */
  int32_t head_dim_v; /* of v and o: a multiple of 8, at most 256, or 512 where head_dim is at most 64;
                         0: head_dim. Another one than head_dim may take a workspace */
  const float *sink;  /* (h): one more score of each row of the head, without a key and without a
                         value: it adds exp(sink) to the sum. lse includes it. Not with
                         FA_FLAG_CAUSAL and ALiBi */

  /* Family fa3 has these, in the kinds of call that its kernels are for: FA_DTYPE_E4M3 with one head_dim for
   * q, k and v, a multiple of 16; and bf16 with a head_dim up to 64 with qv or a head_dim_v over 256.
   * Neither has dropout, ALiBi, softcap or rotary_cos. */
  const int32_t *seqused_q; /* (b) packed: queries in use of each sequence, the last ones of its keys; not
                               with sink */
  int32_t attention_chunk;  /* > 0: a query sees only keys of its own chunk of that many; 0: all */
  int32_t out_dtype;        /* FA_DTYPE_ of o; 0: dtype. FA_DTYPE_BF16 where dtype is FA_DTYPE_E4M3 */
  fa_const_tensor qv;       /* (b, sq, h, dv): adds scale * qv v^T to the scores */
  const float *q_descale;   /* (b, hk) factors of q, k and v of FA_DTYPE_E4M3; NULL: 1. The weights are
                               rounded to FA_DTYPE_E4M3 too before they meet v */
  const float *k_descale;
  const float *v_descale;
  int64_t descale_batch_stride; /* of all three */
  int64_t descale_head_stride;
} fa_fwd_args;

/* Gradients of fa_fwd, dense or (cu_seqlens_q and cu_seqlens_k set) packed. Fields that
 * fa_fwd_args has too mean the same and hold what they held there; o and lse are its outputs, with
 * FA_FLAG_EMPTY_LSE_NEG_INF if it had that flag.
 *
 * A query that sees no key gets dq = 0, a key that no query sees dk = dv = 0. Rows of no sequence
 * are not written in dq, and undefined in dk and dv.
 * batch * heads_q * (seqlen_q up to 128s) < 2^31; packed: heads_q * (total_q + 128 * batch) < 2^31.
 * FA_FLAG_DETERMINISTIC needs a larger workspace: a dq for each of the blocks that add to it. */
typedef struct fa_bwd_args {
  uint32_t size;  /* sizeof(fa_bwd_args) */
  uint32_t flags; /* FA_FLAG_ bits, all but FA_FLAG_ROTARY_INTERLEAVED */
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

  fa_const_tensor q;
  fa_const_tensor k;
  fa_const_tensor v;
  fa_const_tensor o;
  fa_const_tensor d_o; /* gradient of o, as o */
  fa_tensor dq;     /* as q; written */
  fa_tensor dk;     /* as k; written */
  fa_tensor dv;     /* as v; written */
  const float *lse; /* from fa_fwd */
  float *softmax_d; /* (b, h, sq up to 128s), or (h, total_q + 128 * b); written: sum(d_o * o) - d_lse,
                       times 1 - dropout. Packed, sequence i is at cu_seqlens_q[i] + 128 * i. NULL: not
                       wanted, which d_sink does not allow */

  void *workspace;          /* as in fa_fwd_args */
  uint64_t workspace_bytes; /* at least what fa_bwd_workspace said */

  const float *alibi_slopes;
  int64_t alibi_batch_stride;

  const int32_t *cu_seqlens_q;
  const int32_t *cu_seqlens_k;

  const uint64_t *rng_state; /* (2) on the device, from fa_fwd; required with dropout */

  const float *d_lse; /* gradient of lse, laid out as lse; NULL: none. That of an empty row is not
                         looked at */
  const float *sink;  /* (h) as in fa_fwd_args */
  float *d_sink;      /* (h) gradient of sink; written; NULL: not wanted. Needs sink */
  int32_t head_dim_v; /* as in fa_fwd_args */
  int32_t reserved0;
} fa_bwd_args;

/* One attention of several over parts of the keys, each with its own softmax:
 * lse = log(sum(exp(lse_parts))) and o = sum(exp(lse_parts - lse) * o_parts). A part whose lse is
 * +inf or -inf saw no key and adds nothing; where all are, o = 0 and lse is as for fa_fwd. */
typedef struct fa_combine_args {
  uint32_t size;  /* sizeof(fa_combine_args) */
  uint32_t flags; /* FA_FLAG_EMPTY_LSE_NEG_INF */
  int32_t device;
  int32_t dtype; /* of o: FA_DTYPE_FP16, FA_DTYPE_BF16 or FA_DTYPE_FP32 */
  void *stream;

  int32_t parts;       /* 1..256 */
  int32_t parts_dtype; /* of o_parts, likewise; 0: dtype */
  int32_t batch;       /* as in fa_fwd_args; 1 for a packed batch, */
  int32_t seqlen_q;    /* whose rows are total_q */
  int32_t heads_q;
  int32_t head_dim_v; /* a multiple of 8, at most 512 */

  fa_const_tensor o_parts;   /* (b, sq, h, dv), of each part */
  int64_t o_parts_stride;    /* of the parts; a multiple of 8, 0..2^46 */
  fa_const_tensor lse_parts; /* (b, sq, h) floats, of each part; strides are any from 0 to 2^46 */
  int64_t lse_parts_stride;  /* of the parts, likewise */
  fa_tensor o;               /* (b, sq, h, dv); written; overlaps no input */
  float *lse;                /* (b, h, sq) contiguous; written; NULL: not wanted */
} fa_combine_args;

/* What a library holds. */
enum { FA_PASS_FWD = 1, FA_PASS_SPLITKV = 2, FA_PASS_BWD = 3 };
enum {
  FA_FEATURE_DROPOUT = 1 << 0,
  FA_FEATURE_ALIBI = 1 << 1,
  FA_FEATURE_SOFTCAP = 1 << 2,
  FA_FEATURE_LOCAL = 1 << 3,   /* windows other than causal */
  FA_FEATURE_UNEVEN_K = 1 << 4 /* head dims between those of the units */
};

typedef struct fa_unit {
  int32_t pass; /* FA_PASS_FWD, FA_PASS_SPLITKV or FA_PASS_BWD */
  int32_t dtype;
  int32_t head_dim;
  int32_t causal; /* 0 or 1 */
} fa_unit;

typedef struct fa_family {
  int32_t family;           /* FA_FAMILY_ */
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
  int32_t version;        /* as fa_version() */
  const char *flashdepot; /* version of flashdepot that built it */
  int32_t cuda;           /* toolkit that compiled it, 1000 * major + 10 * minor: 13000 */
  int32_t families_count;
  const fa_family *families; /* the best first; step by family_size, not by sizeof(fa_family) */
  int32_t family_size;
  int32_t reserved0;
} fa_info;

/* Which family runs a call. */
typedef struct fa_choice {
  uint32_t size;       /* in: sizeof(fa_choice); out: unchanged */
  int32_t family;      /* FA_FAMILY_; 0 where the answer is not FA_STATUS_OK */
  const char *name;    /* "fa2"; "" for none */
  const char *why_not; /* the families that come before it with args.family 0, and why each of them
                          does not run these args: "fa4: dropout is 0.1; ..", or "". Valid until the
                          next fa_supports or fa_bwd_supports of this thread */
} fa_choice;

/* FA_VERSION of the library. Needs no GPU. */
FA_API int32_t fa_version(void) FA_NOEXCEPT;

/* Fills *info; pointers in it stay valid while the library is loaded. Needs no GPU. Statuses:
 * FA_STATUS_INVALID for info NULL and a size that cannot be one. */
FA_API fa_status fa_build_info(fa_info *info) FA_NOEXCEPT;

/* Whether fa_fwd would run these args on this device, and which family. Looks at sizes, dtype, flags
 * and numbers, and at optional pointers for being NULL or not; q, k, v, o, lse, strides and the
 * workspace are not looked at. args->device is ignored. device -1: on any GPU that the library has
 * SASS for; needs no GPU then. choice may be NULL. Launches nothing. Statuses: all of fa_fwd's but
 * FA_STATUS_WORKSPACE_TOO_SMALL. */
FA_API fa_status fa_supports(int32_t device, const fa_fwd_args *args,
                             fa_choice *choice) FA_NOEXCEPT;

/* The same of fa_bwd. */
FA_API fa_status fa_bwd_supports(int32_t device, const fa_bwd_args *args,
                                 fa_choice *choice) FA_NOEXCEPT;

/* Loads the kernels that fa_fwd and fa_bwd would run for these args onto args->device, without
 * launching any: the first call then costs what the others do. Looks at args as fa_supports does.
 * Either may be NULL. Takes milliseconds for kernels that are not loaded yet; may wait for the device
 * where the driver has to make room for code, and should not be made while a stream is captured.
 * Statuses: those of fa_supports. */
FA_API fa_status fa_preload(const fa_fwd_args *forward, const fa_bwd_args *backward) FA_NOEXCEPT;

/* Workspace in bytes and number of splits that fa_fwd takes for these args on args->device, looked at
 * as by fa_supports. With num_splits 0 the number is 1 unless the GPU would be left idle, and 1 when
 * the library has no split-KV unit for the problem. splits may be NULL. Launches nothing. Statuses:
 * those of fa_supports, and FA_STATUS_INVALID for bytes NULL. */
FA_API fa_status fa_fwd_workspace(const fa_fwd_args *args, uint64_t *bytes,
                                  int32_t *splits) FA_NOEXCEPT;

/* Enqueues attention on args->stream. A workspace smaller than fa_fwd_workspace's answer, NULL too,
 * is FA_STATUS_WORKSPACE_TOO_SMALL and never another algorithm; a larger one changes nothing.
 * Statuses: FA_STATUS_INVALID, FA_STATUS_UNSUPPORTED, FA_STATUS_NO_KERNEL_FOR_ARCH,
 * FA_STATUS_WORKSPACE_TOO_SMALL, FA_STATUS_CUDA. */
FA_API fa_status fa_fwd(const fa_fwd_args *args) FA_NOEXCEPT;

/* Workspace in bytes that fa_bwd takes for these args on args->device, looked at as by fa_supports.
 * Launches nothing. Statuses: those of fa_bwd_supports, and FA_STATUS_INVALID for bytes NULL. */
FA_API fa_status fa_bwd_workspace(const fa_bwd_args *args, uint64_t *bytes) FA_NOEXCEPT;

/* Enqueues the gradients on args->stream. Statuses: as fa_fwd. */
FA_API fa_status fa_bwd(const fa_bwd_args *args) FA_NOEXCEPT;

/* Enqueues the combination of partial results on args->stream: of ring attention, or of attention
 * over a prefix that many sequences share. Needs no workspace. Statuses: FA_STATUS_INVALID,
 * FA_STATUS_NO_KERNEL_FOR_ARCH, FA_STATUS_CUDA. */
FA_API fa_status fa_combine(const fa_combine_args *args) FA_NOEXCEPT;

/* "FA_STATUS_OK", "FA_STATUS_INVALID", ..; "unknown fa_status" for any other number. */
FA_API const char *fa_status_string(fa_status status) FA_NOEXCEPT;

/* Text of the last call on this thread that was not FA_STATUS_OK, "" before the first. Valid until
 * the next such call on this thread. UTF-8, one line. */
FA_API const char *fa_last_error(void) FA_NOEXCEPT;

/* fa_fwd and fa_bwd as a handler of XLA's foreign function interface (JAX: jax.ffi), of API 0.1 and
 * newer, for CUDA. Attributes of the custom call: `function`, int32: 0 fa_fwd, 1 fa_bwd;
 * `arguments`, bytes: its struct, with pointers, device and stream 0; `places`, int32 for each
 * operand, then each result: the offset in the struct of the pointer to it. Launches the same every
 * time, so XLA may capture it. */
struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;
FA_API struct XLA_FFI_Error *fa_xla_call(struct XLA_FFI_CallFrame *frame) FA_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

/* Initializers: a struct with its size set and the rest zero. */
#ifdef __cplusplus
#define FA_INLINE inline
#define FA_INIT_(type)              \
  inline type type##_init() {       \
    type value = type();            \
    value.size = sizeof(type);      \
    return value;                   \
  }
FA_INIT_(fa_fwd_args)
FA_INIT_(fa_bwd_args)
FA_INIT_(fa_combine_args)
FA_INIT_(fa_info)
FA_INIT_(fa_choice)
#undef FA_INIT_
#define FA_FWD_ARGS_INIT fa_fwd_args_init()
#define FA_BWD_ARGS_INIT fa_bwd_args_init()
#define FA_COMBINE_ARGS_INIT fa_combine_args_init()
#define FA_INFO_INIT fa_info_init()
#define FA_CHOICE_INIT fa_choice_init()
#else
#define FA_INLINE static inline
#define FA_FWD_ARGS_INIT {.size = sizeof(fa_fwd_args)}
#define FA_BWD_ARGS_INIT {.size = sizeof(fa_bwd_args)}
#define FA_COMBINE_ARGS_INIT {.size = sizeof(fa_combine_args)}
#define FA_INFO_INIT {.size = sizeof(fa_info)}
#define FA_CHOICE_INIT {.size = sizeof(fa_choice)}
#endif

/* A tensor at an address, with its strides in elements. */
FA_INLINE fa_tensor fa_make_tensor(void *data, int64_t batch_stride, int64_t row_stride,
                                   int64_t head_stride) {
  fa_tensor tensor;
  tensor.data = data;
  tensor.batch_stride = batch_stride;
  tensor.row_stride = row_stride;
  tensor.head_stride = head_stride;
  tensor.reserved0 = 0;
  tensor.reserved1 = 0;
  return tensor;
}

FA_INLINE fa_const_tensor fa_make_const_tensor(const void *data, int64_t batch_stride,
                                               int64_t row_stride, int64_t head_stride) {
  fa_const_tensor tensor;
  tensor.data = data;
  tensor.batch_stride = batch_stride;
  tensor.row_stride = row_stride;
  tensor.head_stride = head_stride;
  tensor.reserved0 = 0;
  tensor.reserved1 = 0;
  return tensor;
}

/* The same tensor, to be read only. */
FA_INLINE fa_const_tensor fa_as_const(fa_tensor tensor) {
  return fa_make_const_tensor(tensor.data, tensor.batch_stride, tensor.row_stride,
                              tensor.head_stride);
}

#undef FA_INLINE

#endif /* FLASH_ATTENTION_H */
