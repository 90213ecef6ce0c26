use std::ffi::CStr;

use flashattention_sys as sys;

use crate::layout::{address, number};
use crate::{Error, Layout};

/// The type of the elements of queries, keys, values and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

/// The sizes of a problem. Query head `n` uses key head `n / (heads_q / heads_k)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Rows of each sequence of queries.
    pub seqlen_q: usize,
    /// Rows of each sequence of keys and values.
    pub seqlen_k: usize,
    /// Heads of the queries, a multiple of `heads_k`.
    pub heads_q: usize,
    /// Heads of the keys and values.
    pub heads_k: usize,
    /// Elements of a head vector: a multiple of 8, at most 256.
    pub head_dim: usize,
}

/// Which keys a query sees. The last query stands at the last key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mask {
    /// All.
    #[default]
    None,
    /// Those up to its own place.
    Causal,
    /// Those at most so many places before and after its own; `None` is without an end.
    Window {
        /// Places before.
        left: Option<usize>,
        /// Places after.
        right: Option<usize>,
    },
}

/// Which line of kernels runs a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// The fastest of those in the library that can.
    #[default]
    Best,
    /// FlashAttention-2.
    Fa2,
    /// FlashAttention-4.
    Fa4,
}

/// Which kernels would run a problem, and why not faster ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The name of the family: `fa2`.
    pub family: String,
    /// The families that come before it, and why each of them does not run this; often empty.
    pub why_not: String,
}

/// What a call needs besides its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Bytes on the device, aligned to 16.
    pub bytes: u64,
    /// Into how many parts the keys are split.
    pub splits: i32,
}

/// `o = softmax(scale * q k^T) v` for a dense batch.
///
/// ```no_run
/// use flashattention::{DType, Forward, Mask, Shape};
///
/// # fn main() -> Result<(), flashattention::Error> {
/// let shape = Shape { batch: 2, seqlen_q: 1024, seqlen_k: 1024, heads_q: 16, heads_k: 4, head_dim: 128 };
/// let forward = Forward::new(shape, DType::Bf16).mask(Mask::Causal);
/// println!("{}", forward.supported()?.family);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Forward {
    shape: Shape,
    dtype: DType,
    mask: Mask,
    scale: f32,
    softcap: f32,
    family: Family,
}

/// Addresses on a device of what a call reads and writes.
///
/// 0 is no address; a tensor without elements may have it.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The queries.
    pub q: u64,
    /// The keys.
    pub k: u64,
    /// The values.
    pub v: u64,
    /// The output, which is written.
    pub o: u64,
    /// `(batch, heads_q, seqlen_q)` of `f32`, which is written: log of the sum of exponentials of each row.
    pub lse: u64,
    /// The workspace, of as many bytes.
    pub workspace: (u64, u64),
}

impl Forward {
    /// A problem without a mask, with the scale `1 / sqrt(head_dim)`.
    pub fn new(shape: Shape, dtype: DType) -> Self {
        Self { shape, dtype, mask: Mask::None, scale: 0.0, softcap: 0.0, family: Family::Best }
    }

    /// Which keys a query sees.
    pub fn mask(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    /// What scores are multiplied by; finite and positive.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = scale;
        self
    }

    /// Scores become `softcap * tanh(score / softcap)`.
    pub fn softcap(mut self, softcap: f32) -> Self {
        self.softcap = softcap;
        self
    }

    /// Which kernels to take.
    pub fn family(mut self, family: Family) -> Self {
        self.family = family;
        self
    }

    /// The sizes.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Which kernels run this on a GPU that the library has machine code for. Needs no GPU.
    ///
    /// # Errors
    /// When a number is wrong, or the library has no kernel for it.
    pub fn supported(&self) -> Result<Choice, Error> {
        self.supported_by(-1)
    }

    /// Which kernels run this on a device.
    ///
    /// # Errors
    /// As [`supported`](Self::supported), and when the library has no machine code for that GPU.
    pub fn supported_on(&self, device: usize) -> Result<Choice, Error> {
        self.supported_by(number("device", device)?)
    }

