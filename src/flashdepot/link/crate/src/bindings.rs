// Written by scripts/renew_abi.py from flash_attention.h; do not edit.

pub type fa_status = i32;

pub const FA_VERSION_MAJOR: i32 = 1;

pub const FA_VERSION_MINOR: i32 = 0;

pub const FA_VERSION_PATCH: i32 = 0;

pub const FA_VERSION: i32 = 10000;

pub const FA_STATUS_OK: fa_status = 0;

/// an argument is wrong, whatever the library and the GPU
pub const FA_STATUS_INVALID: fa_status = 1;

/// right, but not in this library; the text says what has it
pub const FA_STATUS_UNSUPPORTED: fa_status = 2;

/// the library has no SASS that this GPU runs
pub const FA_STATUS_NO_KERNEL_FOR_ARCH: fa_status = 3;

/// ask fa_fwd_workspace or fa_bwd_workspace
pub const FA_STATUS_WORKSPACE_TOO_SMALL: fa_status = 4;

/// CUDA answered with an error, or there is no driver or GPU
pub const FA_STATUS_CUDA: fa_status = 5;

/// a fault of this library
pub const FA_STATUS_INTERNAL: fa_status = 6;

pub const FA_FAMILY_BEST: i32 = 0;

pub const FA_FAMILY_FA2: i32 = 2;

pub const FA_FAMILY_FA3: i32 = 3;

pub const FA_FAMILY_FA4: i32 = 4;

pub const FA_DTYPE_FP16: i32 = 1;

pub const FA_DTYPE_BF16: i32 = 2;

/// of q, k and v of fa_fwd, whose o is bf16; family fa3 has it
pub const FA_DTYPE_E4M3: i32 = 3;

/// of fa_combine
pub const FA_DTYPE_FP32: i32 = 4;

/// query i sees keys j \<= i + sk - sq; window_right is ignored
pub const FA_FLAG_CAUSAL: u32 = 1;

/// window_left is set: keys j \>= i + sk - sq - window_left
pub const FA_FLAG_WINDOW_LEFT: u32 = 2;

/// window_right is set: keys j \<= i + sk - sq + window_right
pub const FA_FLAG_WINDOW_RIGHT: u32 = 4;

/// fwd: rotary pairs are (0,1), (2,3), .. and not
/// (0,rotary_dim/2), ..
pub const FA_FLAG_ROTARY_INTERLEAVED: u32 = 8;

/// bwd: the same bits every time; the forward pass always is
pub const FA_FLAG_DETERMINISTIC: u32 = 16;

/// the lse of a row that sees no key is -inf and not +inf
pub const FA_FLAG_EMPTY_LSE_NEG_INF: u32 = 32;

pub const FA_PASS_FWD: i32 = 1;

pub const FA_PASS_SPLITKV: i32 = 2;

pub const FA_PASS_BWD: i32 = 3;

pub const FA_FEATURE_DROPOUT: u32 = 1;

pub const FA_FEATURE_ALIBI: u32 = 2;

pub const FA_FEATURE_SOFTCAP: u32 = 4;

/// windows other than causal
pub const FA_FEATURE_LOCAL: u32 = 8;

/// head dims between those of the units
pub const FA_FEATURE_UNEVEN_K: u32 = 16;

/// A tensor of head vectors: element (i, s, n, e) is at
/// data + i \* batch_stride + s \* row_stride + n \* head_stride + e.
/// data is aligned to 16 bytes. A stride is a multiple of 8, of FA_DTYPE_E4M3 of 16, and in \[0, 2^46\];
/// the stride of a dimension of extent 1 is not looked at.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_tensor {
    pub data: *mut core::ffi::c_void,
    /// of the page with block_table; else not looked at in a packed batch
    pub batch_stride: i64,
    pub row_stride: i64,
    pub head_stride: i64,
    pub reserved0: i64,
    pub reserved1: i64,
}

