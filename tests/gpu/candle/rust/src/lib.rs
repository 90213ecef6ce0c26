//! run_mha from Rust, declared as candle declares it, against attention in double precision on the CPU.
//!
//! Problems that the library was not built for are named and left out.
//! Exit status: 0 all right, 1 a wrong result, 2 nothing could run.

mod driver;
mod mha;

use driver::Driver;
use mha::{Call, Newer};
use std::ffi::{c_int, c_void, CStr};
use std::ptr::null_mut;

const BATCH: usize = 2;
const PAGE: usize = 256;
const UNSUPPORTED: i32 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(not(form = "45"), allow(dead_code))]
enum Kind {
    Dense,
    Packed,
    Paged,
}

#[derive(Clone, Copy, Debug)]
struct Problem {
    kind: Kind,
    bf16: bool,
    h: usize,
    hk: usize,
    d: usize,
    sq: [usize; BATCH],
    sk: [usize; BATCH],
    causal: bool,
    left: i32,
    softcap: f32,
}

impl Problem {
    fn packed(&self) -> bool {
        self.kind != Kind::Dense
    }

    fn paged(&self) -> bool {
        self.kind == Kind::Paged
    }

    /// Row of a key in k and v. The pages of a sequence lie in descending order.
    fn key_row(&self, i: usize, j: usize) -> usize {
        match self.paged() {
            true => (2 * i + 1 - j / PAGE) * PAGE + j % PAGE,
            false => self.sk[..i].iter().sum::<usize>() + j,
        }
    }

    fn key_rows(&self) -> usize {
        if self.paged() { 2 * BATCH * PAGE } else { self.sk.iter().sum() }
    }
}

fn encode(value: f32, bf16: bool) -> u16 {
    let bits = value.to_bits();
    match bf16 || value == 0.0 {
        true => (bits >> 16) as u16,
        false => (bits >> 16 & 0x8000 | (((bits >> 23) & 0xff) - 112) << 10 | bits >> 13 & 0x3ff) as u16,
    }
}

