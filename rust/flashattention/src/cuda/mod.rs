//! Safe calls over slices of cudarc's.

mod backward;
mod forward;
mod places;

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr, DeviceSlice};
use half::{bf16, f16};

use crate::problem::Extents;
use crate::{DType, Error, Layout, Strides};

pub use backward::{Gradients, Saved};
pub use places::{DeviceLengths, DeviceTable};

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

impl<S> Inputs<'_, S> {
    fn require<T>(&self, layout: &Layout, queries: &Extents, keys: &Extents, device: usize) -> Result<(), Error>
    where
        S: DevicePtr<T>,
    {
        fits("q", self.q, &layout.q, queries, device)?;
        fits("k", self.k, &layout.k, keys, device)?;
        fits("v", self.v, &layout.v, keys, device)
    }
}

/// That a slice is of a device, and long enough for a tensor of these strides.
fn fits<T, S: DeviceSlice<T>>(name: &str, slice: &S, as_: &Strides, of: &Extents, device: usize) -> Result<(), Error> {
    holds(name, slice, as_.reach(of)?, device)
}

/// That a slice is of a device, and has so many elements.
fn holds<T, S: DeviceSlice<T>>(name: &str, slice: &S, needs: usize, device: usize) -> Result<(), Error> {
    let (has, other) = (slice.len(), slice.stream().context().ordinal());
    if other != device {
        return Err(Error::invalid(format!("{name} is on device {other}, and the stream is of device {device}")));
    }
    if has < needs {
        return Err(Error::invalid(format!("{name} has {has} elements, and its sizes and strides need {needs}")));
    }
    Ok(())
}

fn require_dtype<T: Element>(problem: DType) -> Result<(), Error> {
    if T::DTYPE == problem {
        return Ok(());
    }
    Err(Error::invalid(format!("the slices hold {:?}, and the problem {problem:?}", T::DTYPE)))
}

/// Memory that a kernel writes before it reads it.
fn scratch<T: DeviceRepr>(stream: &Arc<CudaStream>, count: usize) -> Result<CudaSlice<T>, Error> {
    // SAFETY: as above. One element, because none cannot be allocated.
    unsafe { stream.alloc::<T>(count.max(1)) }.map_err(Error::cuda)
}

fn bytes(count: u64) -> Result<usize, Error> {
    usize::try_from(count).map_err(|_| Error::invalid(format!("a workspace of {count} bytes has no place here")))
}
