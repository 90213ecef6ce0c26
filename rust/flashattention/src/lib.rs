//! Typed arguments and errors over libflashattention. The README, which is shown with the feature `cudarc`, has a program.
#![cfg_attr(feature = "cudarc", doc = include_str!("../README.md"))]

mod backward;
mod error;
mod forward;
mod layout;
mod lengths;
mod library;
mod options;
mod problem;

#[cfg(feature = "candle")]
pub mod candle;
#[cfg(feature = "cudarc")]
pub mod cuda;

pub use backward::{Backward, GradientAddresses};
pub use error::{Error, ErrorKind};
pub use flashattention_sys as sys;
pub use forward::{Addresses, Choice, Forward, Workspace};
pub use layout::{GradientLayout, Layout, Strides};
pub use lengths::{BlockTable, Lengths};
pub use library::{library, KernelFamily, Library};
pub use options::{Alibi, DType, Dropout, Family, Mask, Rotary};
pub use problem::{Differentiable, Extents, Packed, PackedPlaces, Paged, PagedPlaces, Problem, Shape};
