// Written by flashdepot from flash_attention.h; do not edit.

pub type fa_status = i32;

/// fa_info.abi of a library that knows every field below
pub const FA_ABI: u32 = 1;
pub const FA_OK: fa_status = 0;
/// an argument is wrong, whatever the library and the GPU
pub const FA_INVALID: fa_status = 1;
/// right, but not in this library; the text says what would have it
pub const FA_UNSUPPORTED: fa_status = 2;
/// the library has no SASS that this GPU runs
pub const FA_NO_KERNEL_FOR_ARCH: fa_status = 3;
/// ask fa_fwd_workspace or fa_bwd_workspace
pub const FA_WORKSPACE_TOO_SMALL: fa_status = 4;
/// the CUDA runtime answered with an error
pub const FA_CUDA: fa_status = 5;
/// a fault of this library
pub const FA_INTERNAL: fa_status = 6;
pub const FA_FAMILY_BEST: i32 = 0;
pub const FA_FAMILY_FA2: i32 = 2;
pub const FA_FAMILY_FA4: i32 = 4;
pub const FA_FP16: i32 = 1;
pub const FA_BF16: i32 = 2;
/// query i sees keys j \<= i + sk - sq; window_right is ignored
pub const FA_CAUSAL: u32 = 1;
/// window_left is set: keys j \>= i + sk - sq - window_left
pub const FA_WINDOW_LEFT: u32 = 2;
/// window_right is set: keys j \<= i + sk - sq + window_right
pub const FA_WINDOW_RIGHT: u32 = 4;
/// fwd: rotary pairs are (0,1), (2,3), .. and not (0,rotary_dim/2), ..
pub const FA_ROTARY_INTERLEAVED: u32 = 8;
/// bwd: the same bits every time; the forward pass always is
pub const FA_DETERMINISTIC: u32 = 16;
pub const FA_FWD: i32 = 1;
pub const FA_SPLITKV: i32 = 2;
pub const FA_BWD: i32 = 3;
pub const FA_FEATURE_DROPOUT: u32 = 1;
pub const FA_FEATURE_ALIBI: u32 = 2;
pub const FA_FEATURE_SOFTCAP: u32 = 4;
/// windows other than causal
pub const FA_FEATURE_LOCAL: u32 = 8;
/// head dims between those of the units
pub const FA_FEATURE_UNEVEN_K: u32 = 16;

/// A tensor of head vectors: element (i, s, n, e) is at
/// data + i \* batch_stride + s \* row_stride + n \* head_stride + e.
/// data is aligned to 16 bytes. A stride is a multiple of 8 and in \[0, 2^46\]; the stride of a
/// dimension of extent 1 is not looked at. Inputs are never written.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_tensor {
    pub data: *mut core::ffi::c_void,
    /// of the page with block_table; else not looked at in a packed batch
    pub batch_stride: i64,
    pub row_stride: i64,
    pub head_stride: i64,
}

impl Default for fa_tensor {
    /// All zero.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        unsafe { core::mem::zeroed() }
    }
}