impl Default for fa_tensor {
    /// All zero.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        unsafe { core::mem::zeroed() }
    }
}

/// A fa_tensor that is only read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_const_tensor {
    pub data: *const core::ffi::c_void,
    pub batch_stride: i64,
    pub row_stride: i64,
    pub head_stride: i64,
    pub reserved0: i64,
    pub reserved1: i64,
}

impl Default for fa_const_tensor {
    /// All zero.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        unsafe { core::mem::zeroed() }
    }
}

/// o = softmax(scale \* q k^T + bias) v, and lse = log(sum(exp(scale \* q k^T + bias))).
///
/// A row that sees no key (sk 0, or masked) gets o = 0 and lse = +inf, or -inf with
/// FA_FLAG_EMPTY_LSE_NEG_INF.
/// With FA_FLAG_CAUSAL and ALiBi, lse is that of the bias slope \* j, which differs from the ALiBi bias
/// by a constant in each row; o is the same for both.
///
/// Pointers say which of three kinds a call is:
/// - packed: cu_seqlens_q and cu_seqlens_k are set (only one is FA_STATUS_INVALID). Sequences lie one
///   after the other in q, k, v and o, without a batch dimension; any may be empty. May have
///   seqused_k, leftpad_k or block_table, and dropout.
/// - cache: no cu_seqlens, and any of cache_seqlens, cache_batch_idx, block_table or k_new is set.
///   q and o are (b, sq, h, d), k and v hold keys of past calls. May have leftpad_k and rotary_cos.
///   No dropout.
/// - dense: none of those. May have dropout.
///
/// What is on the device is not looked at before the launch: lengths, page and batch indices must be
/// what their comments say. sq - sk below is that of each sequence: its queries are the last ones.
///
/// block_table, k_new and cache_batch_idx run in the split-KV kernels, with one split too.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_fwd_args {
    /// sizeof(fa_fwd_args)
    pub size: u32,
    /// FA_FLAG_ bits, all but FA_FLAG_DETERMINISTIC
    pub flags: u32,
    /// CUDA ordinal of the device that holds every buffer
    pub device: i32,
    /// FA_DTYPE_FP16, FA_DTYPE_BF16 or FA_DTYPE_E4M3
    pub dtype: i32,
    /// cudaStream_t (CUstream) of that device; NULL is the legacy default stream
    pub stream: *mut core::ffi::c_void,
    /// 0..65535; nothing is done when batch or seqlen_q is 0
    pub batch: i32,
    /// 0..2^29; the longest one when cu_seqlens_q is set
    pub seqlen_q: i32,
    /// 0..2^29; the longest one when cu_seqlens_k is set; the capacity of a cache:
    /// its rows, or pages of a sequence \* page_size
    pub seqlen_k: i32,
    /// 1..65535, a multiple of heads_k; batch \* heads_q \* seqlen_q \< 2^31, packed:
    /// heads_q \* total_q \< 2^31
    pub heads_q: i32,
    /// 1..heads_q; query head n uses key head n / (heads_q / heads_k)
    pub heads_k: i32,
    /// a multiple of 8, at most 256
    pub head_dim: i32,
    /// packed: rows of q, 0..2^31-1; else 0
    pub total_q: i64,
    /// packed: rows of k, 0..2^31-1; 0 with block_table; else 0
    pub total_k: i64,
    /// finite and \> 0; 0: 1 / sqrt(head_dim)
    pub scale: f32,
    /// scores become softcap \* tanh(score / softcap); 0: they do not
    pub softcap: f32,
    /// probability of dropping, in \[0, 1); not with softcap
    pub dropout: f32,
    /// split-KV: 1..128; 0: the number that fa_fwd_workspace answers, which may
    /// need a workspace. More than 1 not with dropout, and packed only where
    /// seqlen_q is 1, heads_q \> heads_k, total_q is batch, and there are neither
    /// windows nor ALiBi
    pub num_splits: i32,
    /// \>= 0, with FA_FLAG_WINDOW_LEFT; without it unbounded
    pub window_left: i32,
    /// \>= 0, with FA_FLAG_WINDOW_RIGHT; without it unbounded
    pub window_right: i32,
    /// (b, sq, h, d), or (total_q, h, d)
    pub q: fa_const_tensor,
    /// (b, sk, hk, d), (total_k, hk, d), or (pages, page_size, hk, d); written only where
    /// k_new is set
    pub k: fa_tensor,
    /// as k, with dv
    pub v: fa_tensor,
    /// as q, with dv; written; overlaps no input
    pub o: fa_tensor,
    /// (b, h, sq) contiguous, or (h, total_q) when packed; written. Rows of no sequence
    /// are not, in o too
    pub lse: *mut f32,
    /// aligned to 16 bytes; in use until the work on the stream is done
    pub workspace: *mut core::ffi::c_void,
    /// at least what fa_fwd_workspace said
    pub workspace_bytes: u64,
    /// (h) or (b, h): bias -slope \* |i + sk - sq - j|
    pub alibi_slopes: *const f32,
    /// of (b, h); 0 for (h)
    pub alibi_batch_stride: i64,
    /// Variable lengths. Device pointers; b + 1 or b entries.
    /// (b + 1) row of q where each sequence starts; the last: ends. When
    /// seqlen_q is 1 and total_q is batch: 0, 1, .., batch
    pub cu_seqlens_q: *const i32,
    /// (b + 1) row of k where each sequence starts; the last: ends. With
    /// block_table the differences count: keys of each sequence
    pub cu_seqlens_k: *const i32,
    /// (b) packed: keys in use of each sequence, with leftpad_k's
    pub seqused_k: *const i32,
    /// (b) keys to skip at the start of each sequence; packed, or with
    /// cache_seqlens; not with block_table
    pub leftpad_k: *const i32,
    /// Paged keys and values.
    /// (b, pages of a sequence): index of each page in k and v
    pub block_table: *const i32,
    /// of the batch, 0..2^46
    pub block_table_stride: i64,
    /// rows in a page, at least 1. fa2 reads pages of a multiple of 256 (head_dim
    /// up to 64), 128 (up to 128) or 64 where they lie; others it copies to the
    /// workspace, and appends no k_new to them
    pub page_size: i32,
    /// A KV cache in k and v. k_new and v_new are written there, at cache_seqlens, then attended to
    /// with the rest; k and v are outputs then. cache_seqlens does not change.
    /// rows in k_new and v_new, at most seqlen_k; 0: none. fa2 and fa3 take
    /// no more than queries see by a left window or attention_chunk
    pub seqlen_new: i32,
    /// (b, seqlen_new, hk, d); needs cache_seqlens and seqlen_q \>= 1
    pub k_new: fa_const_tensor,
    /// as k_new, with dv
    pub v_new: fa_const_tensor,
    /// (b) keys in the cache, with leftpad_k's; NULL: seqlen_k
    pub cache_seqlens: *const i32,
    /// (b) batch index in k and v; not with block_table
    pub cache_batch_idx: *const i32,
    /// (rotary_seqlen, rotary_dim / 2) contiguous, of dtype, aligned to
    /// 16 bytes; needs k_new. Turns k_new to where it is written, and
    /// query i to cache_seqlens + i; without FA_FLAG_CAUSAL and windows
    /// every query to cache_seqlens
    pub rotary_cos: *const core::ffi::c_void,
    /// as rotary_cos
    pub rotary_sin: *const core::ffi::c_void,
    /// a multiple of 16, at most head_dim
    pub rotary_dim: i32,
    /// at least seqlen_k
    pub rotary_seqlen: i32,
    /// Dropout. While dropout is 0, p_debug must be NULL and the others are not looked at. Advance the
    /// generator by b \* h \* 32 after a call. A dropout that 1 - dropout rounds away is 0.
    /// Philox seed, and
    pub seed: u64,
    /// Philox offset, unless
    pub offset: u64,
    /// both come from the device (a captured generator),
    pub seed_ptr: *const i64,
    /// where
    pub offset_ptr: *const i64,
    /// is added to \*offset_ptr
    pub offset_intragraph: u64,
    /// (2) on the device; written: seed, offset; fa_bwd reads it
    pub rng_state: *mut u64,
    /// (b, h, sq up to 128s, sk up to 128s) of dtype, aligned to 16 bytes;
    /// written: exp(score - largest so far in the row), with the sign bit
    /// set where dropped. What is wholly masked is not written
    pub p_debug: *mut core::ffi::c_void,
    /// FA_FAMILY_; 0: the best in the library
    pub family: i32,
    /// of v and o: a multiple of 8, at most 256, or 512 where head_dim is at most 64;
    /// 0: head_dim. Another one than head_dim may take a workspace
    pub head_dim_v: i32,
    /// (h): one more score of each row of the head, without a key and without a
    /// value: it adds exp(sink) to the sum. lse includes it. Not with
    /// FA_FLAG_CAUSAL and ALiBi
    pub sink: *const f32,
    /// Family fa3 has these, in the kinds of call that its kernels are for: FA_DTYPE_E4M3 with one head_dim for
    /// q, k and v, a multiple of 16; and bf16 with a head_dim up to 64 with qv or a head_dim_v over 256.
    /// Neither has dropout, ALiBi, softcap or rotary_cos.
    /// (b) packed: queries in use of each sequence, the last ones of its keys; not
    /// with sink
    pub seqused_q: *const i32,
    /// \> 0: a query sees only keys of its own chunk of that many; 0: all
    pub attention_chunk: i32,
    /// FA_DTYPE_ of o; 0: dtype. FA_DTYPE_BF16 where dtype is FA_DTYPE_E4M3
    pub out_dtype: i32,
    /// (b, sq, h, dv): adds scale \* qv v^T to the scores
    pub qv: fa_const_tensor,
    /// (b, hk) factors of q, k and v of FA_DTYPE_E4M3; NULL: 1. The weights are
    /// rounded to FA_DTYPE_E4M3 too before they meet v
    pub q_descale: *const f32,
    pub k_descale: *const f32,
    pub v_descale: *const f32,
    /// of all three
    pub descale_batch_stride: i64,
    pub descale_head_stride: i64,
}

