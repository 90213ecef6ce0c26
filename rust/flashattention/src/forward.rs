use std::ffi::{c_void, CStr};

use flashattention_sys as sys;

#[cfg(feature = "cudarc")]
use crate::layout::product;
use crate::layout::{address, number};
use crate::options::{Alibi, Options, Rotary};
use crate::problem::{set, RawStream};
use crate::{Backward, DType, Differentiable, Dropout, Error, Family, Layout, Mask, Paged, Problem, Shape, Strides};

/// Which kernels would run a problem, and why not faster ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The name of the family: `fa2`.
    pub family: String,
    /// The families that come before it, and why each of them does not run this; often empty.
    pub why_not: String,
}

impl Choice {
    /// What a question to the library is answered with.
    pub(crate) fn of(ask: impl FnOnce(&mut sys::fa_choice) -> sys::fa_status) -> Result<Self, Error> {
        let mut choice = sys::fa_choice::default();
        Error::check(ask(&mut choice))?;
        // SAFETY: the library sets both texts where it answers FA_STATUS_OK; they are copied before the next call.
        let text = |at| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned();
        Ok(Self { family: text(choice.name), why_not: text(choice.why_not) })
    }
}

/// What a call needs besides its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Bytes on the device, aligned to 16.
    pub bytes: u64,
    /// Into how many parts the keys are split.
    pub splits: i32,
}

/// `o = softmax(scale * q k^T) v`, for a dense batch ([`Shape`]), a packed one ([`Packed`](crate::Packed)), or over keys
/// and values in pages ([`Paged`](crate::Paged)).
///
/// ```no_run
/// use flashattention::{DType, Forward, Lengths, Mask, Packed, Shape};
///
/// # fn main() -> Result<(), flashattention::Error> {
/// let shape = Shape { batch: 2, seqlen_q: 1024, seqlen_k: 1024, heads_q: 16, heads_k: 4, head_dim: 128 };
/// println!("{}", Forward::new(shape, DType::Bf16).mask(Mask::Causal).supported()?.family);
///
/// let lengths = Lengths::new([700, 12, 300])?;
/// let packed = Packed::new(&lengths, &lengths, 16, 4, 128)?;
/// println!("{}", Forward::new(packed, DType::Bf16).mask(Mask::Causal).supported()?.family);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Forward<S = Shape> {
    pub(crate) shape: S,
    pub(crate) options: Options,
}

/// Addresses on a device of what a call reads and writes.
///
/// 0, the default, is no address; a tensor without elements may have it, and what a problem does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Addresses<P = ()> {
    /// The queries.
    pub q: u64,
    /// The keys.
    pub k: u64,
    /// The values.
    pub v: u64,
    /// The output, which is written.
    pub o: u64,
    /// `(batch, heads_q, seqlen_q)`, packed `(heads_q, total_q)`, of `f32`, which is written: log of the sum of
    /// exponentials of each row.
    pub lse: u64,
    /// The workspace, of as many bytes.
    pub workspace: (u64, u64),
    /// With dropout two `u64`, its seed and its offset: the forward pass writes them, the backward pass reads them. Else 0.
    pub rng_state: u64,
    /// With [`Forward::alibi`] the slopes, of `f32`.
    pub alibi: u64,
    /// With [`Forward::sink`] `(heads_q)` of `f32`.
    pub sink: u64,
    /// With [`Forward::append`] the new keys and the new values: `(batch, rows, heads_k, head_dim)`, contiguous.
    pub new: (u64, u64),
    /// With [`Forward::rotary`] the cosines and the sines, of the type of the elements.
    pub rotary: (u64, u64),
    /// Where sequences are: `()`, [`PackedPlaces`](crate::PackedPlaces) or [`PagedPlaces`](crate::PagedPlaces).
    pub places: P,
}

impl<S: Problem> Forward<S> {
    /// A problem without a mask, with the scale `1 / sqrt(head_dim)`.
    pub fn new(shape: S, dtype: DType) -> Self {
        Self { shape, options: Options::new(dtype) }
    }

    /// Which keys a query sees.
    pub fn mask(mut self, mask: Mask) -> Self {
        self.options.mask = mask;
        self
    }

    /// What scores are multiplied by; finite and positive.
    pub fn scale(mut self, scale: f32) -> Self {
        self.options.scale = scale;
        self
    }

    /// Scores become `softcap * tanh(score / softcap)`.
    pub fn softcap(mut self, softcap: f32) -> Self {
        self.options.softcap = softcap;
        self
    }

    /// Drop probabilities.
    ///
    /// ```
    /// use flashattention::{DType, Dropout, Forward, Shape};
    ///
    /// let shape = Shape { batch: 2, seqlen_q: 512, seqlen_k: 512, heads_q: 8, heads_k: 8, head_dim: 64 };
    /// let forward = Forward::new(shape, DType::Bf16).dropout(Dropout { probability: 0.1, seed: 7, offset: 0 });
    /// ```
    pub fn dropout(mut self, dropout: Dropout) -> Self {
        self.options.dropout = Some(dropout);
        self
    }

    /// Add ALiBi's bias to the scores, from slopes that a call is given.
    pub fn alibi(mut self, slopes: Alibi) -> Self {
        self.options.alibi = Some(slopes);
        self
    }

    /// Give each head a sink, a number that a call is given: a score beside those of the keys that brings no value.
    pub fn sink(mut self) -> Self {
        self.options.sink = true;
        self
    }

    /// Into how many parts to split the keys, at most 128, so that few queries keep a GPU busy; 0, the default, leaves
    /// that to the library.
    pub fn splits(mut self, splits: usize) -> Self {
        self.options.splits = splits;
        self
    }

