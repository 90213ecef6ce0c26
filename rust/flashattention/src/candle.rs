//! Attention over candle's tensors, with its gradients.

use std::sync::Arc;

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaStream, CudaView};
use candle_core::cuda_backend::CudaDType;
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, CudaStorage, CustomOp3, DType, Result, Shape, Storage, Tensor};
use half::{bf16, f16};

use crate::cuda::{DeviceLengths, Element, Gradients, Inputs, Saved};
use crate::{Alibi, Error, Forward, GradientLayout, Layout, Lengths, Mask, Packed, Strides};

/// `softmax(scale * q k^T) v` over candle's tensors, with gradients.
///
/// ```no_run
/// use candle_core::{DType, Device, Result, Tensor};
/// use flashattention::{candle::Attention, Mask};
///
/// # fn main() -> Result<()> {
/// let device = Device::new_cuda(0)?;
/// let random = |heads| Tensor::randn(0f32, 1f32, (2, 512, heads, 64), &device)?.to_dtype(DType::BF16);
/// let (q, k, v) = (random(8)?, random(2)?, random(2)?);
/// let o = Attention::new().mask(Mask::Causal).scale(0.125).apply(&q, &k, &v)?;
/// assert_eq!(o.dims(), [2, 512, 8, 64]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Attention {
    mask: Mask,
    scale: Option<f32>,
    softcap: f32,
    alibi: Option<Tensor>,
    /// Of queries and keys, for a packed batch.
    lengths: Option<(Lengths, Lengths)>,
}

impl Attention {
    /// Without a mask, with the scale `1 / sqrt(head_dim)`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Which keys a query sees.
    pub fn mask(mut self, mask: Mask) -> Self {
        self.mask = mask;
        self
    }

    /// What scores are multiplied by; finite and positive.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Scores become `softcap * tanh(score / softcap)`.
    pub fn softcap(mut self, softcap: f32) -> Self {
        self.softcap = softcap;
        self
    }

    /// Add ALiBi's bias, by slopes: `(heads_q)` or `(batch, heads_q)` of `f32`, contiguous. They have no gradient.
    pub fn alibi(mut self, slopes: &Tensor) -> Self {
        self.alibi = Some(slopes.clone());
        self
    }

    /// The queries and the keys are those of sequences of these lengths, which lie one after the other in
    /// `(total, heads, head_dim)`.
    pub fn lengths(mut self, queries: &Lengths, keys: &Lengths) -> Self {
        self.lengths = Some((queries.clone(), keys.clone()));
        self
    }

    /// The output, of the shape of `q`.
    ///
    /// `q` is `(batch, seqlen_q, heads_q, head_dim)`, `k` and `v` are `(batch, seqlen_k, heads_k, head_dim)`, all `f16` or
    /// all `bf16`, on one device, with contiguous head vectors. candle's `backward` runs the forward pass once more, for a
    /// number of each row that candle does not keep.
    ///
    /// # Errors
    /// When shapes, types, strides, lengths or devices do not go together, the library has no kernel for them, or CUDA
    /// fails.
    pub fn apply(self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        q.apply_op3(k, v, self)
    }
}

/// The storage of a tensor and where its elements lie in it.
type Operand<'a> = (&'a CudaStorage, &'a candle_core::Layout);

/// A problem, with where its sequences are on the device.
enum Call {
    Dense(Forward),
    Packed(Box<PackedCall>),
}

struct PackedCall {
    forward: Forward<Packed>,
    lengths_q: DeviceLengths,
    lengths_k: DeviceLengths,
}

impl Attention {
    fn call<T: Element>(&self, [q, k, v]: [Operand; 3]) -> Result<Call> {
        same("v", v.1, k.1.dims())?;
        let Some((lengths_q, lengths_k)) = &self.lengths else {
            let (batch, seqlen_q, heads_q, head_dim) = q.1.shape().dims4()?;
            let (_, seqlen_k, heads_k, _) = k.1.shape().dims4()?;
            same("k", k.1, &[batch, seqlen_k, heads_k, head_dim])?;
            let shape = crate::Shape { batch, seqlen_q, seqlen_k, heads_q, heads_k, head_dim };
            return Ok(Call::Dense(self.with_options(Forward::new(shape, T::DTYPE))));
        };
        let (_, heads_q, head_dim) = q.1.shape().dims3()?;
        let (_, heads_k, _) = k.1.shape().dims3()?;
        same("q", q.1, &[lengths_q.total(), heads_q, head_dim])?;
        same("k", k.1, &[lengths_k.total(), heads_k, head_dim])?;
        let shape = Packed::new(lengths_q, lengths_k, heads_q, heads_k, head_dim).map_err(wrapped)?;
        let stream = q.0.device().cuda_stream();
        let copied = |lengths: &Lengths| DeviceLengths::new(&stream, lengths.clone()).map_err(wrapped);
        let forward = self.with_options(Forward::new(shape, T::DTYPE));
        let (lengths_q, lengths_k) = (copied(lengths_q)?, copied(lengths_k)?);
        Ok(Call::Packed(Box::new(PackedCall { forward, lengths_q, lengths_k })))
    }

