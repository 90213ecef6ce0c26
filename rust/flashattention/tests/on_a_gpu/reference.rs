//! Attention and its gradients in double precision, and numbers to compute it of.

use std::ops::Range;

use flashattention::Mask;
use half::bf16;

/// Where one sequence lies: the rows of its queries, and those of its keys.
#[derive(Clone, Copy)]
pub struct Sequence {
    pub q: (usize, usize),
    pub k: (usize, usize),
}

/// Sequences in tensors of `(rows, heads, head_dim)`.
#[derive(Default)]
pub struct Problem {
    pub sequences: Vec<Sequence>,
    pub heads_q: usize,
    pub heads_k: usize,
    pub head_dim: usize,
    pub mask: Mask,
    /// Scores become `softcap * tanh(score / softcap)`; 0: they do not.
    pub softcap: f64,
    /// Which probabilities are not dropped, `(rows, heads_q, head_dim)` with one a key, of sequences of at most `head_dim`
    /// keys; and what part of all that is. None: all.
    pub kept: Option<(Vec<bool>, f64)>,
    /// ALiBi's, one a head; none.
    pub slopes: Vec<f32>,
    /// One a head; none.
    pub sinks: Vec<f32>,
}

pub struct Tensors<'a> {
    pub q: &'a [bf16],
    pub k: &'a [bf16],
    pub v: &'a [bf16],
    pub d_o: &'a [bf16],
    /// `(heads_q, rows)` of each sequence, one after the other; none.
    pub d_lse: &'a [f32],
}

/// The output and the gradients, as long as the tensors that they belong to.
pub struct Results {
    pub o: Vec<f64>,
    pub dq: Vec<f64>,
    pub dk: Vec<f64>,
    pub dv: Vec<f64>,
    pub d_sink: Vec<f64>,
}

/// Numbers between -1 and 1, the same for each seed.
pub fn numbers(count: usize, seed: u64) -> Vec<bf16> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bf16::from_f64(f64::from((state >> 40) as u32) / f64::from(1 << 23) - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

fn dot(one: &[bf16], other: &[bf16]) -> f64 {
    one.iter().zip(other).map(|(a, b)| a.to_f64() * b.to_f64()).sum()
}

fn add(to: &mut [f64], factor: f64, of: &[bf16]) {
    for (sum, value) in to.iter_mut().zip(of) {
        *sum += factor * value.to_f64();
    }
}

impl Problem {
    pub fn compute(&self, of: &Tensors<'_>) -> Results {
        let zeros = |like: &[bf16]| vec![0.0; like.len()];
        let mut results = Results {
            o: zeros(of.q),
            dq: zeros(of.q),
            dk: zeros(of.k),
            dv: zeros(of.v),
            d_sink: vec![0.0; self.heads_q],
        };
        for sequence in &self.sequences {
            for row in 0..sequence.q.1 {
                for head in 0..self.heads_q {
                    self.add_row(of, sequence, row, head, &mut results);
                }
            }
        }
        results
    }

    /// The keys that a query sees, which stands at the sequence's last key if it is its last query.
    fn seen(&self, of: &Sequence, row: usize) -> Range<usize> {
        let after = |right: usize| (row + of.k.1 + right + 1).saturating_sub(of.q.1).min(of.k.1);
        match self.mask {
            Mask::None => 0..of.k.1,
            Mask::Causal => 0..after(0),
            Mask::Window { left, right } => {
                let first = left.map_or(0, |left| (row + of.k.1).saturating_sub(of.q.1 + left));
                first..right.map_or(of.k.1, after)
            }
        }
    }

    /// A score and its derivative.
    fn capped(&self, score: f64) -> (f64, f64) {
        if self.softcap == 0.0 {
            return (score, 1.0);
        }
        let bent = (score / self.softcap).tanh();
        (self.softcap * bent, 1.0 - bent * bent)
    }

    fn add_row(&self, of: &Tensors<'_>, sequence: &Sequence, row: usize, head: usize, results: &mut Results) {
        let (d, scale) = (self.head_dim, 1.0 / (self.head_dim as f64).sqrt());
        let head_k = head / (self.heads_q / self.heads_k);
        let at_q = ((sequence.q.0 + row) * self.heads_q + head) * d;
        let at_k = |key: usize| ((sequence.k.0 + key) * self.heads_k + head_k) * d;
        let seen = self.seen(sequence, row);
        let (q, d_o) = (&of.q[at_q..at_q + d], &of.d_o[at_q..at_q + d]);
        let bias = |key: usize| {
            let distance = (row + sequence.k.1) as f64 - (sequence.q.1 + key) as f64;
            self.slopes.get(head).map_or(0.0, |&slope| -f64::from(slope) * distance.abs())
        };
        let score = |key: usize| {
            let (score, slope) = self.capped(scale * dot(q, &of.k[at_k(key)..at_k(key) + d]));
            (score + bias(key), slope)
        };
        let scores: Vec<(f64, f64)> = seen.clone().map(score).collect();
        let sink = self.sinks.get(head).map_or(f64::NEG_INFINITY, |&sink| f64::from(sink));
        let highest = scores.iter().map(|of| of.0).fold(sink, f64::max);
        let powers: Vec<f64> = scores.iter().map(|of| (of.0 - highest).exp()).collect();
        let sum: f64 = powers.iter().sum::<f64>() + (sink - highest).exp();
        let shares: Vec<f64> = powers.iter().map(|power| power / sum).collect();
        let kept = |key: usize| {
            self.kept.as_ref().map_or(1.0, |(kept, of_all)| f64::from(u8::from(kept[at_q + key])) / of_all)
        };
        let of_share = |key: usize| kept(key) * dot(d_o, &of.v[at_k(key)..at_k(key) + d]);
        let of_shares: Vec<f64> = seen.clone().map(of_share).collect();
        let d_lse = of.d_lse.get((sequence.q.0 * self.heads_q) + head * sequence.q.1 + row).map_or(0.0, |&d| d.into());
        let mean: f64 = shares.iter().zip(&of_shares).map(|(share, change)| share * change).sum::<f64>() - d_lse;
        results.d_sink[head] -= (sink - highest).exp() / sum * mean;
        for (index, key) in seen.enumerate() {
            let change = shares[index] * (of_shares[index] - mean) * scores[index].1 * scale;
            let share = shares[index] * kept(key);
            let place = at_k(key)..at_k(key) + d;
            add(&mut results.o[at_q..at_q + d], share, &of.v[place.clone()]);
            add(&mut results.dq[at_q..at_q + d], change, &of.k[place.clone()]);
            add(&mut results.dk[place.clone()], change, q);
            add(&mut results.dv[place], share, d_o);
        }
    }
}

/// That each number is what rounding of the largest allows.
pub fn assert_near(name: &str, seen: &[bf16], expected: &[f64]) {
    assert_eq!(seen.len(), expected.len(), "{name}");
    let largest = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    let worst = seen.iter().zip(expected).map(|(a, b)| (a.to_f64() - b).abs()).fold(0.0_f64, |most, of| {
        if of.is_nan() {
            f64::INFINITY
        } else {
            most.max(of)
        }
    });
    println!("{name}: {worst:.5} of {largest:.3}");
    assert!(worst <= 0.02 * largest, "{name} is {worst} off, and its largest number is {largest}");
}
