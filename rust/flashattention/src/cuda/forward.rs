use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};

use super::{bytes, fits, holds, require_dtype, scratch, DeviceLengths, DeviceTable, Element, Inputs};
use crate::{Addresses, Error, Forward, Layout, Packed, PackedPlaces, Paged, PagedPlaces, Problem, Shape};

impl Forward<Shape> {
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
        // SAFETY: a dense problem has no places.
        unsafe { run(self, stream, layout, inputs, (), o, lse) }
    }
}

impl Forward<Packed> {
    /// Compute over sequences of these lengths, as the dense problem does.
    ///
    /// `lse` has `heads_q * total_q` elements.
    ///
    /// # Errors
    /// As for the dense problem, and when the lengths are not those of the sizes.
    pub fn run<T, S, O, L>(
        &self,
        stream: &Arc<CudaStream>,
        layout: &Layout,
        inputs: &Inputs<'_, S>,
        (queries, keys): (&DeviceLengths, &DeviceLengths),
        o: &mut O,
        lse: &mut L,
    ) -> Result<(), Error>
    where
        T: Element,
        S: DevicePtr<T>,
        O: DevicePtrMut<T>,
        L: DevicePtrMut<f32>,
    {
        require_lengths(self.shape(), queries, keys, stream)?;
        let (starts_q, _q) = queries.starts.device_ptr(stream);
        let (starts_k, _k) = keys.starts.device_ptr(stream);
        // SAFETY: the lengths are those of the sizes, and on the device of the stream.
        unsafe { run(self, stream, layout, inputs, PackedPlaces { starts_q, starts_k }, o, lse) }
    }
}

impl Forward<Paged> {
    /// Compute over the sequences of a table, as the dense problem does. `k` and `v` are the pages.
    ///
    /// # Errors
    /// As for the dense problem, and when the table is not that of the sizes.
    pub fn run<T, S, O, L>(
        &self,
        stream: &Arc<CudaStream>,
        layout: &Layout,
        inputs: &Inputs<'_, S>,
        table: &DeviceTable,
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
        let Paged { pages, seqlen_q, heads_q, heads_k, head_dim, .. } = shape;
        if Paged::new(table.table(), pages, seqlen_q, heads_q, heads_k, head_dim)? != shape {
            return Err(Error::invalid(format!("the table is not that of {shape:?}")));
        }
        let device = stream.context().ordinal();
        holds("the table", &table.pages, 1, device)?;
        let (places, _pages) = table.pages.device_ptr(stream);
        let (seqlens, _seqlens) = table.seqlens.device_ptr(stream);
        // SAFETY: the table is that of the sizes, its pages are among theirs, and it is on the device of the stream.
        unsafe { run(self, stream, layout, inputs, PagedPlaces { table: places, seqlens }, o, lse) }
    }
}

/// That a problem's sizes are those of these sequences, and the sequences on the device of a stream.
pub(super) fn require_lengths(
    shape: &Packed,
    queries: &DeviceLengths,
    keys: &DeviceLengths,
    stream: &Arc<CudaStream>,
) -> Result<(), Error> {
    let device = stream.context().ordinal();
    holds("the lengths of the queries", &queries.starts, 1, device)?;
    holds("the lengths of the keys", &keys.starts, 1, device)?;
    let told = Packed::new(queries.lengths(), keys.lengths(), shape.heads_q, shape.heads_k, shape.head_dim)?;
    if told != *shape {
        return Err(Error::invalid(format!("the lengths are those of {told:?}, and the problem is {shape:?}")));
    }
    Ok(())
}

/// # Safety
/// `places` are on the device of the stream and agree with the sizes, as [`Forward::launch`] says.
unsafe fn run<P, T, S, O, L>(
    forward: &Forward<P>,
    stream: &Arc<CudaStream>,
    layout: &Layout,
    inputs: &Inputs<'_, S>,
    places: P::Places,
    o: &mut O,
    lse: &mut L,
) -> Result<(), Error>
where
    P: Problem,
    T: Element,
    S: DevicePtr<T>,
    O: DevicePtrMut<T>,
    L: DevicePtrMut<f32>,
{
    let shape = forward.shape();
    require_dtype::<T>(forward.dtype())?;
    let device = stream.context().ordinal();
    inputs.require(layout, &shape.queries(), &shape.keys(), device)?;
    fits("o", o, &layout.o, &shape.queries(), device)?;
    holds("lse", lse, shape.lse_len()?, device)?;
    let need = forward.workspace(device)?;
    let mut workspace = scratch::<u8>(stream, bytes(need.bytes)?)?;
    let mut rng_state = forward.options.dropout.map(|_| scratch::<u64>(stream, 2)).transpose()?;
    let (q, _q) = inputs.q.device_ptr(stream);
    let (k, _k) = inputs.k.device_ptr(stream);
    let (v, _v) = inputs.v.device_ptr(stream);
    let (o, _o) = o.device_ptr_mut(stream);
    let (lse, _lse) = lse.device_ptr_mut(stream);
    let (room, _room) = workspace.device_ptr_mut(stream);
    let rng_state = rng_state.as_mut().map(|of| of.device_ptr_mut(stream));
    let rng_state = rng_state.as_ref().map_or(0, |(place, _)| *place);
    let at = Addresses { q, k, v, o, lse, workspace: (room, need.bytes), rng_state, places };
    // SAFETY: each slice is long enough for its strides and of this device; cudarc orders other uses of them, and
    // o and lse are borrowed alone. The workspace is freed in the order of the stream. The caller answers for places.
    unsafe { forward.launch(device, stream.cu_stream().cast(), layout, &at) }
}