    fn with_options<S: crate::Problem>(&self, forward: Forward<S>) -> Forward<S> {
        let mut forward = forward.mask(self.mask).softcap(self.softcap);
        if let Some(slopes) = &self.alibi {
            forward = forward.alibi(if slopes.rank() == 1 { Alibi::PerHead } else { Alibi::PerSequence });
        }
        self.scale.map_or(forward, |scale| forward.scale(scale))
    }

    /// Do something with the slopes, which candle holds meanwhile.
    fn with_slopes(
        &self,
        run: impl FnOnce(Option<&CudaView<'_, f32>>) -> std::result::Result<(), Error>,
    ) -> Result<()> {
        let Some(slopes) = &self.alibi else {
            return run(None).map_err(wrapped);
        };
        let (storage, layout) = slopes.storage_and_layout();
        match (&*storage, layout.contiguous_offsets()) {
            (Storage::Cuda(storage), Some((from, to))) => {
                run(Some(&storage.as_cuda_slice::<f32>()?.slice(from..to))).map_err(wrapped)
            }
            _ => candle_core::bail!("the ALiBi slopes are {layout:?}, expected contiguous ones on an NVIDIA GPU"),
        }
    }

    /// The output and its `lse`.
    fn forward<T: Element + CudaDType>(&self, of: [Operand; 3]) -> Result<(CudaSlice<T>, CudaSlice<f32>)> {
        let [q, k, v] = of;
        let (device, stream) = (q.0.device(), q.0.device().cuda_stream());
        let call = self.call::<T>(of)?;
        let layout = layout(of)?;
        let (q, k, v) = (view::<T>(q)?, view::<T>(k)?, view::<T>(v)?);
        // SAFETY: the kernels write every element of both.
        let (mut o, mut lse) = unsafe {
            (
                device.alloc::<T>(of[0].1.shape().elem_count())?,
                device.alloc::<f32>(call.lse_len().map_err(wrapped)?.max(1))?,
            )
        };
        let inputs = Inputs { q: &q, k: &k, v: &v };
        self.with_slopes(|slopes| call.forward::<T>(&stream, layout, inputs, slopes, (&mut o, &mut lse)))?;
        Ok((o, lse))
    }

    /// The gradients of queries, keys and values.
    fn backward<T: Element + CudaDType>(&self, of: [Operand; 3], o: Operand, d_o: Operand) -> Result<[CudaStorage; 3]> {
        let [q, k, v] = of;
        let (device, stream) = (q.0.device(), q.0.device().cuda_stream());
        let (_, lse) = self.forward::<T>(of)?;
        let forwards = Layout { o: strides("o", o.1)?, ..layout(of)? };
        let (of_q, of_k) = (contiguous(q.1.shape())?, contiguous(k.1.shape())?);
        let back = GradientLayout { d_o: strides("the gradient", d_o.1)?, dq: of_q, dk: of_k, dv: of_k };
        let call = self.call::<T>(of)?;
        // SAFETY: the kernels write every element of them.
        let room = |of: Operand| unsafe { device.alloc::<T>(of.1.shape().elem_count()) };
        let (mut dq, mut dk, mut dv) = (room(q)?, room(k)?, room(v)?);
        let (q, k, v) = (view::<T>(q)?, view::<T>(k)?, view::<T>(v)?);
        let (o, d_o) = (view::<T>(o)?, view::<T>(d_o)?);
        let saved = Saved { inputs: Inputs { q: &q, k: &k, v: &v }, o: &o, lse: &lse, d_o: &d_o };
        let gradients = Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv };
        self.with_slopes(|slopes| call.backward::<T>(&stream, (forwards, back), saved, slopes, gradients))?;
        Ok([dq, dk, dv].map(|of| CudaStorage::wrap_cuda_slice(of, device.clone())))
    }
}

impl Call {
    fn lse_len(&self) -> std::result::Result<usize, Error> {
        match self {
            Self::Dense(forward) => crate::Problem::lse_len(forward.shape()),
            Self::Packed(call) => crate::Problem::lse_len(call.forward.shape()),
        }
    }

    fn forward<T: Element>(
        &self,
        stream: &Arc<CudaStream>,
        layout: Layout,
        inputs: Inputs<'_, T>,
        slopes: Option<&CudaView<'_, f32>>,
        (o, lse): (&mut CudaSlice<T>, &mut CudaSlice<f32>),
    ) -> std::result::Result<(), Error> {
        macro_rules! run {
            ($call:expr) => {{
                let call = $call.layout(layout);
                if let Some(slopes) = slopes { call.alibi(slopes) } else { call }.run(stream, o, lse)
            }};
        }
        match self {
            Self::Dense(forward) => run!(forward.call(inputs)),
            Self::Packed(call) => run!(call.forward.call(inputs, call.lengths())),
        }
    }

