use flashattention_sys as sys;

use crate::layout::number;
use crate::Error;

/// The type of the elements of queries, keys, values and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

/// Which keys a query sees. The last query of a sequence stands at its last key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mask {
    /// All.
    #[default]
    None,
    /// Those up to its own place.
    Causal,
    /// Those at most so many places before and after its own; `None` is without an end.
    Window {
        /// Places before.
        left: Option<usize>,
        /// Places after.
        right: Option<usize>,
    },
}

/// Which line of kernels runs a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// The fastest of those in the library that can.
    #[default]
    Best,
    /// FlashAttention-2.
    Fa2,
    /// FlashAttention-4.
    Fa4,
}

/// Which probabilities are dropped: the same ones for the same seed and offset, in the forward pass and its gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability of dropping, from 0 to below 1.
    pub probability: f32,
    /// The seed of the random numbers (Philox).
    pub seed: u64,
    /// Where in their sequence to begin. A call uses `batch * heads_q * 32` of them.
    pub offset: u64,
}

/// How many ALiBi slopes there are. A key gets the bias `-slope * distance`, of whole places from the query's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alibi {
    /// `(heads_q)`: the same for every sequence.
    PerHead,
    /// `(batch, heads_q)`.
    PerSequence,
}

/// Rotary embedding of queries and appended keys, from tables of cosines and sines of `(rows, dim / 2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rotary {
    /// How many elements of a head vector are turned: a multiple of 16, at most `head_dim`.
    pub dim: usize,
    /// Rows of both tables, at least as many as a sequence's pages have.
    pub rows: usize,
    /// Whether pairs are `(0, 1), (2, 3), ..` (GPT-J), and not `(0, dim / 2), ..` (GPT-NeoX, Llama).
    pub interleaved: bool,
}

/// What is said of a problem besides its sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Options {
    pub dtype: DType,
    pub mask: Mask,
    pub scale: f32,
    pub softcap: f32,
    pub dropout: Option<Dropout>,
    pub family: Family,
    pub splits: usize,
    pub alibi: Option<Alibi>,
    pub sink: bool,
    pub append: usize,
    pub rotary: Option<Rotary>,
}

/// [`Options`] as the C ABI takes them.
pub(crate) struct Numbers {
    pub dtype: i32,
    pub flags: u32,
    pub window_left: i32,
    pub window_right: i32,
    pub family: i32,
}

impl Options {
    pub fn new(dtype: DType) -> Self {
        Self {
            dtype,
            mask: Mask::None,
            scale: 0.0,
            softcap: 0.0,
            dropout: None,
            family: Family::Best,
            splits: 0,
            alibi: None,
            sink: false,
            append: 0,
            rotary: None,
        }
    }

    pub fn numbers(&self) -> Result<Numbers, Error> {
        let dtype = match self.dtype {
            DType::F16 => sys::FA_DTYPE_FP16,
            DType::Bf16 => sys::FA_DTYPE_BF16,
        };
        let family = match self.family {
            Family::Best => sys::FA_FAMILY_BEST,
            Family::Fa2 => sys::FA_FAMILY_FA2,
            Family::Fa4 => sys::FA_FAMILY_FA4,
        };
        let mut numbers = Numbers { dtype, flags: 0, window_left: 0, window_right: 0, family };
        match self.mask {
            Mask::None => {}
            Mask::Causal => numbers.flags |= sys::FA_FLAG_CAUSAL,
            Mask::Window { left, right } => {
                if let Some(left) = left {
                    numbers.flags |= sys::FA_FLAG_WINDOW_LEFT;
                    numbers.window_left = number("the window's left", left)?;
                }
                if let Some(right) = right {
                    numbers.flags |= sys::FA_FLAG_WINDOW_RIGHT;
                    numbers.window_right = number("the window's right", right)?;
                }
            }
        }
        if self.rotary.is_some_and(|rotary| rotary.interleaved) {
            numbers.flags |= sys::FA_FLAG_ROTARY_INTERLEAVED;
        }
        Ok(numbers)
    }
}