impl Default for fa_fwd_args {
    /// All zero but `size`, which is that of this struct.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        let mut value: Self = unsafe { core::mem::zeroed() };
        value.size = core::mem::size_of::<Self>() as u32;
        value
    }
}

/// Gradients of fa_fwd, dense or (cu_seqlens_q and cu_seqlens_k set) packed. Fields that
/// fa_fwd_args has too mean the same and hold what they held there; o and lse are its outputs, with
/// FA_FLAG_EMPTY_LSE_NEG_INF if it had that flag.
///
/// A query that sees no key gets dq = 0, a key that no query sees dk = dv = 0. Rows of no sequence
/// are not written in dq, and undefined in dk and dv.
/// batch \* heads_q \* (seqlen_q up to 128s) \< 2^31; packed: heads_q \* (total_q + 128 \* batch) \< 2^31.
/// FA_FLAG_DETERMINISTIC needs a larger workspace: a dq for each of the blocks that add to it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_bwd_args {
    /// sizeof(fa_bwd_args)
    pub size: u32,
    /// FA_FLAG_ bits, all but FA_FLAG_ROTARY_INTERLEAVED
    pub flags: u32,
    pub device: i32,
    pub dtype: i32,
    pub stream: *mut core::ffi::c_void,
    pub batch: i32,
    pub seqlen_q: i32,
    pub seqlen_k: i32,
    pub heads_q: i32,
    pub heads_k: i32,
    pub head_dim: i32,
    pub total_q: i64,
    pub total_k: i64,
    pub scale: f32,
    pub softcap: f32,
    /// with it rng_state is required
    pub dropout: f32,
    /// as in fa_fwd_args; any family takes what any other's forward pass wrote
    pub family: i32,
    pub window_left: i32,
    pub window_right: i32,
    pub q: fa_const_tensor,
    pub k: fa_const_tensor,
    pub v: fa_const_tensor,
    pub o: fa_const_tensor,
    /// gradient of o, as o
    pub d_o: fa_const_tensor,
    /// as q; written
    pub dq: fa_tensor,
    /// as k; written
    pub dk: fa_tensor,
    /// as v; written
    pub dv: fa_tensor,
    /// from fa_fwd
    pub lse: *const f32,
    /// (b, h, sq up to 128s), or (h, total_q + 128 \* b); written: sum(d_o \* o) - d_lse,
    /// times 1 - dropout. Packed, sequence i is at cu_seqlens_q\[i\] + 128 \* i. NULL: not
    /// wanted, which d_sink does not allow
    pub softmax_d: *mut f32,
    /// as in fa_fwd_args
    pub workspace: *mut core::ffi::c_void,
    /// at least what fa_bwd_workspace said
    pub workspace_bytes: u64,
    pub alibi_slopes: *const f32,
    pub alibi_batch_stride: i64,
    pub cu_seqlens_q: *const i32,
    pub cu_seqlens_k: *const i32,
    /// (2) on the device, from fa_fwd; required with dropout
    pub rng_state: *const u64,
    /// gradient of lse, laid out as lse; NULL: none. That of an empty row is not
    /// looked at
    pub d_lse: *const f32,
    /// (h) as in fa_fwd_args
    pub sink: *const f32,
    /// (h) gradient of sink; written; NULL: not wanted. Needs sink
    pub d_sink: *mut f32,
    /// as in fa_fwd_args
    pub head_dim_v: i32,
    pub reserved0: i32,
}

