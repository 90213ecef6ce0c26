//! Bindings of libflashattention, FlashAttention behind a C ABI. What the header says of every call is said
//! here too; pages on the C API are in flashdepot's documentation.
//!
//! ```no_run
//! use flashattention_sys::*;
//!
//! let mut args = fa_fwd_args { dtype: FA_DTYPE_BF16, flags: FA_FLAG_CAUSAL, ..Default::default() };
//! args.batch = 2;
//! // sizes, q, k, v, o, lse, stream
//! if unsafe { fa_fwd(&args) } != FA_STATUS_OK {
//!     let text = unsafe { std::ffi::CStr::from_ptr(fa_last_error()) };
//!     eprintln!("{}", text.to_string_lossy());
//! }
//! ```
#![no_std]
// The names and the comments are the header's.
#![allow(
    non_camel_case_types,
    clippy::doc_lazy_continuation,
    clippy::doc_markdown
)]
#![allow(clippy::cast_possible_truncation)] // of the sizes of structs

include!("bindings.rs");
