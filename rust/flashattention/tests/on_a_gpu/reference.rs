//! Attention and its gradients in double precision, and numbers to compute it of.

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
    pub causal: bool,
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

    fn add_row(&self, of: &Tensors<'_>, sequence: &Sequence, row: usize, head: usize, results: &mut Results) {
        let (d, scale) = (self.head_dim, 1.0 / (self.head_dim as f64).sqrt());
        let head_k = head / (self.heads_q / self.heads_k);
        let at_q = ((sequence.q.0 + row) * self.heads_q + head) * d;
        let at_k = |key: usize| ((sequence.k.0 + key) * self.heads_k + head_k) * d;
        let seen = if self.causal { (sequence.k.1 + row + 1).saturating_sub(sequence.q.1) } else { sequence.k.1 };
        let (q, d_o) = (&of.q[at_q..at_q + d], &of.d_o[at_q..at_q + d]);
        let bias = |key: usize| {
            let distance = (row + sequence.k.1) as f64 - (sequence.q.1 + key) as f64;
            self.slopes.get(head).map_or(0.0, |&slope| -f64::from(slope) * distance.abs())
        };
        let scores: Vec<f64> =
            (0..seen).map(|key| scale * dot(q, &of.k[at_k(key)..at_k(key) + d]) + bias(key)).collect();
        let sink = self.sinks.get(head).map_or(f64::NEG_INFINITY, |&sink| f64::from(sink));
        let highest = scores.iter().copied().fold(sink, f64::max);
        let powers: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
        let sum: f64 = powers.iter().sum::<f64>() + (sink - highest).exp();
        let shares: Vec<f64> = powers.iter().map(|power| power / sum).collect();
        let of_shares: Vec<f64> = (0..seen).map(|key| dot(d_o, &of.v[at_k(key)..at_k(key) + d])).collect();
        let d_lse = of.d_lse.get((sequence.q.0 * self.heads_q) + head * sequence.q.1 + row).map_or(0.0, |&d| d.into());
        let mean: f64 = shares.iter().zip(&of_shares).map(|(share, change)| share * change).sum::<f64>() - d_lse;
        results.d_sink[head] -= (sink - highest).exp() / sum * mean;
        for key in 0..seen {
            let (share, change) = (shares[key], shares[key] * (of_shares[key] - mean) * scale);
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