    fn backward<T: Element>(
        &self,
        stream: &Arc<CudaStream>,
        layout: (Layout, GradientLayout),
        saved: Saved<'_, T>,
        slopes: Option<&CudaView<'_, f32>>,
        gradients: Gradients<'_, T>,
    ) -> std::result::Result<(), Error> {
        macro_rules! run {
            ($call:expr) => {{
                let call = $call.layout(layout.0, layout.1);
                if let Some(slopes) = slopes { call.alibi(slopes) } else { call }.run(stream, gradients)
            }};
        }
        match self {
            Self::Dense(forward) => run!(forward.backward().call(saved)),
            Self::Packed(call) => run!(call.forward.backward().call(saved, call.lengths())),
        }
    }
}

impl PackedCall {
    fn lengths(&self) -> (&DeviceLengths, &DeviceLengths) {
        (&self.lengths_q, &self.lengths_k)
    }
}

impl CustomOp3 for Attention {
    fn name(&self) -> &'static str {
        "flashattention"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &candle_core::Layout,
        _: &CpuStorage,
        _: &candle_core::Layout,
        _: &CpuStorage,
        _: &candle_core::Layout,
    ) -> Result<(CpuStorage, Shape)> {
        candle_core::bail!(
            "the tensors are on the CPU, and FlashAttention runs on NVIDIA GPUs: move them with to_device"
        )
    }

    fn cuda_fwd(
        &self,
        q: &CudaStorage,
        q_layout: &candle_core::Layout,
        k: &CudaStorage,
        k_layout: &candle_core::Layout,
        v: &CudaStorage,
        v_layout: &candle_core::Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (device, of) = (q.device().clone(), [(q, q_layout), (k, k_layout), (v, v_layout)]);
        let o = match q.dtype() {
            DType::F16 => CudaStorage::wrap_cuda_slice(self.forward::<f16>(of)?.0, device),
            DType::BF16 => CudaStorage::wrap_cuda_slice(self.forward::<bf16>(of)?.0, device),
            other => candle_core::bail!("q holds {other:?}, expected F16 or BF16"),
        };
        Ok((o, q_layout.shape().clone()))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        o: &Tensor,
        d_o: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let d_o = d_o.contiguous()?;
        let held = [q, k, v, o, &d_o].map(Tensor::storage_and_layout);
        let on_device = |index: usize| match &*held[index].0 {
            Storage::Cuda(storage) => Ok((storage, held[index].1)),
            _ => candle_core::bail!("the gradient of flashattention needs tensors on an NVIDIA GPU"),
        };
        let (of, o, d_o) = ([on_device(0)?, on_device(1)?, on_device(2)?], on_device(3)?, on_device(4)?);
        let gradients = match q.dtype() {
            DType::F16 => self.backward::<f16>(of, o, d_o)?,
            DType::BF16 => self.backward::<bf16>(of, o, d_o)?,
            other => candle_core::bail!("q holds {other:?}, expected F16 or BF16"),
        };
        let [dq, dk, dv] = gradients.map(Storage::Cuda);
        let tensor = |storage, of: &Tensor| Some(Tensor::from_storage(storage, of.shape(), BackpropOp::none(), false));
        Ok((tensor(dq, q), tensor(dk, k), tensor(dv, v)))
    }
}

fn view<T: CudaDType>((storage, layout): Operand<'_>) -> Result<CudaView<'_, T>> {
    Ok(storage.as_cuda_slice::<T>()?.slice(layout.start_offset()..))
}

/// Of the inputs, and of a contiguous output.
fn layout([q, k, v]: [Operand; 3]) -> Result<Layout> {
    Ok(Layout { q: strides("q", q.1)?, k: strides("k", k.1)?, v: strides("v", v.1)?, o: contiguous(q.1.shape())? })
}

fn strides(name: &str, layout: &candle_core::Layout) -> Result<Strides> {
    match *layout.stride() {
        [batch, row, head, 1] => Ok(Strides { batch, row, head }),
        [row, head, 1] => Ok(Strides { batch: 0, row, head }),
        ref other => candle_core::bail!("{name} has the strides {other:?}, and its head vectors are not contiguous"),
    }
}

fn contiguous(shape: &Shape) -> Result<Strides> {
    match *shape.dims() {
        [.., rows, heads, head_dim] => Strides::contiguous(rows, heads, head_dim).map_err(wrapped),
        ref other => candle_core::bail!("a tensor has the shape {other:?}, and no heads"),
    }
}

fn same(name: &str, layout: &candle_core::Layout, expected: &[usize]) -> Result<()> {
    if layout.dims() != expected {
        candle_core::bail!("{name} is {:?}, expected {expected:?} beside the others", layout.dims());
    }
    Ok(())
}

fn wrapped(error: Error) -> candle_core::Error {
    candle_core::Error::wrap(error)
}