    /// Which kernels to take.
    pub fn family(mut self, family: Family) -> Self {
        self.options.family = family;
        self
    }

    /// The sizes.
    #[must_use]
    pub fn shape(&self) -> &S {
        &self.shape
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.options.dtype
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
    /// others and not freed until the work on the stream is done; output and `lse` overlap nothing else. What `places`
    /// points to agrees with the sizes: sequences end within their tensors, and pages are among those there are. The
    /// stream is one of that device.
    pub unsafe fn launch(
        &self,
        device: usize,
        stream: RawStream,
        layout: &Layout,
        at: &Addresses<S::Places>,
    ) -> Result<(), Error> {
        layout.o.require_apart("o", &self.shape.queries())?;
        let mut args = self.arguments()?;
        args.device = number("device", device)?;
        args.stream = stream;
        args.q = layout.q.input(at.q)?;
        args.k = layout.k.tensor(at.k)?;
        args.v = layout.v.tensor(at.v)?;
        args.o = layout.o.tensor(at.o)?;
        args.lse = address(at.lse)?;
        args.workspace = address(at.workspace.0)?;
        args.workspace_bytes = at.workspace.1;
        args.rng_state = address(at.rng_state)?;
        args.alibi_slopes = address::<f32>(at.alibi)?;
        args.sink = address::<f32>(at.sink)?;
        args.rotary_cos = address::<c_void>(at.rotary.0)?;
        args.rotary_sin = address::<c_void>(at.rotary.1)?;
        if self.options.append > 0 {
            let keys = self.shape.keys();
            let rows = Strides::contiguous(self.options.append, keys.heads, keys.head_dim)?;
            (args.k_new, args.v_new) = (rows.input(at.new.0)?, rows.input(at.new.1)?);
        }
        self.shape.place(&at.places, &mut args)?;
        // SAFETY: args is a whole struct; the caller answers for what its addresses hold.
        Error::check(unsafe { sys::fa_fwd(&args) })
    }

    fn supported_by(&self, device: i32) -> Result<Choice, Error> {
        let args = self.arguments()?;
        // SAFETY: args is a whole struct, and so is what it is answered into.
        Choice::of(|choice| unsafe { sys::fa_supports(device, &args, choice) })
    }

    /// How many ALiBi slopes a call is given, if any.
    #[cfg(feature = "cudarc")]
    pub(crate) fn slopes(&self) -> Result<Option<usize>, Error> {
        let args = self.arguments()?;
        let of = |rows: i32| product(usize::try_from(rows).unwrap_or(0), usize::try_from(args.heads_q).unwrap_or(0));
        self.options.alibi.map(|slopes| of(if slopes == Alibi::PerSequence { args.batch } else { 1 })).transpose()
    }

    /// Sizes and options, without a device, a stream and tensors.
    pub(crate) fn arguments(&self) -> Result<sys::fa_fwd_args, Error> {
        let numbers = self.options.numbers()?;
        let dropout = self.options.dropout.unwrap_or(Dropout { probability: 0.0, seed: 0, offset: 0 });
        let mut args = sys::fa_fwd_args {
            dropout: dropout.probability,
            seed: dropout.seed,
            offset: dropout.offset,
            dtype: numbers.dtype,
            flags: numbers.flags,
            window_left: numbers.window_left,
            window_right: numbers.window_right,
            family: numbers.family,
            scale: self.options.scale,
            softcap: self.options.softcap,
            num_splits: number("splits", self.options.splits)?,
            ..Default::default()
        };
        self.shape.sizes(&mut args)?;
        if let Some(slopes) = self.options.alibi {
            args.alibi_slopes = set();
            args.alibi_batch_stride = if slopes == Alibi::PerSequence { args.heads_q.into() } else { 0 };
        }
        if self.options.sink {
            args.sink = set();
        }
        if self.options.append > 0 {
            args.seqlen_new = number("rows to append", self.options.append)?;
            (args.k_new.data, args.v_new.data) = (set(), set());
        }
        if let Some(Rotary { dim, rows, .. }) = self.options.rotary {
            (args.rotary_cos, args.rotary_sin) = (set(), set());
            args.rotary_dim = number("rotary dim", dim)?;
            args.rotary_seqlen = number("rotary rows", rows)?;
        }
        Ok(args)
    }
}

impl Forward<Paged> {
    /// Before attention write so many new rows of keys and values into the pages of each sequence, after its keys, and
    /// attend to them too.
    ///
    /// ```no_run
    /// use flashattention::{BlockTable, DType, Forward, Mask, Paged, Rotary};
    ///
    /// # fn main() -> Result<(), flashattention::Error> {
    /// // Two sequences of 300 and 10 keys, which get one more each.
    /// let table = BlockTable::new(256, &[(300, &[4, 1]), (10, &[0])])?;
    /// let shape = Paged::new(&table, 5, 1, 32, 8, 128)?;
    /// let rotary = Rotary { dim: 128, rows: 4096, interleaved: false };
    /// let step = Forward::new(shape, DType::Bf16).mask(Mask::Causal).append(1).rotary(rotary);
    /// println!("{}", step.supported()?.family);
    /// # Ok(())
    /// # }
    /// ```
    pub fn append(mut self, rows: usize) -> Self {
        self.options.append = rows;
        self
    }

    /// Turn the new keys and the queries by where they stand. Without a mask every query stands at its sequence's end.
    pub fn rotary(mut self, rotary: Rotary) -> Self {
        self.options.rotary = Some(rotary);
        self
    }
}

impl<S: Differentiable> Forward<S> {
    /// The gradients of this.
    pub fn backward(self) -> Backward<S> {
        Backward::of(self)
    }
}
