//! Inputs, and what attention of them should be, in double precision on the CPU.

/// A dense problem in the layout (batch, seqlen, heads, head_dim), contiguous.
#[derive(Clone, Copy)]
pub struct Problem {
    pub batch: usize,
    pub seqlen_q: usize,
    pub seqlen_k: usize,
    pub heads_q: usize,
    pub heads_k: usize,
    pub head_dim: usize,
    pub causal: bool,
}

impl Problem {
    pub fn count_q(&self) -> usize {
        self.batch * self.seqlen_q * self.heads_q * self.head_dim
    }

    pub fn count_k(&self) -> usize {
        self.batch * self.seqlen_k * self.heads_k * self.head_dim
    }

    pub fn count_lse(&self) -> usize {
        self.batch * self.heads_q * self.seqlen_q
    }

    /// Of two matrix products, each of one multiplication and one addition; with the causal mask about half of it.
    pub fn floating_point_operations(&self) -> f64 {
        let all = 4.0 * (self.count_lse() * self.head_dim) as f64 * self.seqlen_k as f64;
        if self.causal { all / 2.0 } else { all }
    }
}

pub fn from_bf16(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// To nearest, ties to even.
pub fn to_bf16(value: f32) -> u16 {
    let word = value.to_bits();
    ((word + 0x7fff + (word >> 16 & 1)) >> 16) as u16
}

/// Numbers of mean 0 and variance 1, nearly normal: the sum of four that are uniform. The same ones for a seed.
pub fn numbers(count: usize, seed: u64) -> Vec<u16> {
    let number = |i: u64| {
        // splitmix64
        let mut word = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed.wrapping_mul(0xd1b5_4a32_d192_ed03));
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        let sum: f64 = (0..4).map(|part| (word >> (16 * part) & 0xffff) as f64 / 65536.0).sum();
        to_bf16(((sum - 2.0) * 3f64.sqrt()) as f32)
    };
    (1..=count as u64).map(number).collect()
}

/// How far a result is from the reference. `of_bound` is the largest error as a part of what rounding can explain.
#[derive(Default)]
pub struct Difference {
    pub largest: f64,
    pub of_bound: f64,
    pub of_lse: f64,
    pub rows: usize,
}

impl Difference {
    pub fn is_right(&self) -> bool {
        self.rows > 0 && self.of_bound <= 1.0 && self.of_lse <= 1e-4
    }

    fn add(&mut self, error: f64, allowed: f64) {
        self.largest = worse(self.largest, error);
        self.of_bound = worse(self.of_bound, error / allowed);
    }
}

/// The larger of two errors, and a NaN rather than either: it counts as wrong.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// Compare the outputs of some query rows, in every batch and head, the first and the last among them.
///
/// The kernel rounds two things to bfloat16, each by at most 2^-8 of its size: every weight before it meets its value
/// vector, and the sum. So an output may be off by 2^-8 (sum(weight * |value|) + |output|), and a little for float.
pub fn compare(p: &Problem, q: &[u16], k: &[u16], v: &[u16], o: &[u16], lse: &[f32], step: usize) -> Difference {
    let mut found = Difference::default();
    let (dim, group) = (p.head_dim, p.heads_q / p.heads_k);
    for (row, &lse) in lse.iter().enumerate() {
        let (i, head, batch) = (row % p.seqlen_q, row / p.seqlen_q % p.heads_q, row / p.seqlen_q / p.heads_q);
        if i % step != 0 && i != p.seqlen_q - 1 {
            continue;
        }
        let at_q = ((batch * p.seqlen_q + i) * p.heads_q + head) * dim;
        let at_k = |j: usize| ((batch * p.seqlen_k + j) * p.heads_k + head / group) * dim;
        let visible = if p.causal { i + p.seqlen_k - p.seqlen_q + 1 } else { p.seqlen_k };
        let score = |j: usize| {
            let dot: f64 = (0..dim).map(|e| from_bf16(q[at_q + e]) * from_bf16(k[at_k(j) + e])).sum();
            dot / (dim as f64).sqrt()
        };
        let mut weights: Vec<f64> = (0..visible).map(score).collect();
        let largest = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        weights.iter_mut().for_each(|weight| *weight = (*weight - largest).exp());
        let sum: f64 = weights.iter().sum();
        for e in 0..dim {
            let terms = weights.iter().enumerate().map(|(j, weight)| weight / sum * from_bf16(v[at_k(j) + e]));
            let (expected, size) = terms.fold((0.0, 0.0), |(total, size), term| (total + term, size + term.abs()));
            let allowed = (size + expected.abs()) / 256.0 + 1e-5;
            found.add((from_bf16(o[at_q + e]) - expected).abs(), allowed);
        }
        found.of_lse = worse(found.of_lse, (f64::from(lse) - (largest + sum.ln())).abs());
        found.rows += 1;
    }
    found
}
