//! Attention over candle's tensors.

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::CudaDType;
use candle_core::{CpuStorage, CudaStorage, CustomOp3, DType, Result, Shape, Tensor};
use half::{bf16, f16};

use crate::cuda::{Element, Inputs};
use crate::{Error, Forward, Layout, Mask, Strides};

/// `softmax(scale * q k^T) v`, as `(batch, seqlen_q, heads_q, head_dim)`.
///
/// `q` is `(batch, seqlen_q, heads_q, head_dim)`, `k` and `v` are `(batch, seqlen_k, heads_k, head_dim)`, all `f16` or all
/// `bf16`, on one device, with contiguous head vectors.
///
/// # Errors
/// When shapes, types, strides or devices do not go together, the library has no kernel for them, or CUDA fails.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Mask, scale: Option<f32>) -> Result<Tensor> {
    q.apply_op3(k, v, Attention { mask, scale })
}

struct Attention {
    mask: Mask,
    scale: Option<f32>,
}

/// The storage of a tensor and where its elements lie in it.
type Operand<'a> = (&'a CudaStorage, &'a candle_core::Layout);

impl Attention {
    fn run<T: Element + CudaDType>(&self, q: Operand, k: Operand, v: Operand) -> Result<(CudaStorage, Shape)> {
        let (batch, seqlen_q, heads_q, head_dim) = q.1.shape().dims4()?;
        let (_, seqlen_k, heads_k, _) = k.1.shape().dims4()?;
        for (name, operand, expected) in
            [("k", k, (batch, seqlen_k, heads_k, head_dim)), ("v", v, (batch, seqlen_k, heads_k, head_dim))]
        {
            if operand.1.shape().dims4()? != expected {
                candle_core::bail!("{name} is {:?}, expected {expected:?} beside q and k", operand.1.shape());
            }
        }
        let shape = crate::Shape { batch, seqlen_q, seqlen_k, heads_q, heads_k, head_dim };
        let o = Strides::contiguous(seqlen_q, heads_q, head_dim).map_err(wrapped)?;
        let layout = Layout { q: strides("q", q.1)?, k: strides("k", k.1)?, v: strides("v", v.1)?, o };
        let device = q.0.device();
        let stream = device.cuda_stream();
        let (q_all, k_all, v_all) = (q.0.as_cuda_slice::<T>()?, k.0.as_cuda_slice::<T>()?, v.0.as_cuda_slice::<T>()?);
        let inputs = Inputs {
            q: &q_all.slice(q.1.start_offset()..),
            k: &k_all.slice(k.1.start_offset()..),
            v: &v_all.slice(v.1.start_offset()..),
        };
        // SAFETY: the kernels write every element of both.
        let (mut out, mut lse) = unsafe {
            (
                device.alloc::<T>(batch * seqlen_q * heads_q * head_dim)?,
                device.alloc::<f32>((batch * heads_q * seqlen_q).max(1))?,
            )
        };
        let mut forward = Forward::new(shape, T::DTYPE).mask(self.mask);
        if let Some(scale) = self.scale {
            forward = forward.scale(scale);
        }
        forward.run::<T, _, _, _>(&stream, &layout, &inputs, &mut out, &mut lse).map_err(wrapped)?;
        Ok((CudaStorage::wrap_cuda_slice(out, device.clone()), q.1.shape().clone()))
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
        let (q, k, v) = ((q, q_layout), (k, k_layout), (v, v_layout));
        match q.0.dtype() {
            DType::F16 => self.run::<f16>(q, k, v),
            DType::BF16 => self.run::<bf16>(q, k, v),
            other => candle_core::bail!("q holds {other:?}, expected F16 or BF16"),
        }
    }
}

fn strides(name: &str, layout: &candle_core::Layout) -> Result<Strides> {
    match *layout.stride() {
        [batch, row, head, 1] => Ok(Strides { batch, row, head }),
        ref other => candle_core::bail!("{name} has the strides {other:?}, and its head vectors are not contiguous"),
    }
}

fn wrapped(error: Error) -> candle_core::Error {
    candle_core::Error::wrap(error)
}
