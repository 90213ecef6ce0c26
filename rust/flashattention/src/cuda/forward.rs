use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};

use super::{bytes, fits, given, holds, require_dtype, scratch, DeviceLengths, DeviceTable, Element, Inputs, Placed};
use crate::layout::product;
use crate::{Addresses, Error, Forward, Layout, Packed, Paged, Shape};

impl Forward<Shape> {
    /// A call over slices of cudarc's, contiguous unless [`Call::layout`] says otherwise.
    pub fn call<T: Element>(self, inputs: Inputs<'_, T>) -> Call<'_, Shape, T> {
        Call::new(self, inputs.q, Keys::Read(inputs.k, inputs.v), ())
    }
}

impl Forward<Packed> {
    /// A call over sequences of these lengths, of queries and of keys.
    pub fn call<'a, T: Element>(
        self,
        inputs: Inputs<'a, T>,
        lengths: (&'a DeviceLengths, &'a DeviceLengths),
    ) -> Call<'a, Packed, T> {
        Call::new(self, inputs.q, Keys::Read(inputs.k, inputs.v), lengths)
    }
}

impl Forward<Paged> {
    /// A call over the sequences of a table; `k` and `v` are the pages.
    pub fn call<'a, T: Element>(self, inputs: Inputs<'a, T>, table: &'a DeviceTable) -> Call<'a, Paged, T> {
        Call::new(self, inputs.q, Keys::Read(inputs.k, inputs.v), table)
    }

    /// A call that first appends new keys and values to the pages, as many as [`append`](Self::append) said.
    ///
    /// The table has the lengths from before the call.
    pub fn update<'a, T: Element>(self, update: Update<'a, T>, table: &'a DeviceTable) -> Call<'a, Paged, T> {
        let Update { q, k, v, k_new, v_new } = update;
        Call::new(self, q, Keys::Written { k, v, new: (k_new, v_new) }, table)
    }
}

/// The queries of a step, the pages that it appends to, and what it appends.
pub struct Update<'a, T> {
    /// The queries.
    pub q: &'a dyn DevicePtr<T>,
    /// The pages of keys, which are written. Two sequences that both append have no page in common.
    pub k: &'a mut dyn DevicePtrMut<T>,
    /// The pages of values, which are written.
    pub v: &'a mut dyn DevicePtrMut<T>,
    /// The new keys, `(batch, rows, heads_k, head_dim)`, contiguous.
    pub k_new: &'a dyn DevicePtr<T>,
    /// The new values, likewise.
    pub v_new: &'a dyn DevicePtr<T>,
}

enum Keys<'a, T> {
    Read(&'a dyn DevicePtr<T>, &'a dyn DevicePtr<T>),
    Written {
        k: &'a mut dyn DevicePtrMut<T>,
        v: &'a mut dyn DevicePtrMut<T>,
        new: (&'a dyn DevicePtr<T>, &'a dyn DevicePtr<T>),
    },
}

/// A call of [`Forward`] over slices of cudarc's, made by its `call` and carried out by [`run`](Self::run).
///
/// ```no_run
/// use cudarc::driver::{CudaContext, CudaSlice};
/// use flashattention::{cuda::Inputs, Alibi, DType, Forward, Mask, Problem, Shape};
/// use half::bf16;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stream = CudaContext::new(0)?.default_stream();
/// let shape = Shape { batch: 2, seqlen_q: 512, seqlen_k: 512, heads_q: 8, heads_k: 8, head_dim: 64 };
/// let [q, k, v]: [CudaSlice<bf16>; 3] = [0; 3].map(|_| stream.alloc_zeros(2 * 512 * 8 * 64).expect("room"));
/// let slopes = stream.clone_htod(&[0.5f32, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625])?;
/// let mut o = stream.alloc_zeros::<bf16>(2 * 512 * 8 * 64)?;
/// let mut lse = stream.alloc_zeros::<f32>(shape.lse_len()?)?;
/// let forward = Forward::new(shape, DType::Bf16).mask(Mask::Causal).alibi(Alibi::PerHead);
/// forward.call(Inputs { q: &q, k: &k, v: &v }).alibi(&slopes).run(&stream, &mut o, &mut lse)?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Call<'a, S: Placed, T> {
    forward: Forward<S>,
    q: &'a dyn DevicePtr<T>,
    keys: Keys<'a, T>,
    on: S::On<'a>,
    layout: Option<Layout>,
    alibi: Option<&'a dyn DevicePtr<f32>>,
    sink: Option<&'a dyn DevicePtr<f32>>,
    rotary: Option<[&'a dyn DevicePtr<T>; 2]>,
}

impl<'a, S: Placed, T: Element> Call<'a, S, T> {
    fn new(forward: Forward<S>, q: &'a dyn DevicePtr<T>, keys: Keys<'a, T>, on: S::On<'a>) -> Self {
        Self { forward, q, keys, on, layout: None, alibi: None, sink: None, rotary: None }
    }

