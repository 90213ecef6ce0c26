//! What needs an NVIDIA GPU, compared with double precision: `cargo test --features cudarc,candle -- --ignored`.
#![cfg(feature = "cudarc")]
#![allow(clippy::cast_precision_loss)] // sizes that f64 holds

mod reference;
#[cfg(feature = "candle")]
mod tensors;

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use flashattention::cuda::{DeviceLengths, DeviceTable, Gradients, Inputs, Saved};
use flashattention::{
    BlockTable, DType, ErrorKind, Forward, GradientLayout, Layout, Lengths, Mask, Packed, Paged, Problem as _, Shape,
};
use half::bf16;
use reference::{assert_near, numbers, Problem, Sequence, Tensors};

const HEADS_Q: usize = 4;
const HEADS_K: usize = 2;
const HEAD_DIM: usize = 64;

fn stream() -> Arc<CudaStream> {
    CudaContext::new(0).expect("an NVIDIA GPU").default_stream()
}

fn problem(sequences: Vec<Sequence>, causal: bool) -> Problem {
    Problem { sequences, heads_q: HEADS_Q, heads_k: HEADS_K, head_dim: HEAD_DIM, causal }
}

/// Queries and keys of these lengths, one after the other.
fn one_after_the_other(lengths: &[(usize, usize)]) -> Vec<Sequence> {
    let (mut q, mut k) = (0, 0);
    let mut sequence = |&(rows, keys)| {
        let sequence = Sequence { q: (q, rows), k: (k, keys) };
        (q, k) = (q + rows, k + keys);
        sequence
    };
    lengths.iter().map(&mut sequence).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_dense_batch_and_its_gradients_are_right() {
    let stream = stream();
    for (seqlen_q, seqlen_k, mask) in [(100, 100, Mask::None), (200, 200, Mask::Causal), (70, 300, Mask::Causal)] {
        let shape = Shape { batch: 2, seqlen_q, seqlen_k, heads_q: HEADS_Q, heads_k: HEADS_K, head_dim: HEAD_DIM };
        let (count_q, count_k) = (2 * seqlen_q * HEADS_Q * HEAD_DIM, 2 * seqlen_k * HEADS_K * HEAD_DIM);
        let (q, k, v, d_o) = (numbers(count_q, 1), numbers(count_k, 2), numbers(count_k, 3), numbers(count_q, 4));
        let [on_q, on_k, on_v, on_d_o] = [&q, &k, &v, &d_o].map(|of| stream.clone_htod(of).expect("room"));
        let mut o = stream.alloc_zeros::<bf16>(count_q).expect("room");
        let mut lse = stream.alloc_zeros::<f32>(shape.lse_len().expect("small")).expect("room");
        let (forward, layout) =
            (Forward::new(shape, DType::Bf16).mask(mask), Layout::contiguous(&shape).expect("small"));
        let inputs = Inputs { q: &on_q, k: &on_k, v: &on_v };
        forward.run(&stream, &layout, &inputs, &mut o, &mut lse).expect("it runs");
        let [mut dq, mut dk, mut dv] =
            [count_q, count_k, count_k].map(|count| stream.alloc_zeros::<bf16>(count).expect("room"));
        let saved = Saved { inputs, o: &o, lse: &lse, d_o: &on_d_o };
        let back = GradientLayout::contiguous(&shape).expect("small");
        let mut gradients = Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv };
        forward.backward().run(&stream, (&layout, &back), &saved, &mut gradients).expect("it runs");
        let sequences = one_after_the_other(&[(seqlen_q, seqlen_k); 2]);
        let expected = problem(sequences, mask == Mask::Causal).compute(&Tensors { q: &q, k: &k, v: &v, d_o: &d_o });
        let read = |of: &cudarc::driver::CudaSlice<bf16>| stream.clone_dtoh(of).expect("the kernels ran");
        assert_near("o", &read(&o), &expected.o);
        assert_near("dq", &read(&dq), &expected.dq);
        assert_near("dk", &read(&dk), &expected.dk);
        assert_near("dv", &read(&dv), &expected.dv);
        assert!(stream.clone_dtoh(&lse).expect("the kernels ran").iter().all(|value| value.is_finite()));
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_packed_batch_and_its_gradients_are_right() {
    let stream = stream();
    let each = [(100, 130), (1, 1), (57, 300)];
    let (rows, keys) = (each.iter().map(|of| of.0), each.iter().map(|of| of.1));
    let (lengths_q, lengths_k) = (Lengths::new(rows).expect("small"), Lengths::new(keys).expect("small"));
    let packed = Packed::new(&lengths_q, &lengths_k, HEADS_Q, HEADS_K, HEAD_DIM).expect("as many");
    let (count_q, count_k) = (lengths_q.total() * HEADS_Q * HEAD_DIM, lengths_k.total() * HEADS_K * HEAD_DIM);
    let (q, k, v, d_o) = (numbers(count_q, 5), numbers(count_k, 6), numbers(count_k, 7), numbers(count_q, 8));
    let [on_q, on_k, on_v, on_d_o] = [&q, &k, &v, &d_o].map(|of| stream.clone_htod(of).expect("room"));
    let (places_q, places_k) =
        (DeviceLengths::new(&stream, lengths_q).expect("room"), DeviceLengths::new(&stream, lengths_k).expect("room"));
    let mut o = stream.alloc_zeros::<bf16>(count_q).expect("room");
    let mut lse = stream.alloc_zeros::<f32>(packed.lse_len().expect("small")).expect("room");
    let forward = Forward::new(packed, DType::Bf16).mask(Mask::Causal);
    let layout = Layout::contiguous(&packed).expect("small");
    let inputs = Inputs { q: &on_q, k: &on_k, v: &on_v };
    forward.run(&stream, &layout, &inputs, (&places_q, &places_k), &mut o, &mut lse).expect("it runs");
    let [mut dq, mut dk, mut dv] =
        [count_q, count_k, count_k].map(|count| stream.alloc_zeros::<bf16>(count).expect("room"));
    let saved = Saved { inputs, o: &o, lse: &lse, d_o: &on_d_o };
    let back = GradientLayout::contiguous(&packed).expect("small");
    let mut gradients = Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv };
    forward.backward().run(&stream, (&layout, &back), &saved, (&places_q, &places_k), &mut gradients).expect("it runs");
    let expected = problem(one_after_the_other(&each), true).compute(&Tensors { q: &q, k: &k, v: &v, d_o: &d_o });
    for (name, of, expected) in
        [("o", &o, &expected.o), ("dq", &dq, &expected.dq), ("dk", &dk, &expected.dk), ("dv", &dv, &expected.dv)]
    {
        assert_near(name, &stream.clone_dtoh(of).expect("the kernels ran"), expected);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn keys_in_pages_are_found() {
    const PAGE: usize = 256;
    let stream = stream();
    let (pages, of) = (5, [(300, &[3, 1][..]), (10, &[0][..]), (512, &[4, 2][..])]);
    let table = BlockTable::new(PAGE, &of).expect("the pages hold them");
    let shape = Paged::new(&table, pages, 1, HEADS_Q, HEADS_K, HEAD_DIM).expect("the pages are there");
    let row = HEADS_K * HEAD_DIM;
    let q = numbers(of.len() * HEADS_Q * HEAD_DIM, 9);
    let (k, v) = (numbers(pages * PAGE * row, 10), numbers(pages * PAGE * row, 11));
    let [on_q, on_k, on_v] = [&q, &k, &v].map(|of| stream.clone_htod(of).expect("room"));
    let table = DeviceTable::new(&stream, table).expect("room");
    let mut o = stream.alloc_zeros::<bf16>(q.len()).expect("room");
    let mut lse = stream.alloc_zeros::<f32>(shape.lse_len().expect("small")).expect("room");
    let (forward, layout) = (Forward::new(shape, DType::Bf16), Layout::contiguous(&shape).expect("small"));
    let inputs = Inputs { q: &on_q, k: &on_k, v: &on_v };
    forward.run(&stream, &layout, &inputs, &table, &mut o, &mut lse).expect("it runs");
    // The same keys without pages: all of a sequence's pages, of which its length is seen.
    let gathered = |from: &[bf16]| -> Vec<bf16> {
        of.iter()
            .flat_map(|(_, pages)| *pages)
            .flat_map(|&page| &from[page * PAGE * row..][..PAGE * row])
            .copied()
            .collect()
    };
    let mut at = 0;
    let mut sequence = |(index, (keys, pages)): (usize, &(usize, &[usize]))| {
        let sequence = Sequence { q: (index, 1), k: (at, *keys) };
        at += pages.len() * PAGE;
        sequence
    };
    let sequences = of.iter().enumerate().map(&mut sequence).collect();
    let (k, v) = (gathered(&k), gathered(&v));
    let expected = problem(sequences, false).compute(&Tensors { q: &q, k: &k, v: &v, d_o: &q });
    assert_near("o", &stream.clone_dtoh(&o).expect("the kernels ran"), &expected.o);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn slices_that_are_too_short_or_of_another_type_are_named_before_anything_runs() {
    let stream = stream();
    let shape = Shape { batch: 1, seqlen_q: 64, seqlen_k: 64, heads_q: 4, heads_k: 4, head_dim: HEAD_DIM };
    let count = 64 * 4 * HEAD_DIM;
    let layout = Layout::contiguous(&shape).expect("small");
    let [right, short] = [count, count - 1].map(|count| stream.alloc_zeros::<bf16>(count).expect("room"));
    let mut o = stream.alloc_zeros::<bf16>(count).expect("room");
    let mut lse = stream.alloc_zeros::<f32>(4 * 64).expect("room");
    let forward = Forward::new(shape, DType::Bf16);
    let inputs = Inputs { q: &right, k: &short, v: &right };
    let error = forward.run(&stream, &layout, &inputs, &mut o, &mut lse).expect_err("k is too short");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "k has 16383 elements, and its sizes and strides need 16384");
    let inputs = Inputs { q: &right, k: &right, v: &right };
    let halves = Forward::new(shape, DType::F16);
    let error = halves.run(&stream, &layout, &inputs, &mut o, &mut lse).expect_err("they are bf16");
    assert!(error.to_string().contains("the slices hold Bf16, and the problem F16"), "{error}");
    let mut few = stream.alloc_zeros::<f32>(4 * 64 - 1).expect("room");
    let error = forward.run(&stream, &layout, &inputs, &mut o, &mut few).expect_err("lse is too short");
    assert!(error.to_string().starts_with("lse has 255 elements"), "{error}");
    forward.run(&stream, &layout, &inputs, &mut o, &mut lse).expect("what is right runs after them");
    assert!(stream.clone_dtoh(&o).expect("the kernel ran").iter().all(|value| value.to_f32() == 0.0));
}
