use flashattention_sys as sys;

use crate::layout::{address, number};
use crate::problem::RawStream;
use crate::{Addresses, Choice, Differentiable, Error, Forward, GradientLayout, Layout};

/// The gradients of a [`Forward`]: of the queries, keys and values, from that of the output.
///
/// ```no_run
/// use flashattention::{DType, Forward, Mask, Shape};
///
/// # fn main() -> Result<(), flashattention::Error> {
/// let shape = Shape { batch: 2, seqlen_q: 1024, seqlen_k: 1024, heads_q: 16, heads_k: 4, head_dim: 128 };
/// let backward = Forward::new(shape, DType::Bf16).mask(Mask::Causal).backward().deterministic(true);
/// println!("{} bytes of workspace", backward.workspace(0)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Backward<S> {
    forward: Forward<S>,
    deterministic: bool,
}

/// Addresses on a device of gradients. 0, the default, is no address.
#[derive(Clone, Copy, Debug, Default)]
pub struct GradientAddresses {
    /// The gradient of the output, which is read.
    pub d_o: u64,
    /// The gradient of the queries, which is written.
    pub dq: u64,
    /// The gradient of the keys, which is written.
    pub dk: u64,
    /// The gradient of the values, which is written.
    pub dv: u64,
    /// As many `f32` as [`Differentiable::softmax_d_len`] says, which are written: a sum of each row.
    pub softmax_d: u64,
    /// The gradient of `lse`, laid out as it, which is read; 0: none.
    pub d_lse: u64,
    /// The gradient of the sink, `(heads_q)` of `f32`, which is written; 0: not wanted.
    pub d_sink: u64,
}

impl<S: Differentiable> Backward<S> {
    /// The gradients of a forward pass.
    pub fn of(forward: Forward<S>) -> Self {
        Self { forward, deterministic: false }
    }

    /// The same bits every time, for a larger workspace.
    pub fn deterministic(mut self, deterministic: bool) -> Self {
        self.deterministic = deterministic;
        self
    }

    /// The forward pass that these are the gradients of.
    pub fn forward(&self) -> &Forward<S> {
        &self.forward
    }

    /// Which kernels run this on a GPU that the library has machine code for. Needs no GPU.
    ///
    /// # Errors
    /// When a number is wrong, or the library has no kernel for it.
    pub fn supported(&self) -> Result<Choice, Error> {
        let args = self.arguments(&self.forward.arguments()?);
        // SAFETY: args is a whole struct, and so is what it is answered into.
        Choice::of(|choice| unsafe { sys::fa_bwd_supports(-1, &args, choice) })
    }

    /// The bytes of the workspace of a call on a device.
    ///
    /// # Errors
    /// When a number is wrong, or the library has no kernel for it.
    pub fn workspace(&self, device: usize) -> Result<u64, Error> {
        let mut args = self.arguments(&self.forward.arguments()?);
        args.device = number("device", device)?;
        let mut bytes = 0;
        // SAFETY: args is a whole struct, and the result is written by the call.
        Error::check(unsafe { sys::fa_bwd_workspace(&args, &mut bytes) })?;
        Ok(bytes)
    }

    /// Put the work on a stream: a `CUstream`, or null for the legacy default stream. Returns before it is done.
    ///
    /// `at` is what the forward pass read and wrote, with the workspace of this call.
    ///
    /// # Errors
    /// When an argument is wrong, or a launch fails. Nothing was launched then, unless the error is of CUDA.
    ///
    /// # Safety
    /// As [`Forward::launch`]; `o` and `lse` are what it wrote. The gradients and `softmax_d` overlap nothing else.
    pub unsafe fn launch(
        &self,
        device: usize,
        stream: RawStream,
        layout: (&Layout, &GradientLayout),
        at: &Addresses<S::Places>,
        gradients: &GradientAddresses,
    ) -> Result<(), Error> {
        let shape = self.forward.shape();
        let (layout, of) = layout;
        of.dq.require_apart("dq", &shape.queries())?;
        of.dk.require_apart("dk", &shape.keys())?;
        of.dv.require_apart("dv", &shape.keys())?;
        let mut forward = self.forward.arguments()?;
        shape.place(&at.places, &mut forward)?;
        let mut args = self.arguments(&forward);
        args.device = number("device", device)?;
        args.stream = stream;
        args.q = layout.q.input(at.q)?;
        args.k = layout.k.input(at.k)?;
        args.v = layout.v.input(at.v)?;
        args.o = layout.o.input(at.o)?;
        args.d_o = of.d_o.input(gradients.d_o)?;
        args.dq = of.dq.tensor(gradients.dq)?;
        args.dk = of.dk.tensor(gradients.dk)?;
        args.dv = of.dv.tensor(gradients.dv)?;
        args.lse = address::<f32>(at.lse)?;
        args.softmax_d = address(gradients.softmax_d)?;
        args.workspace = address(at.workspace.0)?;
        args.workspace_bytes = at.workspace.1;
        args.rng_state = address::<u64>(at.rng_state)?;
        args.alibi_slopes = address::<f32>(at.alibi)?;
        args.sink = address::<f32>(at.sink)?;
        args.d_lse = address::<f32>(gradients.d_lse)?;
        args.d_sink = address(gradients.d_sink)?;
        // SAFETY: args is a whole struct; the caller answers for what its addresses hold.
        Error::check(unsafe { sys::fa_bwd(&args) })
    }

    /// What the two passes have in common.
    fn arguments(&self, forward: &sys::fa_fwd_args) -> sys::fa_bwd_args {
        sys::fa_bwd_args {
            flags: forward.flags | if self.deterministic { sys::FA_FLAG_DETERMINISTIC } else { 0 },
            dtype: forward.dtype,
            batch: forward.batch,
            seqlen_q: forward.seqlen_q,
            seqlen_k: forward.seqlen_k,
            heads_q: forward.heads_q,
            heads_k: forward.heads_k,
            head_dim: forward.head_dim,
            total_q: forward.total_q,
            total_k: forward.total_k,
            scale: forward.scale,
            softcap: forward.softcap,
            dropout: forward.dropout,
            family: forward.family,
            window_left: forward.window_left,
            window_right: forward.window_right,
            cu_seqlens_q: forward.cu_seqlens_q,
            cu_seqlens_k: forward.cu_seqlens_k,
            alibi_slopes: forward.alibi_slopes,
            alibi_batch_stride: forward.alibi_batch_stride,
            sink: forward.sink,
            ..Default::default()
        }
    }
}