/// o = softmax(scale \* q k^T + bias) v, and lse = log(sum(exp(scale \* q k^T + bias))).
///
/// A row that sees no key (sk 0, or masked) gets o = 0 and lse = +inf.
/// With FA_CAUSAL and ALiBi, lse is that of the bias slope \* j, which differs from the ALiBi bias
/// by a constant in each row; o is the same for both.
///
/// Pointers say which of three kinds a call is:
/// - packed: cu_seqlens_q and cu_seqlens_k are set (one alone is FA_INVALID). Sequences lie one
/// after the other in q, k, v and o, without a batch dimension; any may be empty. May have
/// seqused_k, leftpad_k or block_table, and dropout.
/// - cache: no cu_seqlens, and any of cache_seqlens, cache_batch_idx, block_table or k_new is set.
/// q and o are (b, sq, h, d), k and v hold keys of past calls. May have leftpad_k and rotary_cos.
/// No dropout.
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
    /// FA_CAUSAL .. FA_ROTARY_INTERLEAVED
    pub flags: u32,
    /// CUDA ordinal of the device that holds every buffer
    pub device: i32,
    /// FA_FP16 or FA_BF16
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
    /// split-KV: 1..128; 0: chosen by fa_fwd_workspace's rule, and 1 when
    /// workspace is NULL. More than 1 not with dropout, and packed only where
    /// seqlen_q is 1, heads_q \> heads_k, total_q is batch, and there are neither
    /// windows nor ALiBi
    pub num_splits: i32,
    /// \>= 0, with FA_WINDOW_LEFT; without it unbounded
    pub window_left: i32,
    /// \>= 0, with FA_WINDOW_RIGHT; without it unbounded
    pub window_right: i32,
    /// (b, sq, h, d), or (total_q, h, d)
    pub q: fa_tensor,
    /// (b, sk, hk, d), (total_k, hk, d), or (pages, page_size, hk, d)
    pub k: fa_tensor,
    /// as k
    pub v: fa_tensor,
    /// as q; written; overlaps no input
    pub o: fa_tensor,
    /// (b, h, sq) contiguous, or (h, total_q) when packed; written. Rows of no sequence
    /// are left alone, in o too
    pub lse: *mut f32,
    /// aligned to 16 bytes; in use until the work on the stream is done
    pub workspace: *mut core::ffi::c_void,
    /// at least what fa_fwd_workspace said
    pub workspace_bytes: u64,
    /// (h) or (b, h): bias -slope \* |i + sk - sq - j|
    pub alibi_slopes: *const f32,
    /// of (b, h); 0 for (h)
    pub alibi_batch_stride: i64,
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
    /// (b, pages of a sequence): index of each page in k and v
    pub block_table: *const i32,
    /// of the batch, 0..2^46
    pub block_table_stride: i64,
    /// rows in a page, a multiple of 256
    pub page_size: i32,
    /// rows in k_new and v_new, at most seqlen_k; 0: none
    pub seqlen_new: i32,
    /// (b, seqlen_new, hk, d); needs cache_seqlens and seqlen_q \>= 1
    pub k_new: fa_tensor,
    /// as k_new
    pub v_new: fa_tensor,
    /// (b) keys in the cache, with leftpad_k's; NULL: seqlen_k
    pub cache_seqlens: *const i32,
    /// (b) batch index in k and v; not with block_table
    pub cache_batch_idx: *const i32,
    /// (rotary_seqlen, rotary_dim / 2) contiguous, of dtype, aligned to
    /// 16 bytes; needs k_new. Turns k_new to where it is written, and
    /// query i to cache_seqlens + i; without FA_CAUSAL and windows
    /// every query to cache_seqlens
    pub rotary_cos: *const core::ffi::c_void,
    /// as rotary_cos
    pub rotary_sin: *const core::ffi::c_void,
    /// a multiple of 16, at most head_dim
    pub rotary_dim: i32,
    /// at least seqlen_k
    pub rotary_seqlen: i32,
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
    /// set where dropped. What is wholly masked is left alone
    pub p_debug: *mut core::ffi::c_void,
    /// FA_FAMILY_; 0: the best in the library
    pub family: i32,
    pub reserved0: i32,
}

impl Default for fa_fwd_args {
    /// All zero but `size`, which is that of this struct.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        let mut value: fa_fwd_args = unsafe { core::mem::zeroed() };
        value.size = core::mem::size_of::<fa_fwd_args>() as u32;
        value
    }
}

