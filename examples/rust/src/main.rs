//! Attention from Rust: compares libflashattention with double precision on the CPU, then times it.
//!
//! Exit status: 0 right, 1 wrong, 77 no NVIDIA GPU. Cargo.toml says how to build it.

mod driver;
mod reference;

use driver::{DeviceArray, Driver, Failure, Handle};
use flashattention_sys::*;
use reference::{compare, numbers, Difference, Problem};
use std::ffi::CStr;
use std::process::ExitCode;

const RUNS: u32 = 20;
const NO_GPU: u8 = 77;

type Answer<T> = Result<T, String>;

fn last_error() -> String {
    // SAFETY: the text is valid until this thread's next failing call.
    unsafe { CStr::from_ptr(fa_last_error()) }.to_string_lossy().into_owned()
}

/// A problem on the host and on the GPU, and fa_fwd over it.
struct Attention<'a> {
    problem: Problem,
    q: Vec<u16>,
    k: Vec<u16>,
    v: Vec<u16>,
    q_device: DeviceArray<'a, u16>,
    k_device: DeviceArray<'a, u16>,
    v_device: DeviceArray<'a, u16>,
    o_device: DeviceArray<'a, u16>,
    lse_device: DeviceArray<'a, f32>,
}

impl<'a> Attention<'a> {
    fn new(driver: &'a Driver, problem: Problem) -> Answer<Self> {
        let (q, k, v) = (numbers(problem.count_q(), 1), numbers(problem.count_k(), 2), numbers(problem.count_k(), 3));
        Ok(Self {
            problem,
            q_device: driver.array_of(&q)?,
            k_device: driver.array_of(&k)?,
            v_device: driver.array_of(&v)?,
            o_device: driver.array(problem.count_q())?,
            lse_device: driver.array(problem.count_lse())?,
            q,
            k,
            v,
        })
    }

    fn run(&self, stream: Handle) -> Answer<()> {
        let p = &self.problem;
        let args = fa_fwd_args {
            flags: if p.causal { FA_FLAG_CAUSAL } else { 0 },
            dtype: FA_DTYPE_BF16,
            stream,
            batch: p.batch as i32,
            seqlen_q: p.seqlen_q as i32,
            seqlen_k: p.seqlen_k as i32,
            heads_q: p.heads_q as i32,
            heads_k: p.heads_k as i32,
            head_dim: p.head_dim as i32,
            num_splits: 1, // needs no workspace
            q: input(&self.q_device, p.seqlen_q, p.heads_q, p.head_dim),
            k: tensor(&self.k_device, p.seqlen_k, p.heads_k, p.head_dim),
            v: tensor(&self.v_device, p.seqlen_k, p.heads_k, p.head_dim),
            o: tensor(&self.o_device, p.seqlen_q, p.heads_q, p.head_dim),
            lse: self.lse_device.pointer(),
            ..Default::default()
        };
        // SAFETY: every buffer is as large as the sizes say, and lives until the stream has been waited for.
        if unsafe { fa_fwd(&args) } == FA_STATUS_OK { Ok(()) } else { Err(format!("fa_fwd: {}", last_error())) }
    }

    fn check(&self, step: usize) -> Answer<Difference> {
        let (o, lse) = (self.o_device.read()?, self.lse_device.read()?);
        Ok(compare(&self.problem, &self.q, &self.k, &self.v, &o, &lse, step))
    }
}

/// (batch, seqlen, heads, dim), contiguous: strides are in elements.
fn tensor(array: &DeviceArray<u16>, seqlen: usize, heads: usize, dim: usize) -> fa_tensor {
    fa_tensor {
        data: array.pointer().cast(),
        batch_stride: (seqlen * heads * dim) as i64,
        row_stride: (heads * dim) as i64,
        head_stride: dim as i64,
        ..Default::default()
    }
}

fn input(array: &DeviceArray<u16>, seqlen: usize, heads: usize, dim: usize) -> fa_const_tensor {
    let tensor = tensor(array, seqlen, heads, dim);
    fa_const_tensor {
        data: tensor.data,
        batch_stride: tensor.batch_stride,
        row_stride: tensor.row_stride,
        head_stride: tensor.head_stride,
        ..Default::default()
    }
}

