use core::ffi::c_void;
use core::ptr::NonNull;

use flashattention_sys as sys;

use crate::layout::{address, number};
use crate::{BlockTable, Error, Lengths, Strides};

/// The sizes of a dense problem. Query head `n` uses key head `n / (heads_q / heads_k)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Rows of each sequence of queries.
    pub seqlen_q: usize,
    /// Rows of each sequence of keys and values.
    pub seqlen_k: usize,
    /// Heads of the queries, a multiple of `heads_k`.
    pub heads_q: usize,
    /// Heads of the keys and values.
    pub heads_k: usize,
    /// Elements of a head vector: a multiple of 8, at most 256.
    pub head_dim: usize,
}

/// The sizes of a packed problem: sequences of any length, one after the other, without a batch dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed {
    /// Sequences.
    pub batch: usize,
    /// Rows of the longest sequence of queries.
    pub longest_q: usize,
    /// Rows of the longest sequence of keys.
    pub longest_k: usize,
    /// Rows of all queries.
    pub total_q: usize,
    /// Rows of all keys.
    pub total_k: usize,
    /// Heads of the queries, a multiple of `heads_k`.
    pub heads_q: usize,
    /// Heads of the keys and values.
    pub heads_k: usize,
    /// Elements of a head vector: a multiple of 8, at most 256.
    pub head_dim: usize,
}

impl Packed {
    /// The sizes of sequences of these lengths.
    ///
    /// # Errors
    /// When there are not as many sequences of queries as of keys.
    pub fn new(q: &Lengths, k: &Lengths, heads_q: usize, heads_k: usize, head_dim: usize) -> Result<Self, Error> {
        if q.batch() != k.batch() {
            let (sequences_q, sequences_k) = (q.batch(), k.batch());
            return Err(Error::invalid(format!(
                "there are {sequences_q} sequences of queries and {sequences_k} of keys"
            )));
        }
        let (longest_q, longest_k, total_q, total_k) = (q.longest(), k.longest(), q.total(), k.total());
        Ok(Self { batch: q.batch(), longest_q, longest_k, total_q, total_k, heads_q, heads_k, head_dim })
    }
}

/// The sizes of a problem whose keys and values lie in pages, as servers keep their caches.
///
/// A cache in one piece, a slot a sequence, is one page a sequence, as long as a slot: a multiple of 256 rows is read, and
/// appended to, where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Paged {
    /// Sequences.
    pub batch: usize,
    /// Rows of each sequence of queries; 1 while tokens are generated.
    pub seqlen_q: usize,
    /// Heads of the queries, a multiple of `heads_k`.
    pub heads_q: usize,
    /// Heads of the keys and values.
    pub heads_k: usize,
    /// Elements of a head vector: a multiple of 8, at most 256.
    pub head_dim: usize,
    /// Pages of keys, which are as many as those of values.
    pub pages: usize,
    /// Rows of a page, at least 1.
    pub page_size: usize,
    /// The most pages that a sequence has.
    pub pages_per_sequence: usize,
}

impl Paged {
    /// The sizes of queries that look at the sequences of a table, whose pages are among `pages`.
    ///
    /// # Errors
    /// When the table names a page beyond those.
    pub fn new(
        table: &BlockTable,
        pages: usize,
        seqlen_q: usize,
        heads_q: usize,
        heads_k: usize,
        head_dim: usize,
    ) -> Result<Self, Error> {
        table.require_pages(pages)?;
        Ok(Self {
            batch: table.batch(),
            seqlen_q,
            heads_q,
            heads_k,
            head_dim,
            pages,
            page_size: table.page_size(),
            pages_per_sequence: table.pages_per_sequence(),
        })
    }
}

/// The extents of a tensor of head vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extents {
    /// Sequences, or pages; 1 for a packed tensor.
    pub batch: usize,
    /// Rows of each.
    pub rows: usize,
    /// Heads.
    pub heads: usize,
    /// Elements of a head vector.
    pub head_dim: usize,
}

/// The sizes of a problem: [`Shape`], [`Packed`] or [`Paged`].
pub trait Problem: Copy + core::fmt::Debug + private::Arguments {
    /// What of a call says, on the device, where sequences are.
    type Places: Copy + Default + core::fmt::Debug;

    /// Of the queries, the output and their gradients.
    fn queries(&self) -> Extents;

    /// Of the keys, the values and their gradients.
    fn keys(&self) -> Extents;

    /// How many numbers `lse` has.
    ///
    /// # Errors
    /// When they are more than `usize` can say.
    fn lse_len(&self) -> Result<usize, Error> {
        let Extents { batch, rows, heads, .. } = self.queries();
        Strides::contiguous(rows, heads, 1)?.extent(batch, rows, heads, 1)
    }

    #[doc(hidden)]
    fn place(&self, places: &Self::Places, args: &mut sys::fa_fwd_args) -> Result<(), Error>;
}

/// A problem that the backward pass takes: [`Shape`] or [`Packed`].
pub trait Differentiable: Problem {
    /// How many numbers `softmax_d` has.
    ///
    /// # Errors
    /// When they are more than `usize` can say.
    fn softmax_d_len(&self) -> Result<usize, Error>;
}

pub(crate) mod private {
    use super::{sys, Error};

    pub trait Arguments {
        /// Sizes, and for optional pointers ones that only say that they are set.
        fn sizes(&self, args: &mut sys::fa_fwd_args) -> Result<(), Error>;
    }
}

