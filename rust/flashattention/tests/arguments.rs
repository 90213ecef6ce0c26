//! Arguments of every kind are answered with a result. None of this needs a GPU.

use flashattention::{library, DType, Dropout, ErrorKind, Family, Forward, Layout, Mask, Shape, Strides};

const SHAPE: Shape = Shape { batch: 2, seqlen_q: 128, seqlen_k: 256, heads_q: 8, heads_k: 2, head_dim: 64 };

#[test]
fn the_library_says_what_it_holds() {
    let library = library().expect("a library is linked");
    assert!(library.cuda >= 12_000);
    assert!(library.families.iter().any(|family| family.name == "fa2" && !family.sass.is_empty()));
}

#[test]
fn a_problem_that_is_in_the_library_names_its_kernels() {
    let choice = Forward::new(SHAPE, DType::Bf16).mask(Mask::Causal).supported().expect("quick holds it");
    assert_eq!(choice.family, "fa2");
}

#[test]
fn what_is_wrong_is_named_with_its_value() {
    let wrong: [(Shape, &str); 5] = [
        (Shape { head_dim: 63, ..SHAPE }, "head_dim is 63"),
        (Shape { heads_k: 3, ..SHAPE }, "heads_q is 8"),
        (Shape { batch: 1 << 40, ..SHAPE }, "batch is 1099511627776"),
        (Shape { seqlen_k: usize::MAX, ..SHAPE }, "seqlen_k is 18446744073709551615"),
        (Shape { batch: 70_000, ..SHAPE }, "batch is 70000"),
    ];
    for (shape, said) in wrong {
        let error = Forward::new(shape, DType::Bf16).supported().expect_err("it is wrong");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    for scale in [f32::NAN, f32::INFINITY, -1.0] {
        let error = Forward::new(SHAPE, DType::Bf16).scale(scale).supported().expect_err("it is wrong");
        assert!(error.to_string().contains("scale"), "{error}");
    }
    let window = Mask::Window { left: Some(usize::MAX), right: None };
    assert!(Forward::new(SHAPE, DType::Bf16).mask(window).supported().is_err());
}

#[test]
fn what_the_library_lacks_is_unsupported_and_not_wrong() {
    let error = Forward::new(SHAPE, DType::Bf16).family(Family::Fa4).supported().expect_err("quick has no fa4");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[test]
fn a_dropout_is_looked_at() {
    let said = |probability| {
        let dropout = Dropout { probability, seed: 7, offset: 0 };
        Forward::new(SHAPE, DType::Bf16).dropout(dropout).supported().expect_err("quick has no dropout")
    };
    assert_eq!(said(0.5).kind(), ErrorKind::Unsupported);
    assert_eq!(said(1.0).kind(), ErrorKind::Invalid);
    assert!(said(1.0).to_string().contains("dropout is 1"));
}

#[test]
fn an_extent_is_that_of_the_last_element() {
    let packed = Strides::contiguous(128, 8, 64).expect("small");
    assert_eq!(packed, Strides { batch: 65_536, row: 512, head: 64 });
    assert_eq!(packed.extent(2, 128, 8, 64), Ok(131_072));
    assert_eq!(Strides { batch: 0, row: 1024, head: 64 }.extent(9, 2, 8, 64), Ok(1024 + 512));
    assert_eq!(packed.extent(0, 128, 8, 64), Ok(0));
}

#[test]
fn numbers_that_overflow_are_errors() {
    assert!(Strides::contiguous(usize::MAX, 2, 8).is_err());
    assert!(Strides { batch: usize::MAX, row: 8, head: 8 }.extent(3, 1, 1, 8).is_err());
    assert!(Layout::contiguous(&Shape { heads_q: usize::MAX, ..SHAPE }).is_err());
}

#[test]
fn an_output_whose_elements_meet_is_not_written() {
    let layout = Layout::contiguous(&SHAPE).expect("small");
    assert!(!layout.output_overlaps(&SHAPE));
    let broadcast = Layout { o: Strides { row: 0, ..layout.o }, ..layout };
    assert!(broadcast.output_overlaps(&SHAPE));
    assert!(!broadcast.output_overlaps(&Shape { seqlen_q: 1, ..SHAPE }));
}
