use flashattention_sys as sys;

use crate::problem::{Extents, Problem};
use crate::Error;

/// How the head vectors of a tensor lie in memory: the elements from one to the next of each dimension.
///
/// The elements of a head vector are contiguous. Each stride is a multiple of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// From one sequence, or page, to the next; not looked at in a packed tensor.
    pub batch: usize,
    /// From one row of a sequence to the next.
    pub row: usize,
    /// From one head to the next.
    pub head: usize,
}

impl Strides {
    /// Those of a contiguous `(batch, rows, heads, head_dim)` tensor.
    ///
    /// # Errors
    /// When a stride is larger than `usize` can say.
    pub fn contiguous(rows: usize, heads: usize, head_dim: usize) -> Result<Self, Error> {
        let row = product(heads, head_dim)?;
        Ok(Self { batch: product(rows, row)?, row, head: head_dim })
    }

    /// How many elements a buffer must have for a tensor of these extents: up to its last element.
    ///
    /// # Errors
    /// When that is more than `usize` can say.
    pub fn extent(&self, batch: usize, rows: usize, heads: usize, head_dim: usize) -> Result<usize, Error> {
        if [batch, rows, heads, head_dim].contains(&0) {
            return Ok(0);
        }
        [(batch, self.batch), (rows, self.row), (heads, self.head)]
            .into_iter()
            .try_fold(head_dim, |sum, (count, step)| sum.checked_add(product(count - 1, step)?).ok_or_else(too_large))
    }

    /// [`extent`](Self::extent) of a tensor of the problem.
    #[cfg(feature = "cudarc")]
    pub(crate) fn reach(&self, of: &Extents) -> Result<usize, Error> {
        self.extent(of.batch, of.rows, of.heads, of.head_dim)
    }

    /// Whether two elements could be the same place, which a kernel would write twice.
    pub(crate) fn overlap(&self, extents: &Extents) -> bool {
        let mut steps = [(extents.batch, self.batch), (extents.rows, self.row), (extents.heads, self.head)];
        steps.sort_by_key(|&(_, step)| step);
        let mut reach = extents.head_dim;
        for (count, step) in steps {
            if count > 1 {
                if step < reach {
                    return true;
                }
                reach = reach.saturating_add(step.saturating_mul(count - 1));
            }
        }
        false
    }

    /// Before a kernel writes a tensor: [`overlap`](Self::overlap) as an error.
    pub(crate) fn require_apart(&self, name: &str, extents: &Extents) -> Result<(), Error> {
        if self.overlap(extents) {
            return Err(Error::invalid(format!("the strides of {name}, {self:?}, let its elements overlap")));
        }
        Ok(())
    }

    pub(crate) fn tensor(self, data: u64) -> Result<sys::fa_tensor, Error> {
        Ok(sys::fa_tensor {
            data: address(data)?,
            batch_stride: number("a batch stride", self.batch)?,
            row_stride: number("a row stride", self.row)?,
            head_stride: number("a head stride", self.head)?,
            ..Default::default()
        })
    }

    pub(crate) fn input(self, data: u64) -> Result<sys::fa_const_tensor, Error> {
        let tensor = self.tensor(data)?;
        Ok(sys::fa_const_tensor {
            data: tensor.data,
            batch_stride: tensor.batch_stride,
            row_stride: tensor.row_stride,
            head_stride: tensor.head_stride,
            ..Default::default()
        })
    }
}

/// The strides of the four tensors of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Of the queries: `(batch, seqlen_q, heads_q, head_dim)`, packed `(total_q, heads_q, head_dim)`.
    pub q: Strides,
    /// Of the keys: `(batch, seqlen_k, heads_k, head_dim)`, packed `(total_k, heads_k, head_dim)`, paged
    /// `(pages, page_size, heads_k, head_dim)`.
    pub k: Strides,
    /// Of the values, as the keys.
    pub v: Strides,
    /// Of the output, as the queries.
    pub o: Strides,
}

impl Layout {
    /// All four contiguous.
    ///
    /// # Errors
    /// When a stride is larger than `usize` can say.
    pub fn contiguous<S: Problem>(shape: &S) -> Result<Self, Error> {
        let (q, k) = (contiguous(&shape.queries())?, contiguous(&shape.keys())?);
        Ok(Self { q, k, v: k, o: q })
    }

    /// Whether two elements of the output could be the same place, which a kernel would write twice.
    #[must_use]
    pub fn output_overlaps<S: Problem>(&self, shape: &S) -> bool {
        self.o.overlap(&shape.queries())
    }
}

/// The strides of the gradients, each as the tensor that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradientLayout {
    /// Of the gradient of the output.
    pub d_o: Strides,
    /// Of the gradient of the queries.
    pub dq: Strides,
    /// Of the gradient of the keys.
    pub dk: Strides,
    /// Of the gradient of the values.
    pub dv: Strides,
}

impl GradientLayout {
    /// All four contiguous.
    ///
    /// # Errors
    /// When a stride is larger than `usize` can say.
    pub fn contiguous<S: Problem>(shape: &S) -> Result<Self, Error> {
        let (q, k) = (contiguous(&shape.queries())?, contiguous(&shape.keys())?);
        Ok(Self { d_o: q, dq: q, dk: k, dv: k })
    }
}

fn contiguous(of: &Extents) -> Result<Strides, Error> {
    Strides::contiguous(of.rows, of.heads, of.head_dim)
}

/// An address on a device, which is one of this process as well.
pub(crate) fn address<T>(value: u64) -> Result<*mut T, Error> {
    let place = usize::try_from(value)
        .map_err(|_| Error::invalid(format!("{value:#x} is no address for a program of {} bits", usize::BITS)))?;
    Ok(place as *mut T)
}

/// A number as the C ABI takes it.
pub(crate) fn number<T: TryFrom<usize>>(name: &str, value: usize) -> Result<T, Error> {
    T::try_from(value).map_err(|_| Error::invalid(format!("{name} is {value}, which is more than the library counts")))
}

pub(crate) fn product(one: usize, other: usize) -> Result<usize, Error> {
    one.checked_mul(other).ok_or_else(too_large)
}

pub(crate) fn too_large() -> Error {
    Error::invalid("the tensor has more elements than this machine can count".to_owned())
}