impl Default for fa_bwd_args {
    /// All zero but `size`, which is that of this struct.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        let mut value: Self = unsafe { core::mem::zeroed() };
        value.size = core::mem::size_of::<Self>() as u32;
        value
    }
}

/// One attention of several over parts of the keys, each with its own softmax:
/// lse = log(sum(exp(lse_parts))) and o = sum(exp(lse_parts - lse) \* o_parts). A part whose lse is
/// +inf or -inf saw no key and adds nothing; where all are, o = 0 and lse is as for fa_fwd.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_combine_args {
    /// sizeof(fa_combine_args)
    pub size: u32,
    /// FA_FLAG_EMPTY_LSE_NEG_INF
    pub flags: u32,
    pub device: i32,
    /// of o: FA_DTYPE_FP16, FA_DTYPE_BF16 or FA_DTYPE_FP32
    pub dtype: i32,
    pub stream: *mut core::ffi::c_void,
    /// 1..256
    pub parts: i32,
    /// of o_parts, likewise; 0: dtype
    pub parts_dtype: i32,
    /// as in fa_fwd_args; 1 for a packed batch,
    pub batch: i32,
    /// whose rows are total_q
    pub seqlen_q: i32,
    pub heads_q: i32,
    /// a multiple of 8, at most 512
    pub head_dim_v: i32,
    /// (b, sq, h, dv), of each part
    pub o_parts: fa_const_tensor,
    /// of the parts; a multiple of 8, 0..2^46
    pub o_parts_stride: i64,
    /// (b, sq, h) floats, of each part; strides are any from 0 to 2^46
    pub lse_parts: fa_const_tensor,
    /// of the parts, likewise
    pub lse_parts_stride: i64,
    /// (b, sq, h, dv); written; overlaps no input
    pub o: fa_tensor,
    /// (b, h, sq) contiguous; written; NULL: not wanted
    pub lse: *mut f32,
}

