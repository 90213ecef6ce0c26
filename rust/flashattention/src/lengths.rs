use crate::layout::{number, product, too_large};
use crate::Error;

/// The lengths of the sequences of a packed batch, in rows.
///
/// ```
/// use flashattention::Lengths;
///
/// let lengths = Lengths::new([3, 0, 5])?;
/// assert_eq!(lengths.starts(), [0, 3, 3, 8]);
/// assert_eq!((lengths.total(), lengths.longest()), (8, 5));
/// # Ok::<(), flashattention::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    starts: Vec<i32>,
    longest: usize,
    total: usize,
}

impl Lengths {
    /// Of sequences in the order in which they lie in memory. Any may be empty.
    ///
    /// # Errors
    /// When together they are longer than the library counts, 2^31 - 1 rows.
    pub fn new(lengths: impl IntoIterator<Item = usize>) -> Result<Self, Error> {
        let (mut starts, mut longest, mut total) = (vec![0], 0, 0_usize);
        for length in lengths {
            total = total.checked_add(length).ok_or_else(too_large)?;
            longest = longest.max(length);
            starts.push(number("the rows of all sequences", total)?);
        }
        Ok(Self { starts, longest, total })
    }

    /// How many sequences there are.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.starts.len() - 1
    }

    /// Rows of the longest.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Rows of all.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// The row where each begins, and last the end: `batch() + 1` numbers, which the kernels read on the device.
    #[must_use]
    pub fn starts(&self) -> &[i32] {
        &self.starts
    }
}

/// Which pages hold the keys and values of each sequence, and how many of their rows are in use.
///
/// ```
/// use flashattention::BlockTable;
///
/// // Two sequences, of 300 and of 10 keys, in pages of 256 rows.
/// let table = BlockTable::new(256, &[(300, &[4, 1]), (10, &[0])])?;
/// assert_eq!(table.pages(), [4, 1, 0, 0]);
/// assert_eq!(table.seqlens(), [300, 10]);
/// # Ok::<(), flashattention::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockTable {
    pages: Vec<i32>,
    seqlens: Vec<i32>,
    page_size: usize,
    per_sequence: usize,
    needs: usize,
    /// The fewest rows that a sequence's pages have behind its keys.
    room: usize,
}

impl BlockTable {
    /// Of sequences: the keys of each, and its pages in their order.
    ///
    /// # Errors
    /// When a sequence has more keys than its pages have rows, or a number is more than the library counts.
    pub fn new(page_size: usize, sequences: &[(usize, &[usize])]) -> Result<Self, Error> {
        let per_sequence = sequences.iter().map(|(_, pages)| pages.len()).max().unwrap_or(0);
        let mut table = Self {
            pages: Vec::with_capacity(product(sequences.len(), per_sequence)?),
            seqlens: Vec::with_capacity(sequences.len()),
            page_size,
            per_sequence,
            needs: 0,
            room: usize::MAX,
        };
        for (index, &(keys, pages)) in sequences.iter().enumerate() {
            let rows = product(pages.len(), page_size)?;
            if keys > rows {
                let count = pages.len();
                return Err(Error::invalid(format!(
                    "sequence {index} has {keys} keys, and its {count} pages of {page_size} rows hold {rows}"
                )));
            }
            table.seqlens.push(number("the keys of a sequence", keys)?);
            table.room = table.room.min(rows - keys);
            for &page in pages {
                table.pages.push(number("a page", page)?);
                table.needs = table.needs.max(page + 1);
            }
            // What lies behind a sequence's last page is a page as well, whatever looks at it.
            table.pages.resize((index + 1) * per_sequence, 0);
        }
        if per_sequence > 0 {
            table.needs = table.needs.max(1);
        }
        Ok(table)
    }

    /// How many sequences there are.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.seqlens.len()
    }

    /// Rows of a page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// The most pages that a sequence has.
    #[must_use]
    pub fn pages_per_sequence(&self) -> usize {
        self.per_sequence
    }

    /// `(batch, pages_per_sequence)`: the index of each page, which the kernels read on the device.
    #[must_use]
    pub fn pages(&self) -> &[i32] {
        &self.pages
    }

    /// Keys of each sequence, which the kernels read on the device.
    #[must_use]
    pub fn seqlens(&self) -> &[i32] {
        &self.seqlens
    }

    pub(crate) fn require_pages(&self, pages: usize) -> Result<(), Error> {
        if self.needs > pages {
            let last = self.needs - 1;
            return Err(Error::invalid(format!("the table names page {last}, and there are {pages}, from 0 on")));
        }
        Ok(())
    }

    /// That every sequence's pages have room for so many more rows.
    #[cfg(feature = "cudarc")]
    pub(crate) fn require_room(&self, rows: usize) -> Result<(), Error> {
        if rows > self.room {
            let room = self.room;
            return Err(Error::invalid(format!(
                "{rows} rows are appended, and the pages of a sequence have room for {room}"
            )));
        }
        Ok(())
    }
}
