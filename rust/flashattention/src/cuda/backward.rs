use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};

use super::forward::require_lengths;
use super::{bytes, fits, holds, require_dtype, scratch, DeviceLengths, Element, Inputs};
use crate::{
    Addresses, Backward, Differentiable, Error, GradientAddresses, GradientLayout, Layout, Packed, PackedPlaces, Shape,
};

/// What a forward pass read and wrote, and the gradient of its output.
#[derive(Debug)]
pub struct Saved<'a, S, L> {
    /// What it read.
    pub inputs: Inputs<'a, S>,
    /// The output that it wrote.
    pub o: &'a S,
    /// The `lse` that it wrote.
    pub lse: &'a L,
    /// The gradient of the output.
    pub d_o: &'a S,
}

/// Where gradients are written.
#[derive(Debug)]
pub struct Gradients<'a, G> {
    /// Of the queries.
    pub dq: &'a mut G,
    /// Of the keys.
    pub dk: &'a mut G,
    /// Of the values.
    pub dv: &'a mut G,
}

impl Backward<Shape> {
    /// Compute into slices of cudarc's, on a stream; returns before the work is done.
    ///
    /// # Errors
    /// As [`Forward::run`](crate::Forward::run).
    pub fn run<T, S, L, G>(
        &self,
        stream: &Arc<CudaStream>,
        layout: (&Layout, &GradientLayout),
        saved: &Saved<'_, S, L>,
        gradients: &mut Gradients<'_, G>,
    ) -> Result<(), Error>
    where
        T: Element,
        S: DevicePtr<T>,
        L: DevicePtr<f32>,
        G: DevicePtrMut<T>,
    {
        // SAFETY: a dense problem has no places.
        unsafe { run(self, stream, layout, saved, (), gradients) }
    }
}

impl Backward<Packed> {
    /// Compute over sequences of these lengths, as the dense problem does.
    ///
    /// # Errors
    /// As for the dense problem, and when the lengths are not those of the sizes.
    pub fn run<T, S, L, G>(
        &self,
        stream: &Arc<CudaStream>,
        layout: (&Layout, &GradientLayout),
        saved: &Saved<'_, S, L>,
        (queries, keys): (&DeviceLengths, &DeviceLengths),
        gradients: &mut Gradients<'_, G>,
    ) -> Result<(), Error>
    where
        T: Element,
        S: DevicePtr<T>,
        L: DevicePtr<f32>,
        G: DevicePtrMut<T>,
    {
        require_lengths(self.forward().shape(), queries, keys, stream)?;
        let (starts_q, _q) = queries.starts.device_ptr(stream);
        let (starts_k, _k) = keys.starts.device_ptr(stream);
        // SAFETY: the lengths are those of the sizes, and on the device of the stream.
        unsafe { run(self, stream, layout, saved, PackedPlaces { starts_q, starts_k }, gradients) }
    }
}

/// # Safety
/// `places` are on the device of the stream and agree with the sizes, as [`crate::Forward::launch`] says.
unsafe fn run<P, T, S, L, G>(
    backward: &Backward<P>,
    stream: &Arc<CudaStream>,
    layout: (&Layout, &GradientLayout),
    saved: &Saved<'_, S, L>,
    places: P::Places,
    gradients: &mut Gradients<'_, G>,
) -> Result<(), Error>
where
    P: Differentiable,
    T: Element,
    S: DevicePtr<T>,
    L: DevicePtr<f32>,
    G: DevicePtrMut<T>,
{
    let shape = backward.forward().shape();
    let (queries, keys) = (shape.queries(), shape.keys());
    require_dtype::<T>(backward.forward().dtype())?;
    let device = stream.context().ordinal();
    saved.inputs.require(layout.0, &queries, &keys, device)?;
    fits("o", saved.o, &layout.0.o, &queries, device)?;
    holds("lse", saved.lse, shape.lse_len()?, device)?;
    fits("d_o", saved.d_o, &layout.1.d_o, &queries, device)?;
    fits("dq", gradients.dq, &layout.1.dq, &queries, device)?;
    fits("dk", gradients.dk, &layout.1.dk, &keys, device)?;
    fits("dv", gradients.dv, &layout.1.dv, &keys, device)?;
    let need = backward.workspace(device)?;
    let mut workspace = scratch::<u8>(stream, bytes(need)?)?;
    let mut sums = scratch::<f32>(stream, shape.softmax_d_len()?)?;
    let dropout = backward.forward().options.dropout;
    let rng_state = dropout.map(|of| stream.clone_htod(&[of.seed, of.offset])).transpose().map_err(Error::cuda)?;
    let (q, _q) = saved.inputs.q.device_ptr(stream);
    let (k, _k) = saved.inputs.k.device_ptr(stream);
    let (v, _v) = saved.inputs.v.device_ptr(stream);
    let (o, _o) = saved.o.device_ptr(stream);
    let (lse, _lse) = saved.lse.device_ptr(stream);
    let (d_o, _d_o) = saved.d_o.device_ptr(stream);
    let (dq, _dq) = gradients.dq.device_ptr_mut(stream);
    let (dk, _dk) = gradients.dk.device_ptr_mut(stream);
    let (dv, _dv) = gradients.dv.device_ptr_mut(stream);
    let (room, _room) = workspace.device_ptr_mut(stream);
    let (softmax_d, _softmax_d) = sums.device_ptr_mut(stream);
    let rng_state = rng_state.as_ref().map(|of| of.device_ptr(stream));
    let rng_state = rng_state.as_ref().map_or(0, |(place, _)| *place);
    let at = Addresses { q, k, v, o, lse, workspace: (room, need), rng_state, places };
    let of = GradientAddresses { d_o, dq, dk, dv, softmax_d };
    // SAFETY: each slice is long enough for its strides and of this device; cudarc orders other uses of them, and
    // the gradients are borrowed alone. Workspace and sums are freed in the order of the stream. The caller answers
    // for places.
    unsafe { backward.launch(device, stream.cu_stream().cast(), layout, &at, &of) }
}
