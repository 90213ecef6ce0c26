//! Text in, timings out: a decoder of random weights, with attention by candle-flash-attn and by matrix products.
//!
//!     cargo run --release -- "any text"        (or a text on standard input)
//!
//! Exit status: 0 both agree, 1 they do not or a call failed, 77 no NVIDIA GPU.

use candle_core::{DType, Device, Error, Result, Tensor, D};
use candle_flash_attn::flash_attn;
use std::io::Read;
use std::process::ExitCode;
use std::time::Instant;

const LAYERS: usize = 4;
const HEADS: usize = 8;
const HEAD_DIM: usize = 64;
const WIDTH: usize = HEADS * HEAD_DIM;
const BYTES: usize = 256;
const RUNS: u32 = 10;
const NO_GPU: u8 = 77;

/// How one layer's queries meet its keys; all three are (1, tokens, heads, head dim).
type Attention = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;

/// Weights of one layer, each (in, out).
struct Layer {
    qkv: Tensor,
    out: Tensor,
    up: Tensor,
    down: Tensor,
}

impl Layer {
    fn random(device: &Device) -> Result<Self> {
        Ok(Self {
            qkv: weights(WIDTH, 3 * WIDTH, device)?,
            out: weights(WIDTH, WIDTH, device)?,
            up: weights(WIDTH, 4 * WIDTH, device)?,
            down: weights(4 * WIDTH, WIDTH, device)?,
        })
    }

    fn forward(&self, x: &Tensor, attention: Attention) -> Result<Tensor> {
        let tokens = x.dim(0)?;
        let qkv = normalized(x)?.matmul(&self.qkv)?.reshape((1, tokens, 3 * HEADS, HEAD_DIM))?;
        let part = |index: usize| qkv.narrow(2, index * HEADS, HEADS)?.contiguous();
        let seen = attention(&part(0)?, &part(1)?, &part(2)?)?.reshape((tokens, WIDTH))?;
        let x = (x + seen.matmul(&self.out)?)?;
        let inner = normalized(&x)?.matmul(&self.up)?.gelu()?;
        x + inner.matmul(&self.down)?
    }
}

fn weights(rows: usize, columns: usize, device: &Device) -> Result<Tensor> {
    let spread = 1.0 / (rows as f64).sqrt();
    Tensor::randn(0f32, spread as f32, (rows, columns), device)?.to_dtype(DType::BF16)
}

/// Each row divided by its root mean square.
fn normalized(x: &Tensor) -> Result<Tensor> {
    let wide = x.to_dtype(DType::F32)?;
    let scale = (wide.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    wide.broadcast_div(&scale)?.to_dtype(x.dtype())
}

fn by_kernel(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    flash_attn(q, k, v, 1.0 / (HEAD_DIM as f32).sqrt(), true)
}

fn by_products(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let heads = |x: &Tensor| x.squeeze(0)?.transpose(0, 1)?.to_dtype(DType::F32)?.contiguous();
    let (q, k, v) = (heads(q)?, heads(k)?, heads(v)?);
    let tokens = q.dim(1)?;
    let hidden: Vec<f32> =
        (0..tokens * tokens).map(|at| if at % tokens > at / tokens { f32::NEG_INFINITY } else { 0.0 }).collect();
    let mask = Tensor::from_vec(hidden, (1, tokens, tokens), q.device())?;
    let scores = (q.matmul(&k.transpose(1, 2)?.contiguous()?)? / (HEAD_DIM as f64).sqrt())?.broadcast_add(&mask)?;
    let powers = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    let shares = powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)?;
    shares.matmul(&v)?.transpose(0, 1)?.contiguous()?.unsqueeze(0)?.to_dtype(DType::BF16)
}

fn decode(tokens: &Tensor, embedding: &Tensor, layers: &[Layer], attention: Attention) -> Result<Tensor> {
    layers.iter().try_fold(embedding.index_select(tokens, 0)?, |x, layer| layer.forward(&x, attention))
}

/// Milliseconds of one pass over all layers.
fn time(device: &Device, mut pass: impl FnMut() -> Result<Tensor>) -> Result<f64> {
    pass()?; // the first one loads the kernels
    device.synchronize()?;
    let start = Instant::now();
    for _ in 0..RUNS {
        pass()?;
    }
    device.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e3 / f64::from(RUNS))
}

fn run(device: &Device, text: &str) -> Result<bool> {
    let bytes: Vec<u32> = text.bytes().map(u32::from).collect();
    let embedding = Tensor::randn(0f32, 1f32, (BYTES, WIDTH), device)?.to_dtype(DType::BF16)?;
    let layers = (0..LAYERS).map(|_| Layer::random(device)).collect::<Result<Vec<_>>>()?;
    let mut agree = true;
    for length in [bytes.len(), 1024, 4096] {
        let repeated: Vec<u32> = bytes.iter().copied().cycle().take(length).collect();
        let tokens = Tensor::new(repeated.as_slice(), device)?;
        let fast = decode(&tokens, &embedding, &layers, by_kernel)?.to_dtype(DType::F32)?;
        let plain = decode(&tokens, &embedding, &layers, by_products)?.to_dtype(DType::F32)?;
        let largest = (&fast - &plain)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        let size = plain.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        agree &= largest <= 0.05 * size; // bf16 has 8 bits, and four layers add their roundings up
        let kernel = time(device, || decode(&tokens, &embedding, &layers, by_kernel))?;
        let products = time(device, || decode(&tokens, &embedding, &layers, by_products))?;
        println!("{length} bytes: {kernel:.2} ms, by products {products:.2} ms; largest difference {largest:.3} of {size:.1}");
    }
    Ok(agree)
}

fn text() -> std::io::Result<String> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if !given.is_empty() {
        return Ok(given.join(" "));
    }
    let mut read = String::new();
    std::io::stdin().read_to_string(&mut read)?;
    Ok(read)
}

fn main() -> ExitCode {
    let device = match Device::new_cuda(0) {
        Ok(device) => device,
        Err(error) => {
            let text = error.to_string(); // with a backtrace
            println!("no NVIDIA GPU: {}", text.lines().next().unwrap_or_default());
            return ExitCode::from(NO_GPU);
        }
    };
    let outcome = text().map_err(Error::wrap).and_then(|text| {
        if text.is_empty() {
            return Err(Error::Msg("there is no text: give one as an argument or on standard input".into()));
        }
        run(&device, &text)
    });
    match outcome {
        Ok(true) => {
            println!("right");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            println!("WRONG: the two ways differ by more than rounding");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