/// Gradients of fa_fwd, dense or (cu_seqlens_q and cu_seqlens_k set) packed. Fields that
/// fa_fwd_args has too mean the same and hold what they held there; o and lse are its outputs.
///
/// A query that sees no key gets dq = 0, a key that no query sees dk = dv = 0. Rows of no sequence
/// are left alone in dq, and undefined in dk and dv.
/// batch \* heads_q \* (seqlen_q up to 128s) \< 2^31; packed: heads_q \* (total_q + 128 \* batch) \< 2^31.
/// FA_DETERMINISTIC needs a larger workspace: a dq for each of the blocks that add to it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_bwd_args {
    /// sizeof(fa_bwd_args)
    pub size: u32,
    /// FA_CAUSAL, FA_WINDOW_LEFT, FA_WINDOW_RIGHT, FA_DETERMINISTIC
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
    pub q: fa_tensor,
    pub k: fa_tensor,
    pub v: fa_tensor,
    pub o: fa_tensor,
    /// gradient of o, as o
    pub d_o: fa_tensor,
    /// as q; written
    pub dq: fa_tensor,
    /// as k; written
    pub dk: fa_tensor,
    /// as v; written
    pub dv: fa_tensor,
    /// from fa_fwd
    pub lse: *const f32,
    /// (b, h, sq up to 128s), or (h, total_q + 128 \* b); written: sum(d_o \* o)
    /// times 1 - dropout. Packed, sequence i is at cu_seqlens_q\[i\] + 128 \* i
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
}

impl Default for fa_bwd_args {
    /// All zero but `size`, which is that of this struct.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        let mut value: fa_bwd_args = unsafe { core::mem::zeroed() };
        value.size = core::mem::size_of::<fa_bwd_args>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_unit {
    /// FA_FWD, FA_SPLITKV or FA_BWD
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
    /// FA_FAMILY_FA2 or FA_FAMILY_FA4
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
    /// FA_ABI of the library; 0 in no library
    pub abi: u32,
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
        let mut value: fa_info = unsafe { core::mem::zeroed() };
        value.size = core::mem::size_of::<fa_info>() as u32;
        value
    }
}

/// Which family runs a forward pass.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct fa_choice {
    /// in: sizeof(fa_choice); out: unchanged
    pub size: u32,
    /// FA_FAMILY_FA2 or FA_FAMILY_FA4; 0 where the answer is not FA_OK
    pub family: i32,
    /// "fa2"; "" for none
    pub name: *const core::ffi::c_char,
    /// the families that come before it with args.family 0, and why each of them
    /// does not run these args: "fa4: dropout is 0.1; ..", or "". Valid until the
    /// next fa_supports of this thread
    pub why_not: *const core::ffi::c_char,
}

impl Default for fa_choice {
    /// All zero but `size`, which is that of this struct.
    fn default() -> Self {
        // SAFETY: zero is a value of every number and pointer.
        let mut value: fa_choice = unsafe { core::mem::zeroed() };
        value.size = core::mem::size_of::<fa_choice>() as u32;
        value
    }
}

const _: () = {
    assert!(core::mem::size_of::<fa_tensor>() == 32);
    assert!(core::mem::align_of::<fa_tensor>() == 8);
    assert!(core::mem::offset_of!(fa_tensor, data) == 0);
    assert!(core::mem::offset_of!(fa_tensor, batch_stride) == 8);
    assert!(core::mem::offset_of!(fa_tensor, row_stride) == 16);
    assert!(core::mem::offset_of!(fa_tensor, head_stride) == 24);
};

