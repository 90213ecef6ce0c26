//! Typed arguments and errors over libflashattention. The README, which is shown with the feature `cudarc`, has a program.
#![cfg_attr(feature = "cudarc", doc = include_str!("../README.md"))]

mod error;
mod forward;
mod layout;
mod library;

#[cfg(feature = "candle")]
pub mod candle;
#[cfg(feature = "cudarc")]
pub mod cuda;

pub use error::{Error, ErrorKind};
pub use flashattention_sys as sys;
pub use forward::{Addresses, Choice, DType, Family, Forward, Mask, Shape, Workspace};
pub use layout::{Layout, Strides};
pub use library::{library, KernelFamily, Library};
