use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};

use super::{bytes, fits, given, holds, require_dtype, scratch, DeviceLengths, Element, Inputs, Placed};
use crate::{Addresses, Backward, Differentiable, Error, GradientAddresses, GradientLayout, Layout, Packed, Shape};

/// What a forward pass read and wrote, and the gradient of its output.
pub struct Saved<'a, T> {
    /// What it read.
    pub inputs: Inputs<'a, T>,
    /// The output that it wrote.
    pub o: &'a dyn DevicePtr<T>,
    /// The `lse` that it wrote.
    pub lse: &'a dyn DevicePtr<f32>,
    /// The gradient of the output.
    pub d_o: &'a dyn DevicePtr<T>,
}

impl<T> Clone for Saved<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Saved<'_, T> {}

/// Where gradients are written.
pub struct Gradients<'a, T> {
    /// Of the queries.
    pub dq: &'a mut dyn DevicePtrMut<T>,
    /// Of the keys.
    pub dk: &'a mut dyn DevicePtrMut<T>,
    /// Of the values.
    pub dv: &'a mut dyn DevicePtrMut<T>,
}

impl Backward<Shape> {
    /// A call over slices of cudarc's, contiguous unless [`BackwardCall::layout`] says otherwise.
    pub fn call<T: Element>(self, saved: Saved<'_, T>) -> BackwardCall<'_, Shape, T> {
        BackwardCall::new(self, saved, ())
    }
}

impl Backward<Packed> {
    /// A call over sequences of these lengths, of queries and of keys.
    pub fn call<'a, T: Element>(
        self,
        saved: Saved<'a, T>,
        lengths: (&'a DeviceLengths, &'a DeviceLengths),
    ) -> BackwardCall<'a, Packed, T> {
        BackwardCall::new(self, saved, lengths)
    }
}

/// A call of [`Backward`] over slices of cudarc's, made by its `call` and carried out by [`run`](Self::run).
#[must_use]
pub struct BackwardCall<'a, S: Placed, T> {
    backward: Backward<S>,
    saved: Saved<'a, T>,
    on: S::On<'a>,
    layout: Option<(Layout, GradientLayout)>,
    alibi: Option<&'a dyn DevicePtr<f32>>,
    sink: Option<&'a dyn DevicePtr<f32>>,
    d_sink: Option<&'a mut dyn DevicePtrMut<f32>>,
    d_lse: Option<&'a dyn DevicePtr<f32>>,
}

impl<'a, S: Placed + Differentiable, T: Element> BackwardCall<'a, S, T> {
    fn new(backward: Backward<S>, saved: Saved<'a, T>, on: S::On<'a>) -> Self {
        Self { backward, saved, on, layout: None, alibi: None, sink: None, d_sink: None, d_lse: None }
    }

    /// How the tensors of the forward pass, and the gradients, lie in their slices.
    pub fn layout(mut self, forward: Layout, gradients: GradientLayout) -> Self {
        self.layout = Some((forward, gradients));
        self
    }

    /// The slopes of the forward pass.
    pub fn alibi(mut self, slopes: &'a dyn DevicePtr<f32>) -> Self {
        self.alibi = Some(slopes);
        self
    }

    /// The sinks of the forward pass, and where their gradient is written: both `(heads_q)`.
    pub fn sink(mut self, sink: &'a dyn DevicePtr<f32>, d_sink: &'a mut dyn DevicePtrMut<f32>) -> Self {
        (self.sink, self.d_sink) = (Some(sink), Some(d_sink));
        self
    }

    /// A gradient of `lse`, which has its length.
    pub fn d_lse(mut self, d_lse: &'a dyn DevicePtr<f32>) -> Self {
        self.d_lse = Some(d_lse);
        self
    }

