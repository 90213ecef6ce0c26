//! What needs an NVIDIA GPU, compared with double precision: `cargo test --features cudarc,candle -- --ignored`.
#![cfg(feature = "cudarc")]
#![allow(clippy::cast_precision_loss)] // sizes that f64 holds

mod reference;
#[cfg(feature = "candle")]
mod tensors;

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use flashattention::cuda::{DeviceLengths, DeviceTable, Gradients, Inputs, Saved, Update};
use flashattention::{
    Alibi, BlockTable, DType, Dropout, ErrorKind, Forward, Lengths, Mask, Packed, Paged, Problem as _, Rotary, Shape,
};
use half::bf16;
use reference::{assert_near, numbers, Problem, Sequence, Tensors};

const HEADS_Q: usize = 4;
const HEADS_K: usize = 2;
const HEAD_DIM: usize = 64;

fn stream() -> Arc<CudaStream> {
    CudaContext::new(0).expect("an NVIDIA GPU").default_stream()
}

fn problem(sequences: Vec<Sequence>, mask: Mask) -> Problem {
    Problem { sequences, heads_q: HEADS_Q, heads_k: HEADS_K, head_dim: HEAD_DIM, mask, ..Problem::default() }
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

/// What of a dense problem is given besides its tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extra {
    Nothing,
    Alibi,
    SinkAndItsGradient,
    GradientOfLse,
    Softcap(f32),
    Dropout(Dropout),
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_dense_batch_and_its_gradients_are_right() {
    for (seqlen_q, seqlen_k, mask, extra) in [
        (100, 100, Mask::None, Extra::Nothing),
        (200, 200, Mask::Causal, Extra::Nothing),
        (70, 300, Mask::Causal, Extra::Nothing),
        (70, 300, Mask::None, Extra::Alibi),
        (150, 200, Mask::Causal, Extra::SinkAndItsGradient),
        (90, 130, Mask::None, Extra::GradientOfLse),
    ] {
        println!("{seqlen_q} x {seqlen_k}, {mask:?}, {extra:?}");
        let shape = Shape { batch: 2, seqlen_q, seqlen_k, heads_q: HEADS_Q, heads_k: HEADS_K, head_dim: HEAD_DIM };
        check_dense(shape, mask, extra);
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn windows_and_a_softcap_and_their_gradients_are_right() {
    let window = |left, right| Mask::Window { left, right };
    for (seqlen_q, seqlen_k, mask, extra) in [
        (200, 200, window(Some(30), Some(10)), Extra::Nothing),
        (70, 300, window(Some(100), None), Extra::Nothing),
        (150, 200, window(None, Some(20)), Extra::Nothing),
        (100, 100, Mask::None, Extra::Softcap(0.5)),
        (70, 300, Mask::Causal, Extra::Softcap(0.25)),
        (150, 200, window(Some(60), Some(0)), Extra::Softcap(0.5)),
    ] {
        println!("{seqlen_q} x {seqlen_k}, {mask:?}, {extra:?}");
        let shape = Shape { batch: 2, seqlen_q, seqlen_k, heads_q: HEADS_Q, heads_k: HEADS_K, head_dim: HEAD_DIM };
        check_dense(shape, mask, extra);
    }
}

/// Which probabilities a forward pass keeps, `(batch, seqlen_q, heads_q, head_dim)`: where the values of a key are 1 in the
/// key's own column, and 0 in all others, that is what the output has.
fn kept_by(forward: Forward<Shape>) -> Vec<bool> {
    let (stream, shape) = (stream(), *forward.shape());
    assert_eq!(shape.seqlen_k, HEAD_DIM);
    let (count_q, row) = (2 * shape.seqlen_q * HEADS_Q * HEAD_DIM, HEADS_K * HEAD_DIM);
    let (q, k) = (numbers(count_q, 1), numbers(2 * HEAD_DIM * row, 2));
    let own: Vec<bf16> =
        (0..k.len()).map(|at| bf16::from_f32(f32::from(at / row % HEAD_DIM == at % HEAD_DIM))).collect();
    let [on_q, on_k, on_v] = [&q, &k, &own].map(|of| stream.clone_htod(of).expect("room"));
    let mut o = stream.alloc_zeros::<bf16>(count_q).expect("room");
    let mut lse = stream.alloc_zeros::<f32>(shape.lse_len().expect("small")).expect("room");
    let inputs = Inputs { q: &on_q, k: &on_k, v: &on_v };
    forward.call(inputs).run(&stream, &mut o, &mut lse).expect("it runs");
    stream.clone_dtoh(&o).expect("the kernels ran").iter().map(|share| share.to_f32() != 0.0).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_is_dropped_is_dropped_by_the_gradients_too() {
    let shape =
        Shape { batch: 2, seqlen_q: 60, seqlen_k: HEAD_DIM, heads_q: HEADS_Q, heads_k: HEADS_K, head_dim: HEAD_DIM };
    let dropout = Dropout { probability: 0.25, seed: 7, offset: 64 };
    let forward = |dropout| Forward::new(shape, DType::Bf16).dropout(dropout);
    let kept = kept_by(forward(dropout));
    let part = kept.iter().filter(|&&kept| kept).count() as f64 / kept.len() as f64;
    assert!((part - 0.75).abs() < 0.02, "{part} of all are kept");
    assert!(kept == kept_by(forward(dropout)), "the same seed drops the same");
    assert!(kept != kept_by(forward(Dropout { seed: 8, ..dropout })), "another seed drops others");
    assert!(kept != kept_by(forward(Dropout { offset: 4096, ..dropout })), "another offset drops others");
    for mask in [Mask::None, Mask::Causal] {
        check_dense(shape, mask, Extra::Dropout(dropout));
    }
}

fn check_dense(shape: Shape, mask: Mask, extra: Extra) {
    let stream = stream();
    let (count_q, count_k) = (2 * shape.seqlen_q * HEADS_Q * HEAD_DIM, 2 * shape.seqlen_k * HEADS_K * HEAD_DIM);
    let count_lse = shape.lse_len().expect("small");
    let (q, k, v, d_o) = (numbers(count_q, 1), numbers(count_k, 2), numbers(count_k, 3), numbers(count_q, 4));
    let [on_q, on_k, on_v, on_d_o] = [&q, &k, &v, &d_o].map(|of| stream.clone_htod(of).expect("room"));
    let [slopes, sinks] = [[0.5, 0.25, 0.125, 0.0625], [0.3, -0.2, 1.5, 0.0]];
    let d_lse: Vec<f32> = numbers(count_lse, 12).iter().map(|number| number.to_f32()).collect();
    let [on_slopes, on_sinks, on_d_lse] = [&slopes[..], &sinks, &d_lse].map(|of| stream.clone_htod(of).expect("room"));
    let zeros = |count| stream.alloc_zeros::<bf16>(count).expect("room");
    let (mut o, mut lse) = (zeros(count_q), stream.alloc_zeros::<f32>(count_lse).expect("room"));
    let mut forward = Forward::new(shape, DType::Bf16).mask(mask);
    if extra == Extra::Alibi {
        forward = forward.alibi(Alibi::PerHead);
    }
    if extra == Extra::SinkAndItsGradient {
        forward = forward.sink();
    }
    let (mut softcap, mut kept) = (0.0, None);
    if let Extra::Softcap(cap) = extra {
        (forward, softcap) = (forward.softcap(cap), cap);
    }
    if let Extra::Dropout(dropout) = extra {
        forward = forward.dropout(dropout);
        kept = Some((kept_by(Forward::new(shape, DType::Bf16).dropout(dropout)), 1.0 - f64::from(dropout.probability)));
    }
    let inputs = Inputs { q: &on_q, k: &on_k, v: &on_v };
    let mut call = forward.call(inputs);
    if extra == Extra::Alibi {
        call = call.alibi(&on_slopes);
    }
    if extra == Extra::SinkAndItsGradient {
        call = call.sink(&on_sinks);
    }
    call.run(&stream, &mut o, &mut lse).expect("it runs");
    let (mut dq, mut dk, mut dv) = (zeros(count_q), zeros(count_k), zeros(count_k));
    let mut d_sink = stream.alloc_zeros::<f32>(HEADS_Q).expect("room");
    let mut back = forward.backward().call(Saved { inputs, o: &o, lse: &lse, d_o: &on_d_o });
    match extra {
        Extra::Nothing | Extra::Softcap(_) | Extra::Dropout(_) => {}
        Extra::Alibi => back = back.alibi(&on_slopes),
        Extra::SinkAndItsGradient => back = back.sink(&on_sinks, &mut d_sink),
        Extra::GradientOfLse => back = back.d_lse(&on_d_lse),
    }
    back.run(&stream, Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv }).expect("it runs");
    let only = |wanted: Extra, of: &[f32]| if extra == wanted { of.to_vec() } else { Vec::new() };
    let expected = Problem {
        slopes: only(Extra::Alibi, &slopes),
        sinks: only(Extra::SinkAndItsGradient, &sinks),
        softcap: softcap.into(),
        kept,
        ..problem(one_after_the_other(&[(shape.seqlen_q, shape.seqlen_k); 2]), mask)
    };
    let d_lse = only(Extra::GradientOfLse, &d_lse);
    let expected = expected.compute(&Tensors { q: &q, k: &k, v: &v, d_o: &d_o, d_lse: &d_lse });
    let read = |of: &CudaSlice<bf16>| stream.clone_dtoh(of).expect("the kernels ran");
    assert_near("o", &read(&o), &expected.o);
    assert_near("dq", &read(&dq), &expected.dq);
    assert_near("dk", &read(&dk), &expected.dk);
    assert_near("dv", &read(&dv), &expected.dv);
    if extra == Extra::SinkAndItsGradient {
        let seen: Vec<bf16> = stream.clone_dtoh(&d_sink).expect("they ran").into_iter().map(bf16::from_f32).collect();
        assert_near("d_sink", &seen, &expected.d_sink);
    }
    assert!(stream.clone_dtoh(&lse).expect("the kernels ran").iter().all(|value| value.is_finite()));
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
    let inputs = Inputs { q: &on_q, k: &on_k, v: &on_v };
    forward.call(inputs, (&places_q, &places_k)).run(&stream, &mut o, &mut lse).expect("it runs");
    let [mut dq, mut dk, mut dv] =
        [count_q, count_k, count_k].map(|count| stream.alloc_zeros::<bf16>(count).expect("room"));
    let saved = Saved { inputs, o: &o, lse: &lse, d_o: &on_d_o };
    let gradients = Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv };
    forward.backward().call(saved, (&places_q, &places_k)).run(&stream, gradients).expect("it runs");
    let of = Tensors { q: &q, k: &k, v: &v, d_o: &d_o, d_lse: &[] };
    let expected = problem(one_after_the_other(&each), Mask::Causal).compute(&of);
    for (name, of, expected) in
        [("o", &o, &expected.o), ("dq", &dq, &expected.dq), ("dk", &dk, &expected.dk), ("dv", &dv, &expected.dv)]
    {
        assert_near(name, &stream.clone_dtoh(of).expect("the kernels ran"), expected);
    }
}

/// Sequences: the keys of each, and its pages.
type Pages<'a> = [(usize, &'a [usize])];

