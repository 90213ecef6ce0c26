//! Bindings of libflashattention, FlashAttention-2 behind a C ABI. The header, `library/include/flash_attention.h`,
//! says what every call does.
//!
//! ```no_run
//! use flashattention_sys::*;
//!
//! let mut args = fa_fwd_args { dtype: FA_BF16, flags: FA_CAUSAL, ..Default::default() };
//! args.batch = 2;
//! // sizes, q, k, v, o, lse, stream
//! if unsafe { fa_fwd(&args) } != FA_OK {
//!     let text = unsafe { std::ffi::CStr::from_ptr(fa_last_error()) };
//!     eprintln!("{}", text.to_string_lossy());
//! }
//! ```
#![no_std]
// The names and the comments are the header's.
#![allow(non_camel_case_types, clippy::doc_lazy_continuation, clippy::doc_markdown)]
#![allow(clippy::cast_possible_truncation)] // of the sizes of structs

include!("bindings.rs");