const _: () = {
    assert!(core::mem::size_of::<fa_fwd_args>() == 480);
    assert!(core::mem::align_of::<fa_fwd_args>() == 8);
    assert!(core::mem::offset_of!(fa_fwd_args, size) == 0);
    assert!(core::mem::offset_of!(fa_fwd_args, flags) == 4);
    assert!(core::mem::offset_of!(fa_fwd_args, device) == 8);
    assert!(core::mem::offset_of!(fa_fwd_args, dtype) == 12);
    assert!(core::mem::offset_of!(fa_fwd_args, stream) == 16);
    assert!(core::mem::offset_of!(fa_fwd_args, batch) == 24);
    assert!(core::mem::offset_of!(fa_fwd_args, seqlen_q) == 28);
    assert!(core::mem::offset_of!(fa_fwd_args, seqlen_k) == 32);
    assert!(core::mem::offset_of!(fa_fwd_args, heads_q) == 36);
    assert!(core::mem::offset_of!(fa_fwd_args, heads_k) == 40);
    assert!(core::mem::offset_of!(fa_fwd_args, head_dim) == 44);
    assert!(core::mem::offset_of!(fa_fwd_args, total_q) == 48);
    assert!(core::mem::offset_of!(fa_fwd_args, total_k) == 56);
    assert!(core::mem::offset_of!(fa_fwd_args, scale) == 64);
    assert!(core::mem::offset_of!(fa_fwd_args, softcap) == 68);
    assert!(core::mem::offset_of!(fa_fwd_args, dropout) == 72);
    assert!(core::mem::offset_of!(fa_fwd_args, num_splits) == 76);
    assert!(core::mem::offset_of!(fa_fwd_args, window_left) == 80);
    assert!(core::mem::offset_of!(fa_fwd_args, window_right) == 84);
    assert!(core::mem::offset_of!(fa_fwd_args, q) == 88);
    assert!(core::mem::offset_of!(fa_fwd_args, k) == 120);
    assert!(core::mem::offset_of!(fa_fwd_args, v) == 152);
    assert!(core::mem::offset_of!(fa_fwd_args, o) == 184);
    assert!(core::mem::offset_of!(fa_fwd_args, lse) == 216);
    assert!(core::mem::offset_of!(fa_fwd_args, workspace) == 224);
    assert!(core::mem::offset_of!(fa_fwd_args, workspace_bytes) == 232);
    assert!(core::mem::offset_of!(fa_fwd_args, alibi_slopes) == 240);
    assert!(core::mem::offset_of!(fa_fwd_args, alibi_batch_stride) == 248);
    assert!(core::mem::offset_of!(fa_fwd_args, cu_seqlens_q) == 256);
    assert!(core::mem::offset_of!(fa_fwd_args, cu_seqlens_k) == 264);
    assert!(core::mem::offset_of!(fa_fwd_args, seqused_k) == 272);
    assert!(core::mem::offset_of!(fa_fwd_args, leftpad_k) == 280);
    assert!(core::mem::offset_of!(fa_fwd_args, block_table) == 288);
    assert!(core::mem::offset_of!(fa_fwd_args, block_table_stride) == 296);
    assert!(core::mem::offset_of!(fa_fwd_args, page_size) == 304);
    assert!(core::mem::offset_of!(fa_fwd_args, seqlen_new) == 308);
    assert!(core::mem::offset_of!(fa_fwd_args, k_new) == 312);
    assert!(core::mem::offset_of!(fa_fwd_args, v_new) == 344);
    assert!(core::mem::offset_of!(fa_fwd_args, cache_seqlens) == 376);
    assert!(core::mem::offset_of!(fa_fwd_args, cache_batch_idx) == 384);
    assert!(core::mem::offset_of!(fa_fwd_args, rotary_cos) == 392);
    assert!(core::mem::offset_of!(fa_fwd_args, rotary_sin) == 400);
    assert!(core::mem::offset_of!(fa_fwd_args, rotary_dim) == 408);
    assert!(core::mem::offset_of!(fa_fwd_args, rotary_seqlen) == 412);
    assert!(core::mem::offset_of!(fa_fwd_args, seed) == 416);
    assert!(core::mem::offset_of!(fa_fwd_args, offset) == 424);
    assert!(core::mem::offset_of!(fa_fwd_args, seed_ptr) == 432);
    assert!(core::mem::offset_of!(fa_fwd_args, offset_ptr) == 440);
    assert!(core::mem::offset_of!(fa_fwd_args, offset_intragraph) == 448);
    assert!(core::mem::offset_of!(fa_fwd_args, rng_state) == 456);
    assert!(core::mem::offset_of!(fa_fwd_args, p_debug) == 464);
    assert!(core::mem::offset_of!(fa_fwd_args, family) == 472);
    assert!(core::mem::offset_of!(fa_fwd_args, reserved0) == 476);
};