    /// How the tensors lie in their slices.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = Some(layout);
        self
    }

    /// The slopes of a problem with [`alibi`](Forward::alibi).
    pub fn alibi(mut self, slopes: &'a dyn DevicePtr<f32>) -> Self {
        self.alibi = Some(slopes);
        self
    }

    /// The sinks of a problem with a [`sink`](Forward::sink), one a head.
    pub fn sink(mut self, sink: &'a dyn DevicePtr<f32>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// Cosines and sines of a problem with [`rotary`](Forward::rotary), `(rows, dim / 2)`, contiguous.
    pub fn rotary(mut self, cos: &'a dyn DevicePtr<T>, sin: &'a dyn DevicePtr<T>) -> Self {
        self.rotary = Some([cos, sin]);
        self
    }

    /// Put the work on a stream; returns before it is done. cudarc keeps later uses of the slices behind it.
    ///
    /// `lse` has as many elements as [`Problem::lse_len`](crate::Problem::lse_len) says.
    ///
    /// # Errors
    /// When a slice is shorter than the layout and the sizes say, is of another device or another type, or is not what
    /// the problem has; an argument is wrong; or CUDA fails.
    pub fn run(
        self,
        stream: &Arc<CudaStream>,
        o: &mut dyn DevicePtrMut<T>,
        lse: &mut dyn DevicePtrMut<f32>,
    ) -> Result<(), Error> {
        let (forward, shape, options) = (&self.forward, self.forward.shape(), self.forward.options);
        let layout = self.layout.map_or_else(|| Layout::contiguous(shape), Ok)?;
        let (queries, keys, device) = (shape.queries(), shape.keys(), stream.context().ordinal());
        require_dtype::<T>(forward.dtype())?;
        fits("q", self.q, &layout.q, &queries, device)?;
        fits("o", o, &layout.o, &queries, device)?;
        holds("lse", lse, shape.lse_len()?, device)?;
        given("a sink", self.sink, options.sink.then_some(queries.heads), device)?;
        given("alibi", self.alibi, forward.slopes()?, device)?;
        let table = options.rotary.map(|rotary| rotary.rows.saturating_mul(rotary.dim / 2));
        for at in [0, 1] {
            given("rotary", self.rotary.map(|of| of[at]), table, device)?;
        }
        match &self.keys {
            Keys::Read(k, v) => {
                fits("k", *k, &layout.k, &keys, device)?;
                fits("v", *v, &layout.v, &keys, device)?;
            }
            Keys::Written { k, v, new } => {
                layout.k.require_apart("k", &keys)?;
                layout.v.require_apart("v", &keys)?;
                fits("k", &**k, &layout.k, &keys, device)?;
                fits("v", &**v, &layout.v, &keys, device)?;
                let count =
                    [queries.batch, options.append, keys.heads, keys.head_dim].into_iter().try_fold(1, product)?;
                holds("k_new", new.0, count, device)?;
                holds("v_new", new.1, count, device)?;
            }
        }
        if matches!(self.keys, Keys::Written { .. }) != (options.append > 0) {
            let rows = options.append;
            return Err(Error::invalid(format!("the problem appends {rows} rows: with rows use update, else call")));
        }
        let places = shape.places(self.on, options.append, stream)?;
        let need = forward.workspace(device)?;
        let mut workspace = scratch::<u8>(stream, bytes(need.bytes)?)?;
        let mut rng_state = options.dropout.map(|_| scratch::<u64>(stream, 2)).transpose()?;
        let mut uses = Vec::new();
        let mut place = |(place, used)| {
            uses.push(used);
            place
        };
        let (k, v, new) = match self.keys {
            Keys::Read(k, v) => (place(k.device_ptr(stream)), place(v.device_ptr(stream)), (0, 0)),
            Keys::Written { k, v, new } => {
                let new = (place(new.0.device_ptr(stream)), place(new.1.device_ptr(stream)));
                (place(k.device_ptr_mut(stream)), place(v.device_ptr_mut(stream)), new)
            }
        };
        let at = Addresses {
            q: place(self.q.device_ptr(stream)),
            k,
            v,
            o: place(o.device_ptr_mut(stream)),
            lse: place(lse.device_ptr_mut(stream)),
            workspace: (place(workspace.device_ptr_mut(stream)), need.bytes),
            rng_state: rng_state.as_mut().map_or(0, |of| place(of.device_ptr_mut(stream))),
            alibi: self.alibi.map_or(0, |of| place(of.device_ptr(stream))),
            sink: self.sink.map_or(0, |of| place(of.device_ptr(stream))),
            new,
            rotary: self.rotary.map_or((0, 0), |of| (place(of[0].device_ptr(stream)), place(of[1].device_ptr(stream)))),
            places: places.at,
        };
        // SAFETY: each slice is long enough for its strides and of this device; cudarc orders other uses of them, and what
        // is written is borrowed alone. The workspace is freed in the order of the stream. places are those of the sizes.
        unsafe { forward.launch(device, stream.cu_stream().cast(), &layout, &at) }
    }
}
