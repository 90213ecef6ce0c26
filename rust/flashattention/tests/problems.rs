//! Packed batches, pages and gradients, as far as they go without a GPU: nothing here reaches one.

use std::ptr::null_mut;

use flashattention::{
    Addresses, Alibi, BlockTable, DType, Differentiable, ErrorKind, Forward, GradientAddresses, GradientLayout, Layout,
    Lengths, Mask, Packed, PackedPlaces, Paged, PagedPlaces, Problem, Rotary, Shape, Strides,
};

/// A device that no machine has: what is right but for it is an error of CUDA, with a driver or without one.
const NO_DEVICE: usize = 99;
const PLACE: u64 = 1 << 20;

fn packed() -> Packed {
    let lengths = Lengths::new([100, 0, 28]).expect("small");
    Packed::new(&lengths, &lengths, 4, 2, 64).expect("as many queries as keys")
}

fn paged() -> Paged {
    let table = BlockTable::new(256, &[(300, &[1, 0]), (256, &[2])]).expect("the pages hold them");
    Paged::new(&table, 3, 1, 4, 2, 64).expect("the pages are there")
}

fn at<P: Default>(places: P) -> Addresses<P> {
    Addresses { q: PLACE, k: PLACE, v: PLACE, o: PLACE, lse: PLACE, places, ..Addresses::default() }
}

#[test]
fn a_packed_problem_has_the_sizes_of_its_lengths() {
    let packed = packed();
    assert_eq!((packed.batch, packed.longest_q, packed.total_k), (3, 100, 128));
    assert_eq!(packed.lse_len(), Ok(4 * 128));
    assert_eq!(packed.softmax_d_len(), Ok(4 * (128 + 3 * 128)));
    let choice = Forward::new(packed, DType::Bf16).mask(Mask::Causal).supported().expect("quick holds it");
    assert_eq!(choice.family, "fa2");
}

#[test]
fn lengths_that_do_not_go_together_are_named() {
    let (two, three) = (Lengths::new([1, 2]).expect("small"), Lengths::new([1, 2, 3]).expect("small"));
    let error = Packed::new(&two, &three, 4, 4, 64).expect_err("they differ");
    assert_eq!(error.to_string(), "there are 2 sequences of queries and 3 of keys");
    assert!(Lengths::new([usize::MAX, 2]).is_err());
    let error = Lengths::new([1 << 30, 1 << 30]).expect_err("it is too long");
    assert!(error.to_string().contains("is 2147483648"), "{error}");
    assert_eq!(Lengths::new([]).map(|none| (none.batch(), none.longest())), Ok((0, 0)));
}

#[test]
fn a_table_holds_no_key_without_a_page_and_no_page_that_is_not_there() {
    let error = BlockTable::new(256, &[(257, &[0])]).expect_err("a row is missing");
    assert_eq!(error.to_string(), "sequence 0 has 257 keys, and its 1 pages of 256 rows hold 256");
    let table = BlockTable::new(256, &[(1, &[7]), (0, &[])]).expect("small");
    assert_eq!((table.pages(), table.seqlens(), table.pages_per_sequence()), (&[7, 0][..], &[1, 0][..], 1));
    let error = Paged::new(&table, 7, 1, 4, 4, 64).expect_err("there is no page 7");
    assert_eq!(error.to_string(), "the table names page 7, and there are 7, from 0 on");
    assert!(BlockTable::new(256, &[(0, &[usize::MAX])]).is_err());
    assert!(BlockTable::new(usize::MAX, &[(1, &[0, 1])]).is_err());
}