impl Default for fa_combine_args {
    /// All zero but `size`, which is that of this struct.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        let mut value: Self = unsafe { core::mem::zeroed() };
        value.size = core::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_unit {
    /// FA_PASS_FWD, FA_PASS_SPLITKV or FA_PASS_BWD
    pub pass: i32,
    pub dtype: i32,
    pub head_dim: i32,
    /// 0 or 1
    pub causal: i32,
}

impl Default for fa_unit {
    /// All zero.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        unsafe { core::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_family {
    /// FA_FAMILY_
    pub family: i32,
    /// FA_FEATURE_ bits
    pub features: u32,
    /// "fa2"
    pub name: *const core::ffi::c_char,
    /// version of its source, "2.8.3.post2"
    pub upstream: *const core::ffi::c_char,
    /// architectures with SASS, 10 \* major + minor: 80, 90
    pub sass: *const i32,
    /// that upstream has, ascending; a head_dim runs in the next one up
    pub head_dims: *const i32,
    /// step by unit_size, not by sizeof(fa_unit)
    pub units: *const fa_unit,
    pub sass_count: i32,
    pub head_dims_count: i32,
    pub units_count: i32,
    pub unit_size: i32,
}

impl Default for fa_family {
    /// All zero.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        unsafe { core::mem::zeroed() }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_info {
    /// in: sizeof(fa_info); out: unchanged
    pub size: u32,
    /// as fa_version()
    pub version: i32,
    /// version of flashdepot that built it
    pub flashdepot: *const core::ffi::c_char,
    /// toolkit that compiled it, 1000 \* major + 10 \* minor: 13000
    pub cuda: i32,
    pub families_count: i32,
    /// the best first; step by family_size, not by sizeof(fa_family)
    pub families: *const fa_family,
    pub family_size: i32,
    pub reserved0: i32,
}

impl Default for fa_info {
    /// All zero but `size`, which is that of this struct.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        let mut value: Self = unsafe { core::mem::zeroed() };
        value.size = core::mem::size_of::<Self>() as u32;
        value
    }
}