/// The rows of each sequence's pages, one after the other, and where the sequences are in them, with one query each.
fn without_pages(of: &Pages<'_>, page_size: usize, [k, v]: [&[bf16]; 2]) -> (Vec<Sequence>, [Vec<bf16>; 2]) {
    let of_page = page_size * HEADS_K * HEAD_DIM;
    let pages = || of.iter().flat_map(|(_, pages)| *pages);
    let gathered = |from: &[bf16]| pages().flat_map(|&page| &from[page * of_page..][..of_page]).copied().collect();
    let mut at = 0;
    let mut sequence = |(index, (keys, pages)): (usize, &(usize, &[usize]))| {
        let sequence = Sequence { q: (index, 1), k: (at, *keys) };
        at += pages.len() * page_size;
        sequence
    };
    (of.iter().enumerate().map(&mut sequence).collect(), [gathered(k), gathered(v)])
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn keys_in_pages_of_any_size_are_found() {
    let stream = stream();
    let of_256: &Pages<'_> = &[(300, &[3, 1]), (10, &[0]), (512, &[4, 2])];
    let of_16: &Pages<'_> = &[(33, &[3, 1, 0]), (1, &[4]), (32, &[2, 5])];
    for (page_size, pages, of) in [(256, 5, of_256), (16, 6, of_16)] {
        let table = BlockTable::new(page_size, of).expect("the pages hold them");
        let shape = Paged::new(&table, pages, 1, HEADS_Q, HEADS_K, HEAD_DIM).expect("the pages are there");
        let q = numbers(of.len() * HEADS_Q * HEAD_DIM, 9);
        let [k, v] = [10, 11].map(|seed| numbers(pages * page_size * HEADS_K * HEAD_DIM, seed));
        let [on_q, on_k, on_v] = [&q, &k, &v].map(|of| stream.clone_htod(of).expect("room"));
        let table = DeviceTable::new(&stream, table).expect("room");
        let mut o = stream.alloc_zeros::<bf16>(q.len()).expect("room");
        let mut lse = stream.alloc_zeros::<f32>(shape.lse_len().expect("small")).expect("room");
        let inputs = Inputs { q: &on_q, k: &on_k, v: &on_v };
        Forward::new(shape, DType::Bf16).call(inputs, &table).run(&stream, &mut o, &mut lse).expect("it runs");
        let (sequences, [k, v]) = without_pages(of, page_size, [&k, &v]);
        let expected = problem(sequences, Mask::None).compute(&Tensors { q: &q, k: &k, v: &v, d_o: &q, d_lse: &[] });
        assert_near("o", &stream.clone_dtoh(&o).expect("the kernels ran"), &expected.o);
    }
}

/// A head vector turned as GPT-NeoX does, by row `at` of tables of cosines and sines.
fn turned(of: &[bf16], at: usize, [cos, sin]: [&[bf16]; 2]) -> Vec<bf16> {
    let half = of.len() / 2;
    let of = |index: usize| of[index].to_f32();
    let turn = |index: usize| {
        let (low, high) = (of(index % half), of(index % half + half));
        let (cos, sin) = (cos[at * half + index % half].to_f32(), sin[at * half + index % half].to_f32());
        bf16::from_f32(if index < half { low * cos - high * sin } else { high * cos + low * sin })
    };
    (0..2 * half).map(turn).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_step_appends_its_keys_to_the_pages_and_turns_them_and_the_queries() {
    const PAGE: usize = 256;
    let (stream, of, pages) = (stream(), [(300, &[3, 1][..]), (10, &[0][..]), (511, &[4, 2][..])], 5);
    let table = BlockTable::new(PAGE, &of).expect("the pages hold them");
    let shape = Paged::new(&table, pages, 1, HEADS_Q, HEADS_K, HEAD_DIM).expect("the pages are there");
    let (row, rows) = (HEADS_K * HEAD_DIM, 2 * PAGE);
    let q = numbers(of.len() * HEADS_Q * HEAD_DIM, 21);
    let [mut k, mut v] = [22, 23].map(|seed| numbers(pages * PAGE * row, seed));
    let [k_new, v_new] = [24, 25].map(|seed| numbers(of.len() * row, seed));
    let angle = |at: usize| (at / 32) as f64 / 10f64.powf((at % 32) as f64 / 8.0);
    let [cos, sin] =
        [f64::cos, f64::sin].map(|of| (0..rows * 32).map(|at| bf16::from_f64(of(angle(at)))).collect::<Vec<bf16>>());
    let [on_q, mut on_k, mut on_v, new_keys, new_values, on_cos, on_sin] =
        [&q, &k, &v, &k_new, &v_new, &cos, &sin].map(|of| stream.clone_htod(of).expect("room"));
    let mut o = stream.alloc_zeros::<bf16>(q.len()).expect("room");
    let mut lse = stream.alloc_zeros::<f32>(shape.lse_len().expect("small")).expect("room");
    let rotary = Rotary { dim: HEAD_DIM, rows, interleaved: false };
    let step = Forward::new(shape, DType::Bf16).append(1).rotary(rotary);
    let table = DeviceTable::new(&stream, table).expect("room");
    let update = Update { q: &on_q, k: &mut on_k, v: &mut on_v, k_new: &new_keys, v_new: &new_values };
    step.update(update, &table).rotary(&on_cos, &on_sin).run(&stream, &mut o, &mut lse).expect("it runs");
    let turn =
        |of: &[bf16], at| of.chunks(HEAD_DIM).flat_map(|head| turned(head, at, [&cos, &sin])).collect::<Vec<_>>();
    let mut q_turned = Vec::new();
    for (index, (keys, pages)) in of.iter().enumerate() {
        let to = (pages[keys / PAGE] * PAGE + keys % PAGE) * row;
        k[to..to + row].copy_from_slice(&turn(&k_new[index * row..][..row], *keys));
        v[to..to + row].copy_from_slice(&v_new[index * row..][..row]);
        q_turned.extend(turn(&q[index * HEADS_Q * HEAD_DIM..][..HEADS_Q * HEAD_DIM], *keys));
    }
    let exactly = |of: &[bf16]| of.iter().map(|number| number.to_f64()).collect::<Vec<_>>();
    assert_near("k", &stream.clone_dtoh(&on_k).expect("the kernels ran"), &exactly(&k));
    assert_eq!(stream.clone_dtoh(&on_v).expect("the kernels ran"), v);
    let longer = of.map(|(keys, pages)| (keys + 1, pages));
    let (sequences, [k, v]) = without_pages(&longer, PAGE, [&k, &v]);
    let expected = problem(sequences, Mask::None).compute(&Tensors { q: &q_turned, k: &k, v: &v, d_o: &q, d_lse: &[] });
    assert_near("o", &stream.clone_dtoh(&o).expect("the kernels ran"), &expected.o);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_call_that_is_not_what_the_problem_says_is_refused_before_anything_runs() {
    let stream = stream();
    let table = BlockTable::new(256, &[(256, &[0]), (3, &[1])]).expect("the pages hold them");
    let shape = Paged::new(&table, 2, 1, HEADS_Q, HEADS_K, HEAD_DIM).expect("the pages are there");
    let table = DeviceTable::new(&stream, table).expect("room");
    let zeros = |count| stream.alloc_zeros::<bf16>(count).expect("room");
    let (q, mut k, mut v) =
        (zeros(2 * HEADS_Q * HEAD_DIM), zeros(512 * HEADS_K * HEAD_DIM), zeros(512 * HEADS_K * HEAD_DIM));
    let (new, mut o) = (zeros(2 * HEADS_K * HEAD_DIM), zeros(2 * HEADS_Q * HEAD_DIM));
    let mut lse = stream.alloc_zeros::<f32>(2 * HEADS_Q).expect("room");
    let forward = Forward::new(shape, DType::Bf16);
    let update = Update { q: &q, k: &mut k, v: &mut v, k_new: &new, v_new: &new };
    let error = forward.append(1).update(update, &table).run(&stream, &mut o, &mut lse).expect_err("a page is full");
    assert_eq!(error.to_string(), "1 rows are appended, and the pages of a sequence have room for 0");
    let inputs = Inputs { q: &q, k: &k, v: &v };
    let run = |forward: Forward<Paged>, o: &mut CudaSlice<bf16>, lse: &mut CudaSlice<f32>| {
        forward.call(inputs, &table).run(&stream, o, lse)
    };
    let error = run(forward.append(1), &mut o, &mut lse).expect_err("it appends").to_string();
    assert!(error.starts_with("the problem appends 1 rows"), "{error}");
    let error = run(forward.sink(), &mut o, &mut lse).expect_err("it has a sink").to_string();
    assert_eq!(error, "the problem has a sink, and the call is given none");
    run(forward, &mut o, &mut lse).expect("what is right runs after them");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn slices_that_are_too_short_or_of_another_type_are_named_before_anything_runs() {
    let stream = stream();
    let shape = Shape { batch: 1, seqlen_q: 64, seqlen_k: 64, heads_q: 4, heads_k: 4, head_dim: HEAD_DIM };
    let count = 64 * 4 * HEAD_DIM;
    let [right, short] = [count, count - 1].map(|count| stream.alloc_zeros::<bf16>(count).expect("room"));
    let mut o = stream.alloc_zeros::<bf16>(count).expect("room");
    let mut lse = stream.alloc_zeros::<f32>(4 * 64).expect("room");
    let forward = Forward::new(shape, DType::Bf16);
    let inputs = Inputs { q: &right, k: &short, v: &right };
    let error = forward.call(inputs).run(&stream, &mut o, &mut lse).expect_err("k is too short");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(error.to_string(), "k has 16383 elements, and its sizes and strides need 16384");
    let inputs = Inputs { q: &right, k: &right, v: &right };
    let halves = Forward::new(shape, DType::F16);
    let error = halves.call(inputs).run(&stream, &mut o, &mut lse).expect_err("they are bf16");
    assert!(error.to_string().contains("the slices hold Bf16, and the problem F16"), "{error}");
    let mut few = stream.alloc_zeros::<f32>(4 * 64 - 1).expect("room");
    let error = forward.call(inputs).run(&stream, &mut o, &mut few).expect_err("lse is too short");
    assert!(error.to_string().starts_with("lse has 255 elements"), "{error}");
    forward.call(inputs).run(&stream, &mut o, &mut lse).expect("what is right runs after them");
    assert!(stream.clone_dtoh(&o).expect("the kernel ran").iter().all(|value| value.to_f32() == 0.0));
}