    /// Put the work on a stream; returns before it is done. cudarc keeps later uses of the slices behind it.
    ///
    /// # Errors
    /// As [`Call::run`](super::Call::run).
    pub fn run(self, stream: &Arc<CudaStream>, gradients: Gradients<'_, T>) -> Result<(), Error> {
        let Gradients { dq, dk, dv } = gradients;
        let (backward, saved, forward) = (&self.backward, self.saved, self.backward.forward());
        let shape = forward.shape();
        let layout = match self.layout {
            Some(layout) => layout,
            None => (Layout::contiguous(shape)?, GradientLayout::contiguous(shape)?),
        };
        let (queries, keys, device) = (shape.queries(), shape.keys(), stream.context().ordinal());
        require_dtype::<T>(forward.dtype())?;
        fits("q", saved.inputs.q, &layout.0.q, &queries, device)?;
        fits("k", saved.inputs.k, &layout.0.k, &keys, device)?;
        fits("v", saved.inputs.v, &layout.0.v, &keys, device)?;
        fits("o", saved.o, &layout.0.o, &queries, device)?;
        holds("lse", saved.lse, shape.lse_len()?, device)?;
        fits("d_o", saved.d_o, &layout.1.d_o, &queries, device)?;
        fits("dq", dq, &layout.1.dq, &queries, device)?;
        fits("dk", dk, &layout.1.dk, &keys, device)?;
        fits("dv", dv, &layout.1.dv, &keys, device)?;
        given("alibi", self.alibi, forward.slopes()?, device)?;
        given("a sink", self.sink, forward.options.sink.then_some(queries.heads), device)?;
        if let Some(d_sink) = &self.d_sink {
            holds("d_sink", &**d_sink, queries.heads, device)?;
        }
        if let Some(d_lse) = self.d_lse {
            holds("d_lse", d_lse, shape.lse_len()?, device)?;
        }
        let places = shape.places(self.on, 0, stream)?;
        let need = backward.workspace(device)?;
        let mut workspace = scratch::<u8>(stream, bytes(need)?)?;
        let mut sums = scratch::<f32>(stream, shape.softmax_d_len()?)?;
        let dropout = forward.options.dropout;
        let rng_state = dropout.map(|of| stream.clone_htod(&[of.seed, of.offset])).transpose().map_err(Error::cuda)?;
        let mut uses = Vec::new();
        let mut place = |(place, used)| {
            uses.push(used);
            place
        };
        let at = Addresses {
            q: place(saved.inputs.q.device_ptr(stream)),
            k: place(saved.inputs.k.device_ptr(stream)),
            v: place(saved.inputs.v.device_ptr(stream)),
            o: place(saved.o.device_ptr(stream)),
            lse: place(saved.lse.device_ptr(stream)),
            workspace: (place(workspace.device_ptr_mut(stream)), need),
            rng_state: rng_state.as_ref().map_or(0, |of| place(of.device_ptr(stream))),
            alibi: self.alibi.map_or(0, |of| place(of.device_ptr(stream))),
            sink: self.sink.map_or(0, |of| place(of.device_ptr(stream))),
            places: places.at,
            ..Addresses::default()
        };
        let of = GradientAddresses {
            d_o: place(saved.d_o.device_ptr(stream)),
            dq: place(dq.device_ptr_mut(stream)),
            dk: place(dk.device_ptr_mut(stream)),
            dv: place(dv.device_ptr_mut(stream)),
            softmax_d: place(sums.device_ptr_mut(stream)),
            d_lse: self.d_lse.map_or(0, |of| place(of.device_ptr(stream))),
            d_sink: self.d_sink.map_or(0, |of| place(of.device_ptr_mut(stream))),
        };
        // SAFETY: each slice is long enough for its strides and of this device; cudarc orders other uses of them, and
        // the gradients are borrowed alone. Workspace and sums are freed in the order of the stream. places are those of
        // the sizes.
        unsafe { backward.launch(device, stream.cu_stream().cast(), (&layout.0, &layout.1), &at, &of) }
    }
}
