//! Safe calls over slices of cudarc's.

mod backward;
mod forward;
mod places;

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DeviceRepr, DeviceSlice};
use half::{bf16, f16};

use crate::problem::Extents;
use crate::{DType, Error, Strides};

pub use backward::{BackwardCall, Gradients, Saved};
pub use forward::{Call, Update};
pub use places::{DeviceLengths, DeviceTable, Placed};

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
pub struct Inputs<'a, T> {
    /// The queries.
    pub q: &'a dyn DevicePtr<T>,
    /// The keys.
    pub k: &'a dyn DevicePtr<T>,
    /// The values.
    pub v: &'a dyn DevicePtr<T>,
}

// Whatever T is: references are copied.
impl<T> Clone for Inputs<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Inputs<'_, T> {}

/// That a slice is of a device, and long enough for a tensor of these strides.
fn fits<T, S>(name: &str, slice: &S, as_: &Strides, of: &Extents, device: usize) -> Result<(), Error>
where
    S: DeviceSlice<T> + ?Sized,
{
    holds(name, slice, as_.reach(of)?, device)
}

/// That a slice is of a device, and has so many elements.
fn holds<T, S: DeviceSlice<T> + ?Sized>(name: &str, slice: &S, needs: usize, device: usize) -> Result<(), Error> {
    let (has, other) = (slice.len(), slice.stream().context().ordinal());
    if other != device {
        return Err(Error::invalid(format!("{name} is on device {other}, and the stream is of device {device}")));
    }
    if has < needs {
        return Err(Error::invalid(format!("{name} has {has} elements, and its sizes and strides need {needs}")));
    }
    Ok(())
}

/// That what a problem says that it has is given, long enough, and nothing else.
fn given<T>(name: &str, slice: Option<&dyn DevicePtr<T>>, needs: Option<usize>, device: usize) -> Result<(), Error> {
    match (slice, needs) {
        (Some(slice), Some(needs)) => holds(name, slice, needs, device),
        (None, None) => Ok(()),
        (Some(_), None) => Err(Error::invalid(format!("{name} is given, and the problem has none"))),
        (None, Some(_)) => Err(Error::invalid(format!("the problem has {name}, and the call is given none"))),
    }
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