const _: () = {
    assert!(core::mem::size_of::<fa_bwd_args>() == 416);
    assert!(core::mem::align_of::<fa_bwd_args>() == 8);
    assert!(core::mem::offset_of!(fa_bwd_args, size) == 0);
    assert!(core::mem::offset_of!(fa_bwd_args, flags) == 4);
    assert!(core::mem::offset_of!(fa_bwd_args, device) == 8);
    assert!(core::mem::offset_of!(fa_bwd_args, dtype) == 12);
    assert!(core::mem::offset_of!(fa_bwd_args, stream) == 16);
    assert!(core::mem::offset_of!(fa_bwd_args, batch) == 24);
    assert!(core::mem::offset_of!(fa_bwd_args, seqlen_q) == 28);
    assert!(core::mem::offset_of!(fa_bwd_args, seqlen_k) == 32);
    assert!(core::mem::offset_of!(fa_bwd_args, heads_q) == 36);
    assert!(core::mem::offset_of!(fa_bwd_args, heads_k) == 40);
    assert!(core::mem::offset_of!(fa_bwd_args, head_dim) == 44);
    assert!(core::mem::offset_of!(fa_bwd_args, total_q) == 48);
    assert!(core::mem::offset_of!(fa_bwd_args, total_k) == 56);
    assert!(core::mem::offset_of!(fa_bwd_args, scale) == 64);
    assert!(core::mem::offset_of!(fa_bwd_args, softcap) == 68);
    assert!(core::mem::offset_of!(fa_bwd_args, dropout) == 72);
    assert!(core::mem::offset_of!(fa_bwd_args, family) == 76);
    assert!(core::mem::offset_of!(fa_bwd_args, window_left) == 80);
    assert!(core::mem::offset_of!(fa_bwd_args, window_right) == 84);
    assert!(core::mem::offset_of!(fa_bwd_args, q) == 88);
    assert!(core::mem::offset_of!(fa_bwd_args, k) == 120);
    assert!(core::mem::offset_of!(fa_bwd_args, v) == 152);
    assert!(core::mem::offset_of!(fa_bwd_args, o) == 184);
    assert!(core::mem::offset_of!(fa_bwd_args, d_o) == 216);
    assert!(core::mem::offset_of!(fa_bwd_args, dq) == 248);
    assert!(core::mem::offset_of!(fa_bwd_args, dk) == 280);
    assert!(core::mem::offset_of!(fa_bwd_args, dv) == 312);
    assert!(core::mem::offset_of!(fa_bwd_args, lse) == 344);
    assert!(core::mem::offset_of!(fa_bwd_args, softmax_d) == 352);
    assert!(core::mem::offset_of!(fa_bwd_args, workspace) == 360);
    assert!(core::mem::offset_of!(fa_bwd_args, workspace_bytes) == 368);
    assert!(core::mem::offset_of!(fa_bwd_args, alibi_slopes) == 376);
    assert!(core::mem::offset_of!(fa_bwd_args, alibi_batch_stride) == 384);
    assert!(core::mem::offset_of!(fa_bwd_args, cu_seqlens_q) == 392);
    assert!(core::mem::offset_of!(fa_bwd_args, cu_seqlens_k) == 400);
    assert!(core::mem::offset_of!(fa_bwd_args, rng_state) == 408);
};

const _: () = {
    assert!(core::mem::size_of::<fa_unit>() == 16);
    assert!(core::mem::align_of::<fa_unit>() == 4);
    assert!(core::mem::offset_of!(fa_unit, pass) == 0);
    assert!(core::mem::offset_of!(fa_unit, dtype) == 4);
    assert!(core::mem::offset_of!(fa_unit, head_dim) == 8);
    assert!(core::mem::offset_of!(fa_unit, causal) == 12);
};