/// Addresses of [`Packed`] on the device: `batch + 1` numbers each, of the row where a sequence begins and last the end.
#[derive(Clone, Copy, Debug, Default)]
pub struct PackedPlaces {
    /// Of the queries.
    pub starts_q: u64,
    /// Of the keys.
    pub starts_k: u64,
}

/// Addresses of [`Paged`] on the device.
#[derive(Clone, Copy, Debug, Default)]
pub struct PagedPlaces {
    /// `(batch, pages_per_sequence)`, contiguous: the index of each page.
    pub table: u64,
    /// `(batch)`: keys of each sequence.
    pub seqlens: u64,
}

const ROWS_OF_A_BLOCK: usize = 128;

fn heads(q: usize, k: usize, head_dim: usize, args: &mut sys::fa_fwd_args) -> Result<(), Error> {
    args.heads_q = number("heads_q", q)?;
    args.heads_k = number("heads_k", k)?;
    args.head_dim = number("head_dim", head_dim)?;
    Ok(())
}

/// A pointer that is only looked at for being set.
pub(crate) fn set<T>() -> *const T {
    NonNull::<T>::dangling().as_ptr()
}

impl private::Arguments for Shape {
    fn sizes(&self, args: &mut sys::fa_fwd_args) -> Result<(), Error> {
        args.batch = number("batch", self.batch)?;
        args.seqlen_q = number("seqlen_q", self.seqlen_q)?;
        args.seqlen_k = number("seqlen_k", self.seqlen_k)?;
        heads(self.heads_q, self.heads_k, self.head_dim, args)
    }
}

impl Problem for Shape {
    type Places = ();

    fn queries(&self) -> Extents {
        Extents { batch: self.batch, rows: self.seqlen_q, heads: self.heads_q, head_dim: self.head_dim }
    }

    fn keys(&self) -> Extents {
        Extents { batch: self.batch, rows: self.seqlen_k, heads: self.heads_k, head_dim: self.head_dim }
    }

    fn place(&self, (): &(), _: &mut sys::fa_fwd_args) -> Result<(), Error> {
        Ok(())
    }
}

impl Differentiable for Shape {
    fn softmax_d_len(&self) -> Result<usize, Error> {
        let rows = self.seqlen_q.checked_next_multiple_of(ROWS_OF_A_BLOCK).ok_or_else(crate::layout::too_large)?;
        Strides::contiguous(rows, self.heads_q, 1)?.extent(self.batch, rows, self.heads_q, 1)
    }
}

impl private::Arguments for Packed {
    fn sizes(&self, args: &mut sys::fa_fwd_args) -> Result<(), Error> {
        args.batch = number("batch", self.batch)?;
        args.seqlen_q = number("longest_q", self.longest_q)?;
        args.seqlen_k = number("longest_k", self.longest_k)?;
        args.total_q = number("total_q", self.total_q)?;
        args.total_k = number("total_k", self.total_k)?;
        (args.cu_seqlens_q, args.cu_seqlens_k) = (set(), set());
        heads(self.heads_q, self.heads_k, self.head_dim, args)
    }
}

impl Problem for Packed {
    type Places = PackedPlaces;

    fn queries(&self) -> Extents {
        Extents { batch: 1, rows: self.total_q, heads: self.heads_q, head_dim: self.head_dim }
    }

    fn keys(&self) -> Extents {
        Extents { batch: 1, rows: self.total_k, heads: self.heads_k, head_dim: self.head_dim }
    }

    fn place(&self, places: &PackedPlaces, args: &mut sys::fa_fwd_args) -> Result<(), Error> {
        args.cu_seqlens_q = address::<i32>(places.starts_q)?;
        args.cu_seqlens_k = address::<i32>(places.starts_k)?;
        Ok(())
    }
}

impl Differentiable for Packed {
    fn softmax_d_len(&self) -> Result<usize, Error> {
        let rows = self.batch.checked_mul(ROWS_OF_A_BLOCK).and_then(|more| self.total_q.checked_add(more));
        let rows = rows.ok_or_else(crate::layout::too_large)?;
        rows.checked_mul(self.heads_q).ok_or_else(crate::layout::too_large)
    }
}

impl private::Arguments for Paged {
    fn sizes(&self, args: &mut sys::fa_fwd_args) -> Result<(), Error> {
        let capacity = self.pages_per_sequence.checked_mul(self.page_size).ok_or_else(crate::layout::too_large)?;
        args.batch = number("batch", self.batch)?;
        args.seqlen_q = number("seqlen_q", self.seqlen_q)?;
        args.seqlen_k = number("pages_per_sequence * page_size", capacity)?;
        args.page_size = number("page_size", self.page_size)?;
        args.block_table_stride = number("pages_per_sequence", self.pages_per_sequence)?;
        (args.block_table, args.cache_seqlens) = (set(), set());
        heads(self.heads_q, self.heads_k, self.head_dim, args)
    }
}

impl Problem for Paged {
    type Places = PagedPlaces;

    fn queries(&self) -> Extents {
        Extents { batch: self.batch, rows: self.seqlen_q, heads: self.heads_q, head_dim: self.head_dim }
    }

    fn keys(&self) -> Extents {
        Extents { batch: self.pages, rows: self.page_size, heads: self.heads_k, head_dim: self.head_dim }
    }

    fn place(&self, places: &PagedPlaces, args: &mut sys::fa_fwd_args) -> Result<(), Error> {
        args.block_table = address::<i32>(places.table)?;
        args.cache_seqlens = address::<i32>(places.seqlens)?;
        Ok(())
    }
}

/// A stream of CUDA's, or null for the legacy default stream.
pub(crate) type RawStream = *mut c_void;
