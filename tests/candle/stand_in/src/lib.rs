//! One call of run_mha with a head dim that no kernel has.
use std::ptr::null_mut;

mod ffi;
use ffi::run_mha;

#[rustfmt::skip]
pub fn attention() {
    let n = null_mut;
    unsafe {
        run_mha(n(), n(), n(), n(), n(), n(), null_mut(), null_mut(), 0, 0, 0, 0, 0, 512, 512, 512, 512,
                512, 512, 512, 512, 1, 1, 1, 512, 512, 1.0, 1, 1, 128, 128, 1, 0, 0, -1, -1, 0.0);
    }
}
