//! The functions over candle's tensors, beside candle's own products and gradients in float32.

use candle_core::{DType, Device, Result, Tensor, Var, D};
use flashattention::candle::Attention;
use flashattention::{Lengths, Mask};

const HEADS: usize = 4;
const HEAD_DIM: usize = 64;

/// `(rows, heads, head_dim)`, by matrix products.
fn by_products(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let heads = |x: &Tensor| x.to_dtype(DType::F32)?.transpose(0, 1)?.contiguous();
    let (q, k, v) = (heads(q)?, heads(k)?, heads(v)?);
    let (rows, keys) = (q.dim(1)?, k.dim(1)?);
    let hidden: Vec<f32> =
        (0..rows * keys).map(|at| if at % keys + rows > at / keys + keys { f32::NEG_INFINITY } else { 0.0 }).collect();
    let mask = Tensor::from_vec(hidden, (1, rows, keys), q.device())?;
    let scores = (q.matmul(&k.t()?.contiguous()?)? / (HEAD_DIM as f64).sqrt())?.broadcast_add(&mask)?;
    let powers = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?)?.exp()?;
    let shares = powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)?;
    shares.matmul(&v)?.transpose(0, 1)?.contiguous()
}

fn assert_near(name: &str, seen: &Tensor, expected: &Tensor) -> Result<()> {
    let (seen, expected) = (seen.to_dtype(DType::F32)?, expected.to_dtype(DType::F32)?);
    let largest = |x: Tensor| x.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>();
    let (off, size) = (largest((seen - &expected)?)?, largest(expected)?);
    println!("{name}: {off:.5} of {size:.3}");
    assert!(off <= 0.02 * size, "{name} is {off} off, and its largest number is {size}");
    Ok(())
}

/// Queries, keys and values whose gradients are asked for.
fn inputs(rows: usize, keys: usize, device: &Device) -> Result<[Var; 3]> {
    let random =
        |rows| Var::from_tensor(&Tensor::randn(0f32, 1f32, (rows, HEADS, HEAD_DIM), device)?.to_dtype(DType::BF16)?);
    Ok([random(rows)?, random(keys)?, random(keys)?])
}

/// That two ways to compute the same give the same result and gradients.
fn compare(of: &[Var; 3], fast: &Tensor, plain: &Tensor) -> Result<()> {
    assert_near("o", fast, plain)?;
    let weights = Tensor::randn(0f32, 1f32, plain.shape(), plain.device())?;
    let gradients = |of: &Tensor| (of.to_dtype(DType::F32)? * &weights)?.sum_all()?.backward();
    let (fast, plain) = (gradients(fast)?, gradients(plain)?);
    for (name, of) in ["dq", "dk", "dv"].iter().zip(of) {
        assert_near(name, fast.get(of).expect("it was asked for"), plain.get(of).expect("it was asked for"))?;
    }
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn candles_tensors_and_their_gradients_are_right() -> Result<()> {
    let of = inputs(150, 200, &Device::new_cuda(0)?)?;
    let [q, k, v] = of.each_ref().map(Var::as_tensor);
    let causal = Attention::new().mask(Mask::Causal);
    let fast = causal.apply(&q.unsqueeze(0)?, &k.unsqueeze(0)?, &v.unsqueeze(0)?)?.squeeze(0)?;
    compare(&of, &fast, &by_products(q, k, v)?)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn sequences_of_any_length_in_candles_tensors_are_right() -> Result<()> {
    let each = [(40, 90), (1, 1), (109, 109)];
    let of = inputs(150, 200, &Device::new_cuda(0)?)?;
    let [q, k, v] = of.each_ref().map(Var::as_tensor);
    let lengths = |of: [usize; 3]| Lengths::new(of).expect("small");
    let (rows, keys) = (lengths(each.map(|of| of.0)), lengths(each.map(|of| of.1)));
    let fast = Attention::new().mask(Mask::Causal).lengths(&rows, &keys).apply(q, k, v)?;
    let (mut at, mut parts) = ((0, 0), Vec::new());
    for (rows, keys) in each {
        parts.push(by_products(&q.narrow(0, at.0, rows)?, &k.narrow(0, at.1, keys)?, &v.narrow(0, at.1, keys)?)?);
        at = (at.0 + rows, at.1 + keys);
    }
    compare(&of, &fast, &Tensor::cat(&parts, 0)?)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn tensors_that_do_not_go_together_are_errors() -> Result<()> {
    let [q, k, v] = inputs(150, 200, &Device::new_cuda(0)?)?;
    let error = Attention::new().apply(&q, &k, &v).expect_err("they have no batch").to_string();
    assert!(error.contains("unexpected rank"), "{error}");
    let few = Lengths::new([149]).expect("small");
    let all = Lengths::new([200]).expect("small");
    let packed = Attention::new().lengths(&few, &all);
    let error = packed.apply(&q, &k, &v).expect_err("a row is missing").to_string();
    assert!(error.contains("q is [150, 4, 64], expected [149, 4, 64]"), "{error}");
    let wide = q.to_dtype(DType::F32)?;
    let packed = Attention::new().lengths(&Lengths::new([150]).expect("small"), &all);
    let error = packed.apply(&wide, &k, &v).expect_err("q is f32");
    assert!(error.to_string().contains("q holds F32, expected F16 or BF16"), "{error}");
    Ok(())
}