const _: () = {
    assert!(core::mem::size_of::<fa_family>() == 64);
    assert!(core::mem::align_of::<fa_family>() == 8);
    assert!(core::mem::offset_of!(fa_family, family) == 0);
    assert!(core::mem::offset_of!(fa_family, features) == 4);
    assert!(core::mem::offset_of!(fa_family, name) == 8);
    assert!(core::mem::offset_of!(fa_family, upstream) == 16);
    assert!(core::mem::offset_of!(fa_family, sass) == 24);
    assert!(core::mem::offset_of!(fa_family, head_dims) == 32);
    assert!(core::mem::offset_of!(fa_family, units) == 40);
    assert!(core::mem::offset_of!(fa_family, sass_count) == 48);
    assert!(core::mem::offset_of!(fa_family, head_dims_count) == 52);
    assert!(core::mem::offset_of!(fa_family, units_count) == 56);
    assert!(core::mem::offset_of!(fa_family, unit_size) == 60);
};

const _: () = {
    assert!(core::mem::size_of::<fa_info>() == 40);
    assert!(core::mem::align_of::<fa_info>() == 8);
    assert!(core::mem::offset_of!(fa_info, size) == 0);
    assert!(core::mem::offset_of!(fa_info, abi) == 4);
    assert!(core::mem::offset_of!(fa_info, flashdepot) == 8);
    assert!(core::mem::offset_of!(fa_info, cuda) == 16);
    assert!(core::mem::offset_of!(fa_info, families_count) == 20);
    assert!(core::mem::offset_of!(fa_info, families) == 24);
    assert!(core::mem::offset_of!(fa_info, family_size) == 32);
    assert!(core::mem::offset_of!(fa_info, reserved0) == 36);
};

const _: () = {
    assert!(core::mem::size_of::<fa_choice>() == 24);
    assert!(core::mem::align_of::<fa_choice>() == 8);
    assert!(core::mem::offset_of!(fa_choice, size) == 0);
    assert!(core::mem::offset_of!(fa_choice, family) == 4);
    assert!(core::mem::offset_of!(fa_choice, name) == 8);
    assert!(core::mem::offset_of!(fa_choice, why_not) == 16);
};

extern "C" {
    /// Fills \*info; pointers in it stay valid while the library is loaded. Needs no GPU.
    pub fn fa_build_info(info: *mut fa_info) -> fa_status;
    /// Whether fa_fwd would run these args on this device. Looks at sizes, dtype, flags and numbers,
    /// and at optional pointers for being NULL or not; q, k, v, o, lse, strides and the workspace are
    /// not looked at. args-\>device is ignored. device -1: on any GPU that the library has SASS for;
    /// needs no GPU then. choice may be NULL.
    pub fn fa_supports(device: i32, args: *const fa_fwd_args, choice: *mut fa_choice) -> fa_status;
    /// Workspace in bytes and number of splits for these args, looked at as by fa_supports. With
    /// num_splits 0 the number is upstream's choice for args-\>device: 1 unless the GPU would be left
    /// idle, and 1 when the library has no split-KV unit for the problem. splits may be NULL. A packed
    /// batch with block_table needs a workspace with one split too. In a library of several families
    /// the need is that of the one that runs on args-\>device.
    pub fn fa_fwd_workspace(args: *const fa_fwd_args, bytes: *mut u64, splits: *mut i32) -> fa_status;
    pub fn fa_fwd(args: *const fa_fwd_args) -> fa_status;
    /// Workspace in bytes, looked at as by fa_supports. With FA_DETERMINISTIC it depends on
    /// args-\>device.
    pub fn fa_bwd_workspace(args: *const fa_bwd_args, bytes: *mut u64) -> fa_status;
    pub fn fa_bwd(args: *const fa_bwd_args) -> fa_status;
    /// "FA_OK", "FA_INVALID", ..; "unknown fa_status" for any other number.
    pub fn fa_status_string(status: fa_status) -> *const core::ffi::c_char;
    /// Text of the last call on this thread that was not FA_OK, "" before the first. Valid until the
    /// next such call on this thread. UTF-8, one line.
    pub fn fa_last_error() -> *const core::ffi::c_char;
}