/// Which family runs a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_choice {
    /// in: sizeof(fa_choice); out: unchanged
    pub size: u32,
    /// FA_FAMILY_; 0 where the answer is not FA_STATUS_OK
    pub family: i32,
    /// "fa2"; "" for none
    pub name: *const core::ffi::c_char,
    /// the families that come before it with args.family 0, and why each of them
    /// does not run these args: "fa4: dropout is 0.1; ..", or "". Valid until the
    /// next fa_supports or fa_bwd_supports of this thread
    pub why_not: *const core::ffi::c_char,
}

impl Default for fa_choice {
    /// All zero but `size`, which is that of this struct.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        let mut value: Self = unsafe { core::mem::zeroed() };
        value.size = core::mem::size_of::<Self>() as u32;
        value
    }
}

const _: () = {
    assert!(core::mem::size_of::<fa_tensor>() == 48);
    assert!(core::mem::size_of::<fa_const_tensor>() == 48);
    assert!(core::mem::size_of::<fa_fwd_args>() == 688);
    assert!(core::mem::size_of::<fa_bwd_args>() == 576);
    assert!(core::mem::size_of::<fa_combine_args>() == 216);
    assert!(core::mem::size_of::<fa_unit>() == 16);
    assert!(core::mem::size_of::<fa_family>() == 64);
    assert!(core::mem::size_of::<fa_info>() == 40);
    assert!(core::mem::size_of::<fa_choice>() == 24);
};

