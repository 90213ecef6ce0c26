use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};

use crate::{BlockTable, Error, Lengths};

/// [`Lengths`] on a device. What was put there cannot be changed, so kernels that read it stay within their tensors.
#[derive(Debug)]
pub struct DeviceLengths {
    lengths: Lengths,
    pub(super) starts: CudaSlice<i32>,
}

impl DeviceLengths {
    /// Copy them to the device of a stream.
    ///
    /// # Errors
    /// When CUDA fails.
    pub fn new(stream: &Arc<CudaStream>, lengths: Lengths) -> Result<Self, Error> {
        let starts = stream.clone_htod(lengths.starts()).map_err(Error::cuda)?;
        Ok(Self { lengths, starts })
    }

    /// What was copied.
    #[must_use]
    pub fn lengths(&self) -> &Lengths {
        &self.lengths
    }
}

/// A [`BlockTable`] on a device. What was put there cannot be changed, so kernels that read it stay within the pages.
#[derive(Debug)]
pub struct DeviceTable {
    table: BlockTable,
    pub(super) pages: CudaSlice<i32>,
    pub(super) seqlens: CudaSlice<i32>,
}

impl DeviceTable {
    /// Copy it to the device of a stream.
    ///
    /// # Errors
    /// When CUDA fails.
    pub fn new(stream: &Arc<CudaStream>, table: BlockTable) -> Result<Self, Error> {
        let (pages, seqlens) = (copied(stream, table.pages())?, copied(stream, table.seqlens())?);
        Ok(Self { table, pages, seqlens })
    }

    /// What was copied.
    #[must_use]
    pub fn table(&self) -> &BlockTable {
        &self.table
    }
}

fn copied(stream: &Arc<CudaStream>, numbers: &[i32]) -> Result<CudaSlice<i32>, Error> {
    let numbers = if numbers.is_empty() { &[0] } else { numbers }; // nothing cannot be allocated
    stream.clone_htod(numbers).map_err(Error::cuda)
}
