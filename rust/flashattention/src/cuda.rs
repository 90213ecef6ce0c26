//! Safe calls over slices of cudarc's.

use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceRepr};
use half::{bf16, f16};

use crate::{Addresses, DType, Error, Forward, Layout};

/// The elements that the kernels compute with.
pub trait Element: DeviceRepr + sealed::Sealed {
    /// Its name in the library.
    const DTYPE: DType;
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;
}

impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// The queries, keys and values of a call, on one device.
#[derive(Debug)]
pub struct Inputs<'a, S> {
    /// The queries.
    pub q: &'a S,
    /// The keys.
    pub k: &'a S,
    /// The values.
    pub v: &'a S,
}

impl Forward {
    /// Compute into slices of cudarc's, on a stream; returns before the work is done.
    ///
    /// `lse` has `batch * heads_q * seqlen_q` elements. cudarc keeps later uses of the slices behind this work.
    ///
    /// # Errors
    /// When a slice is shorter than `layout` and the sizes say, is of another device or of another type, an argument is
    /// wrong, or CUDA fails.
    pub fn run<T, S, O, L>(
        &self,
        stream: &Arc<CudaStream>,
        layout: &Layout,
        inputs: &Inputs<'_, S>,
        o: &mut O,
        lse: &mut L,
    ) -> Result<(), Error>
    where
        T: Element,
        S: DevicePtr<T>,
        O: DevicePtrMut<T>,
        L: DevicePtrMut<f32>,
    {
        let shape = *self.shape();
        if T::DTYPE != self.dtype() {
            return Err(Error::invalid(format!("the slices hold {:?}, and the problem {:?}", T::DTYPE, self.dtype())));
        }
        let rows_q = layout.q.extent(shape.batch, shape.seqlen_q, shape.heads_q, shape.head_dim)?;
        let rows_k = layout.k.extent(shape.batch, shape.seqlen_k, shape.heads_k, shape.head_dim)?;
        let rows_v = layout.v.extent(shape.batch, shape.seqlen_k, shape.heads_k, shape.head_dim)?;
        let rows_o = layout.o.extent(shape.batch, shape.seqlen_q, shape.heads_q, shape.head_dim)?;
        let rows_lse = crate::Strides::contiguous(shape.heads_q, shape.seqlen_q, 1)?.extent(
            shape.batch,
            shape.heads_q,
            shape.seqlen_q,
            1,
        )?;
        let device = stream.context().ordinal();
        fits("q", inputs.q.len(), rows_q, inputs.q.stream(), device)?;
        fits("k", inputs.k.len(), rows_k, inputs.k.stream(), device)?;
        fits("v", inputs.v.len(), rows_v, inputs.v.stream(), device)?;
        fits("o", o.len(), rows_o, o.stream(), device)?;
        fits("lse", lse.len(), rows_lse, lse.stream(), device)?;
        let need = self.workspace(device)?;
        let bytes = usize::try_from(need.bytes).map_err(|_| Error::invalid(format!("{} bytes", need.bytes)))?;
        // SAFETY: the kernels write the workspace before they read it. One byte, because none cannot be allocated.
        let mut workspace = unsafe { stream.alloc::<u8>(bytes.max(1)) }.map_err(Error::cuda)?;
        let (q, _q) = inputs.q.device_ptr(stream);
        let (k, _k) = inputs.k.device_ptr(stream);
        let (v, _v) = inputs.v.device_ptr(stream);
        let (o, _o) = o.device_ptr_mut(stream);
        let (lse, _lse) = lse.device_ptr_mut(stream);
        let (scratch, _scratch) = workspace.device_ptr_mut(stream);
        let at = Addresses { q, k, v, o, lse, workspace: (scratch, need.bytes) };
        // SAFETY: each slice is long enough for its strides and of this device; cudarc orders other uses of them, and
        // o and lse are borrowed alone. The workspace is freed in the order of the stream.
        unsafe { self.launch(device, stream.cu_stream().cast(), layout, &at) }
    }
}

fn fits(name: &str, has: usize, needs: usize, stream: &Arc<CudaStream>, device: usize) -> Result<(), Error> {
    if stream.context().ordinal() != device {
        let other = stream.context().ordinal();
        return Err(Error::invalid(format!("{name} is on device {other}, and the stream is of device {device}")));
    }
    if has < needs {
        return Err(Error::invalid(format!("{name} has {has} elements, and its sizes and strides need {needs}")));
    }
    Ok(())
}