extern "C" {
    /// FA_VERSION of the library. Needs no GPU.
    pub fn fa_version() -> i32;
    /// Fills \*info; pointers in it stay valid while the library is loaded. Needs no GPU. Statuses:
    /// FA_STATUS_INVALID for info NULL and a size that cannot be one.
    pub fn fa_build_info(info: *mut fa_info) -> fa_status;
    /// Whether fa_fwd would run these args on this device, and which family. Looks at sizes, dtype, flags
    /// and numbers, and at optional pointers for being NULL or not; q, k, v, o, lse, strides and the
    /// workspace are not looked at. args-\>device is ignored. device -1: on any GPU that the library has
    /// SASS for; needs no GPU then. choice may be NULL. Launches nothing. Statuses: all of fa_fwd's but
    /// FA_STATUS_WORKSPACE_TOO_SMALL.
    pub fn fa_supports(device: i32, args: *const fa_fwd_args, choice: *mut fa_choice) -> fa_status;
    /// The same of fa_bwd.
    pub fn fa_bwd_supports(device: i32, args: *const fa_bwd_args, choice: *mut fa_choice) -> fa_status;
    /// Loads the kernels that fa_fwd and fa_bwd would run for these args onto args-\>device, without
    /// launching any: the first call then costs what the others do. Looks at args as fa_supports does.
    /// Either may be NULL. Takes milliseconds for kernels that are not loaded yet; may wait for the device
    /// where the driver has to make room for code, and should not be made while a stream is captured.
    /// Statuses: those of fa_supports.
    pub fn fa_preload(forward: *const fa_fwd_args, backward: *const fa_bwd_args) -> fa_status;
    /// Workspace in bytes and number of splits that fa_fwd takes for these args on args-\>device, looked at
    /// as by fa_supports. With num_splits 0 the number is 1 unless the GPU would be left idle, and 1 when
    /// the library has no split-KV unit for the problem. splits may be NULL. Launches nothing. Statuses:
    /// those of fa_supports, and FA_STATUS_INVALID for bytes NULL.
    pub fn fa_fwd_workspace(args: *const fa_fwd_args, bytes: *mut u64, splits: *mut i32) -> fa_status;
    /// Enqueues attention on args-\>stream. A workspace smaller than fa_fwd_workspace's answer, NULL too,
    /// is FA_STATUS_WORKSPACE_TOO_SMALL and never another algorithm; a larger one changes nothing.
    /// Statuses: FA_STATUS_INVALID, FA_STATUS_UNSUPPORTED, FA_STATUS_NO_KERNEL_FOR_ARCH,
    /// FA_STATUS_WORKSPACE_TOO_SMALL, FA_STATUS_CUDA.
    pub fn fa_fwd(args: *const fa_fwd_args) -> fa_status;
    /// Workspace in bytes that fa_bwd takes for these args on args-\>device, looked at as by fa_supports.
    /// Launches nothing. Statuses: those of fa_bwd_supports, and FA_STATUS_INVALID for bytes NULL.
    pub fn fa_bwd_workspace(args: *const fa_bwd_args, bytes: *mut u64) -> fa_status;
    /// Enqueues the gradients on args-\>stream. Statuses: as fa_fwd.
    pub fn fa_bwd(args: *const fa_bwd_args) -> fa_status;
    /// Enqueues the combination of partial results on args-\>stream: of ring attention, or of attention
    /// over a prefix that many sequences share. Needs no workspace. Statuses: FA_STATUS_INVALID,
    /// FA_STATUS_NO_KERNEL_FOR_ARCH, FA_STATUS_CUDA.
    pub fn fa_combine(args: *const fa_combine_args) -> fa_status;
    /// "FA_STATUS_OK", "FA_STATUS_INVALID", ..; "unknown fa_status" for any other number.
    pub fn fa_status_string(status: fa_status) -> *const core::ffi::c_char;
    /// Text of the last call on this thread that was not FA_STATUS_OK, "" before the first. Valid until
    /// the next such call on this thread. UTF-8, one line.
    pub fn fa_last_error() -> *const core::ffi::c_char;
}