fn describe_library() -> Answer<()> {
    let mut info = fa_info::default();
    if unsafe { fa_build_info(&mut info) } != FA_STATUS_OK {
        return Err(format!("fa_build_info: {}", last_error()));
    }
    // SAFETY: the pointers stay valid while the library is loaded, and the counts are theirs.
    let (family, upstream, sass, units) = unsafe {
        let kernels = &*info.families; // the best of them
        let sass = std::slice::from_raw_parts(kernels.sass, kernels.sass_count as usize);
        let text = |at| CStr::from_ptr(at).to_string_lossy();
        (text(kernels.name), text(kernels.upstream), sass, kernels.units_count)
    };
    let sass: Vec<String> = sass.iter().map(ToString::to_string).collect();
    let (major, minor) = (info.cuda / 1000, info.cuda % 1000 / 10);
    let (abi, minor_abi, sass) = (info.version / 10000, info.version / 100 % 100, sass.join(","));
    println!("libflashattention: {family} {upstream}, C ABI {abi}.{minor_abi}, CUDA {major}.{minor}, SASS {sass}, {units} units");
    Ok(())
}

fn name(problem: &Problem) -> &'static str {
    if problem.causal { "causal" } else { "full  " }
}

fn check(driver: &Driver, problem: Problem, stream: Handle) -> Answer<bool> {
    let attention = Attention::new(driver, problem)?;
    attention.run(stream)?;
    driver.synchronize(stream)?;
    let d = attention.check(17)?;
    println!(
        "{}: largest error {:.2e}, {:.2} of what rounding allows; lse {:.1e}; {} rows",
        name(&problem), d.largest, d.of_bound, d.of_lse, d.rows
    );
    Ok(d.is_right())
}

fn measure(driver: &Driver, problem: Problem, stream: Handle) -> Answer<()> {
    let attention = Attention::new(driver, problem)?;
    for _ in 0..3 {
        attention.run(stream)?; // the first ones load the kernel and wake the clocks
    }
    let all = driver.time(stream, || (0..RUNS).try_for_each(|_| attention.run(stream)))?;
    let milliseconds = f64::from(all) / f64::from(RUNS);
    let speed = problem.floating_point_operations() / milliseconds / 1e9;
    let Problem { batch, heads_q, seqlen_q, head_dim, .. } = problem;
    let shape = format!("{batch}x{heads_q} heads x{seqlen_q}x{head_dim}");
    println!("{}: {shape}: {milliseconds:.3} ms, {speed:.1} TFLOP/s", name(&problem));
    Ok(())
}

fn compute(driver: &Driver) -> Answer<bool> {
    println!("GPU: {}", driver.gpu);
    let stream = driver.stream()?;
    let mut right = true;
    for causal in [false, true] {
        // Four query heads share a key head, and no length is round.
        let p = Problem { batch: 2, seqlen_q: 600, seqlen_k: 1000, heads_q: 8, heads_k: 2, head_dim: 64, causal };
        right &= check(driver, p, stream)?;
    }
    if !right {
        println!("WRONG");
        return Ok(false);
    }
    for causal in [false, true] {
        let p = Problem { batch: 4, seqlen_q: 4096, seqlen_k: 4096, heads_q: 16, heads_k: 16, head_dim: 64, causal };
        measure(driver, p, stream)?;
    }
    println!("right");
    Ok(true)
}

fn main() -> ExitCode {
    let outcome = describe_library().map_err(Failure::Broken).and_then(|()| {
        let driver = Driver::open()?;
        compute(&driver).map_err(Failure::Broken)
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Failure::NoGpu(text)) => {
            println!("no NVIDIA GPU: {text}");
            ExitCode::from(NO_GPU)
        }
        Err(Failure::Broken(text)) => {
            println!("{text}");
            ExitCode::FAILURE
        }
    }
}
