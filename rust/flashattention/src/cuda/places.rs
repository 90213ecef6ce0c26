use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, SyncOnDrop};

use super::holds;
use crate::{BlockTable, Error, Lengths, Packed, PackedPlaces, Paged, PagedPlaces, Problem, Shape};

/// [`Lengths`] on a device. What was put there cannot be changed, so kernels that read it stay within their tensors.
#[derive(Debug)]
pub struct DeviceLengths {
    lengths: Lengths,
    starts: CudaSlice<i32>,
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
    pages: CudaSlice<i32>,
    seqlens: CudaSlice<i32>,
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

/// A problem whose sequences' places are in cudarc's memory.
pub trait Placed: Problem {
    /// What a call is given of them: `()`, the lengths of queries and keys, or a table.
    type On<'a>: Copy;

    /// What they are, if they are those of the sizes and have room for rows that are appended.
    #[doc(hidden)]
    fn places<'a: 'h, 'h>(
        &self,
        on: Self::On<'a>,
        append: usize,
        stream: &'h Arc<CudaStream>,
    ) -> Result<Held<'h, Self::Places>, Error>;
}

/// Places, and what tells cudarc when they have been read.
#[doc(hidden)]
#[derive(Debug)]
pub struct Held<'a, P> {
    pub(super) at: P,
    _read: Option<[SyncOnDrop<'a>; 2]>,
}

impl Placed for Shape {
    type On<'a> = ();

    fn places<'a: 'h, 'h>(&self, (): (), _: usize, _: &'h Arc<CudaStream>) -> Result<Held<'h, ()>, Error> {
        Ok(Held { at: (), _read: None })
    }
}

impl Placed for Packed {
    type On<'a> = (&'a DeviceLengths, &'a DeviceLengths);

    fn places<'a: 'h, 'h>(
        &self,
        (queries, keys): Self::On<'a>,
        _: usize,
        stream: &'h Arc<CudaStream>,
    ) -> Result<Held<'h, PackedPlaces>, Error> {
        let device = stream.context().ordinal();
        holds("the lengths of the queries", &queries.starts, 1, device)?;
        holds("the lengths of the keys", &keys.starts, 1, device)?;
        let told = Packed::new(&queries.lengths, &keys.lengths, self.heads_q, self.heads_k, self.head_dim)?;
        if told != *self {
            return Err(Error::invalid(format!("the lengths are those of {told:?}, and the problem is {self:?}")));
        }
        let ((starts_q, q), (starts_k, k)) = (queries.starts.device_ptr(stream), keys.starts.device_ptr(stream));
        Ok(Held { at: PackedPlaces { starts_q, starts_k }, _read: Some([q, k]) })
    }
}

impl Placed for Paged {
    type On<'a> = &'a DeviceTable;

    fn places<'a: 'h, 'h>(
        &self,
        on: &'a DeviceTable,
        append: usize,
        stream: &'h Arc<CudaStream>,
    ) -> Result<Held<'h, PagedPlaces>, Error> {
        let Paged { pages, seqlen_q, heads_q, heads_k, head_dim, .. } = *self;
        if Paged::new(&on.table, pages, seqlen_q, heads_q, heads_k, head_dim)? != *self {
            return Err(Error::invalid(format!("the table is not that of {self:?}")));
        }
        on.table.require_room(append)?;
        holds("the table", &on.pages, 1, stream.context().ordinal())?;
        let ((table, pages), (seqlens, lengths)) = (on.pages.device_ptr(stream), on.seqlens.device_ptr(stream));
        Ok(Held { at: PagedPlaces { table, seqlens }, _read: Some([pages, lengths]) })
    }
}