#[test]
fn what_a_library_lacks_is_said_of_pages_and_gradients_as_well() {
    let pages = Forward::new(paged(), DType::Bf16).supported();
    let gradients = Forward::new(packed(), DType::Bf16).backward().workspace(0);
    for error in pages.err().into_iter().chain(gradients.err()) {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

#[test]
fn a_page_size_that_cannot_be_is_named() {
    let error = Forward::new(Paged { page_size: 0, ..paged() }, DType::Bf16).supported().expect_err("it is wrong");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("page_size is 0"), "{error}");
}

#[test]
fn a_right_call_for_a_device_that_is_not_there_is_an_error_of_cuda_and_a_wrong_one_of_its_argument() {
    let packed = packed();
    let (forward, layout) = (Forward::new(packed, DType::Bf16), Layout::contiguous(&packed).expect("small"));
    let launch = |at: &Addresses<PackedPlaces>| {
        // SAFETY: no device is there, so no address is looked at.
        unsafe { forward.launch(NO_DEVICE, null_mut(), &layout, at) }.expect_err("there is no such device").kind()
    };
    let places = PackedPlaces { starts_q: PLACE, starts_k: PLACE };
    assert_eq!(launch(&at(places)), ErrorKind::Cuda);
    assert_eq!(launch(&at(PackedPlaces { starts_k: 0, ..places })), ErrorKind::Invalid);
    assert_eq!(launch(&Addresses { q: PLACE + 2, ..at(places) }), ErrorKind::Invalid);
}

#[test]
fn gradients_that_meet_are_not_written() {
    let shape = Shape { batch: 2, seqlen_q: 8, seqlen_k: 8, heads_q: 4, heads_k: 4, head_dim: 64 };
    assert_eq!(shape.softmax_d_len(), Ok(2 * 4 * 128));
    let (forward, layout) = (Forward::new(shape, DType::Bf16), Layout::contiguous(&shape).expect("small"));
    let right = GradientLayout::contiguous(&shape).expect("small");
    let broadcast = Strides { row: 0, ..right.dk };
    let of = GradientAddresses { d_o: PLACE, dq: PLACE, dk: PLACE, dv: PLACE, softmax_d: PLACE, ..Default::default() };
    for wrong in [GradientLayout { dk: broadcast, ..right }, GradientLayout { dv: broadcast, ..right }] {
        // SAFETY: no device is there, so no address is looked at.
        let done = unsafe { forward.backward().launch(NO_DEVICE, null_mut(), (&layout, &wrong), &at(()), &of) };
        assert!(done.expect_err("they overlap").to_string().contains("let its elements overlap"));
    }
}

#[test]
fn what_is_optional_is_looked_at_with_the_rest() {
    let dense = Shape { batch: 2, seqlen_q: 8, seqlen_k: 8, heads_q: 4, heads_k: 4, head_dim: 64 };
    let (dense, paged) = (Forward::new(dense, DType::Bf16), Forward::new(paged(), DType::Bf16));
    let rotary = Rotary { dim: 64, rows: 512, interleaved: true };
    let wrong = [
        (dense.splits(129).supported(), "num_splits is 129"),
        (paged.rotary(rotary).supported(), "k_new"),
        (paged.append(1).rotary(Rotary { dim: 24, ..rotary }).supported(), "rotary_dim is 24"),
        (paged.append(1).rotary(Rotary { rows: 511, ..rotary }).supported(), "rotary_seqlen is 511"),
        (paged.append(513).supported(), "seqlen_new is 513"),
    ];
    for (answer, said) in wrong {
        let error = answer.expect_err("it is wrong");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    for slopes in [Alibi::PerHead, Alibi::PerSequence] {
        let error = dense.alibi(slopes).supported().expect_err("quick has no ALiBi");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let error = dense.alibi(slopes).backward().supported().expect_err("quick has no gradients");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

#[test]
fn places_of_pages_are_given_with_the_addresses() {
    let paged = paged();
    let layout = Layout::contiguous(&paged).expect("small");
    assert_eq!(paged.keys().batch, 3);
    let at = at(PagedPlaces { table: 0, seqlens: PLACE });
    // SAFETY: no device is there, so no address is looked at.
    let done = unsafe { Forward::new(paged, DType::Bf16).launch(NO_DEVICE, null_mut(), &layout, &at) };
    assert!(done.is_err());
}