    /// The workspace of a call on a device.
    ///
    /// # Errors
    /// As [`supported_on`](Self::supported_on).
    pub fn workspace(&self, device: usize) -> Result<Workspace, Error> {
        let mut args = self.arguments()?;
        args.device = number("device", device)?;
        let (mut bytes, mut splits) = (0, 0);
        // SAFETY: args is a whole struct, and both results are written by the call.
        Error::check(unsafe { sys::fa_fwd_workspace(&args, &mut bytes, &mut splits) })?;
        Ok(Workspace { bytes, splits })
    }

    /// Put the work on a stream: a `CUstream`, or null for the legacy default stream. Returns before it is done.
    ///
    /// # Errors
    /// When an argument is wrong, or a launch fails. Nothing was launched then, unless the error is of CUDA.
    ///
    /// # Safety
    /// Every address is that of memory on `device` that holds what `layout` and the sizes say, is not written by
    /// others and not freed until the work on the stream is done; output and `lse` overlap nothing else. The stream is one
    /// of that device.
    pub unsafe fn launch(
        &self,
        device: usize,
        stream: *mut core::ffi::c_void,
        layout: &Layout,
        at: &Addresses,
    ) -> Result<(), Error> {
        if layout.output_overlaps(&self.shape) {
            return Err(Error::invalid(format!("the strides of o, {:?}, let its elements overlap", layout.o)));
        }
        let mut args = self.arguments()?;
        args.device = number("device", device)?;
        args.stream = stream;
        args.q = layout.q.tensor(at.q)?;
        args.k = layout.k.tensor(at.k)?;
        args.v = layout.v.tensor(at.v)?;
        args.o = layout.o.tensor(at.o)?;
        args.lse = address(at.lse)?;
        args.workspace = address(at.workspace.0)?;
        args.workspace_bytes = at.workspace.1;
        // SAFETY: args is a whole struct; the caller answers for what its addresses hold.
        Error::check(unsafe { sys::fa_fwd(&args) })
    }

    fn supported_by(&self, device: i32) -> Result<Choice, Error> {
        let args = self.arguments()?;
        let mut choice = sys::fa_choice::default();
        // SAFETY: both are whole structs with their sizes.
        Error::check(unsafe { sys::fa_supports(device, &args, &mut choice) })?;
        // SAFETY: the library sets both texts where it answers FA_OK; they are copied before the next call.
        let text = |at| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned();
        Ok(Choice { family: text(choice.name), why_not: text(choice.why_not) })
    }

    fn arguments(&self) -> Result<sys::fa_fwd_args, Error> {
        let Shape { batch, seqlen_q, seqlen_k, heads_q, heads_k, head_dim } = self.shape;
        let mut args = sys::fa_fwd_args {
            dtype: match self.dtype {
                DType::F16 => sys::FA_FP16,
                DType::Bf16 => sys::FA_BF16,
            },
            batch: number("batch", batch)?,
            seqlen_q: number("seqlen_q", seqlen_q)?,
            seqlen_k: number("seqlen_k", seqlen_k)?,
            heads_q: number("heads_q", heads_q)?,
            heads_k: number("heads_k", heads_k)?,
            head_dim: number("head_dim", head_dim)?,
            scale: self.scale,
            softcap: self.softcap,
            family: match self.family {
                Family::Best => sys::FA_FAMILY_BEST,
                Family::Fa2 => sys::FA_FAMILY_FA2,
                Family::Fa4 => sys::FA_FAMILY_FA4,
            },
            ..Default::default()
        };
        match self.mask {
            Mask::None => {}
            Mask::Causal => args.flags |= sys::FA_CAUSAL,
            Mask::Window { left, right } => {
                if let Some(left) = left {
                    args.flags |= sys::FA_WINDOW_LEFT;
                    args.window_left = number("the window's left", left)?;
                }
                if let Some(right) = right {
                    args.flags |= sys::FA_WINDOW_RIGHT;
                    args.window_right = number("the window's right", right)?;
                }
            }
        }
        Ok(args)
    }
}