fn decode(half: u16, bf16: bool) -> f64 {
    if bf16 {
        return f32::from_bits(u32::from(half) << 16).into();
    }
    let (exponent, fraction) = (i32::from(half >> 10 & 0x1f), f64::from(half & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if half & 0x8000 == 0 { magnitude } else { -magnitude }
}

/// Multiples of 1/128 between -1 and 1, which both types hold exactly.
fn random(count: usize, bf16: bool, state: &mut u32) -> Vec<u16> {
    let mut next = || {
        *state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        encode(((*state >> 24) as i32 - 128) as f32 / 128.0, bf16)
    };
    (0..count).map(|_| next()).collect()
}

fn exact(p: &Problem, q: &[u16], k: &[u16], v: &[u16], i: usize, s: usize, n: usize) -> Vec<f64> {
    let (sq, sk, group) = (p.sq[i], p.sk[i], p.h / p.hk);
    let at = s as i64 + sk as i64 - sq as i64;
    let start = ((p.sq[..i].iter().sum::<usize>() + s) * p.h + n) * p.d;
    let key = |j: usize| (p.key_row(i, j) * p.hk + n / group) * p.d;
    let score = |j: usize| {
        let dot: f64 = (0..p.d).map(|e| decode(q[start + e], p.bf16) * decode(k[key(j) + e], p.bf16)).sum();
        let scaled = dot / (p.d as f64).sqrt();
        let capped = if p.softcap > 0.0 { f64::from(p.softcap) * (scaled / f64::from(p.softcap)).tanh() } else { scaled };
        let hidden = p.causal && j as i64 > at || p.left >= 0 && (j as i64) < at - i64::from(p.left);
        if hidden { f64::NEG_INFINITY } else { capped }
    };
    let scores: Vec<f64> = (0..sk).map(score).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| if *s == f64::NEG_INFINITY { 0.0 } else { (s - most).exp() }).collect();
    let sum: f64 = weights.iter().sum();
    let mean = |e: usize| (0..sk).map(|j| weights[j] * decode(v[key(j) + e], p.bf16)).sum::<f64>() / sum;
    (0..p.d).map(|e| if sum > 0.0 { mean(e) } else { 0.0 }).collect()
}

fn starts(lengths: &[usize; BATCH]) -> [i32; BATCH + 1] {
    [0, lengths[0] as i32, (lengths[0] + lengths[1]) as i32]
}

/// As candle calls it: the other end of a mask is at the longest sequence.
fn call(driver: &Driver, p: &Problem, data: [*mut c_void; 5]) -> i32 {
    let (sq, sk) = (p.sq[0].max(p.sq[1]) as u32, p.sk[0].max(p.sk[1]) as u32);
    let (q_row, k_row, d) = ((p.h * p.d) as u32, (p.hk * p.d) as u32, p.d as u32);
    let (q_batch, k_batch) = match p.kind {
        Kind::Dense => (sq * q_row, sk * k_row),
        Kind::Packed => (0, 0),
        Kind::Paged => (0, PAGE as u32 * k_row),
    };
    let list = |lengths| if p.packed() { driver.upload(&starts(lengths)).cast::<i32>() } else { null_mut() };
    let (left, right) = match (p.left, p.causal) {
        (-1, false) => (-1, -1),
        (-1, true) => (sk as c_int, 0),
        (left, _) => (left, sk as c_int),
    };
    let of_newer_lists = Newer {
        total_q: p.sq.iter().sum::<usize>() as u32,
        unpadded_lse: p.packed(),
        softcap: p.softcap,
        table: if p.paged() { driver.upload(&[1i32, 0, 3, 2]).cast() } else { null_mut() },
        page_size: if p.paged() { PAGE as c_int } else { -1 },
        stream: driver.stream,
    };
    let (q_strides, k_strides) = ([q_batch, q_row, d], [k_batch, k_row, d]);
    let (h, hk) = (p.h as u32, p.hk as u32);
    let (cu_q, cu_k, b, bf16, causal) = (list(&p.sq), list(&p.sk), BATCH as u32, p.bf16, p.causal);
    unsafe {
        mha::call(&Call {
            data, cu_q, cu_k, q_strides, k_strides, b, h, hk, d, sq, sk, bf16, causal, left, right, of_newer_lists,
        });
        mha::fa_candle_last_status()
    }
}

#[derive(PartialEq)]
enum Outcome {
    Right,
    Wrong,
    NotInThisLibrary,
}

fn check(driver: &Driver, p: &Problem) -> Outcome {
    let queries: usize = p.sq.iter().sum();
    let mut state = 4711;
    let q = random(queries * p.h * p.d, p.bf16, &mut state);
    let k = random(p.key_rows() * p.hk * p.d, p.bf16, &mut state);
    let v = random(p.key_rows() * p.hk * p.d, p.bf16, &mut state);
    let mut o = vec![0u16; q.len()];
    let lse = vec![0f32; queries * p.h];
    let data = [driver.upload(&q), driver.upload(&k), driver.upload(&v), driver.upload(&o), driver.upload(&lse)];
    let status = call(driver, p, data);
    driver.download(data[3], &mut o);
    if status != 0 {
        let text = unsafe { CStr::from_ptr(mha::fa_candle_last_error()) };
        println!("{p:?}: {}", text.to_string_lossy());
        let all_nan = o.iter().all(|half| decode(*half, p.bf16).is_nan());
        return if status == UNSUPPORTED && all_nan { Outcome::NotInThisLibrary } else { Outcome::Wrong };
    }
    let mut error = 0f64;
    let mut row = 0;
    for i in 0..BATCH {
        for s in 0..p.sq[i] {
            for n in 0..p.h {
                let expected = exact(p, &q, &k, &v, i, s, n);
                for (e, value) in expected.iter().enumerate() {
                    let off = (decode(o[(row * p.h + n) * p.d + e], p.bf16) - value).abs();
                    error = if off <= error { error } else { off }; // a NaN sticks
                }
            }
            row += 1;
        }
    }
    let bound = if p.bf16 { 1e-2 } else { 1.25e-3 };
    println!("{p:?}: error {error:.2e} (bound {bound:.2e}): {}", if error <= bound { "ok" } else { "WRONG" });
    if error <= bound { Outcome::Right } else { Outcome::Wrong }
}

fn problems() -> Vec<Problem> {
    let plain = Problem {
        kind: Kind::Dense, bf16: true, h: 4, hk: 2, d: 64, sq: [100; 2], sk: [160; 2], causal: false, left: -1,
        softcap: 0.0,
    };
    let packed = Problem { kind: Kind::Packed, sq: [37, 90], sk: [64, 150], causal: true, ..plain };
    let mut all = vec![
        plain,
        Problem { causal: true, ..plain },
        Problem { bf16: false, hk: 1, causal: true, ..plain },
        Problem { d: 128, left: 30, ..plain },
        Problem { bf16: false, d: 96, ..plain },
        packed,
        Problem { bf16: false, d: 128, causal: false, ..packed },
    ];
    if cfg!(not(form = "35")) {
        all.push(Problem { softcap: 5.0, ..plain });
        all.push(Problem { softcap: 5.0, ..packed });
    }
    if cfg!(form = "45") {
        let paged = Problem { kind: Kind::Paged, sk: [300, 512], ..packed };
        all.extend([paged, Problem { bf16: false, d: 128, causal: false, ..paged }]);
    }
    all
}

/// Check every problem and return the exit status.
pub fn run() -> i32 {
    let Some(driver) = Driver::open() else {
        eprintln!("no driver: libcuda.so.1 cannot be loaded");
        return 2;
    };
    let (mut right, mut wrong) = (0, 0);
    for p in problems() {
        // A refused packed batch, whose output has no known length in the shorter lists, would end this program.
        let dense = Problem { kind: Kind::Dense, sq: [70; 2], sk: [70; 2], ..p };
        if cfg!(form = "45") || !p.packed() || check(&driver, &dense) == Outcome::Right {
            match check(&driver, &p) {
                Outcome::Right => right += 1,
                Outcome::Wrong => wrong += 1,
                Outcome::NotInThisLibrary => {}
            }
        }
    }
    println!("{right} right, {wrong} wrong");
    if wrong > 0 { 1 } else if right > 0 { 0 } else { 2 }
}

/// The same for a main() in C: the static library can be linked where there is no cargo.
#[no_mangle]
pub extern "C" fn candle_check() -> c_int {
    run()
}
