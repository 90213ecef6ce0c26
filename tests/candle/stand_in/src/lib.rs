//! One call of run_mha with a head dim that no kernel has.
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

#[rustfmt::skip]
extern "C" {
    fn run_mha(
        q: *mut c_void, k: *mut c_void, v: *mut c_void, o: *mut c_void, lse: *mut c_void, alibi: *mut c_void,
        cu_q: *mut i32, cu_k: *mut i32, q_batch: u32, k_batch: u32, v_batch: u32, o_batch: u32, alibi_batch: u32,
        q_row: u32, k_row: u32, v_row: u32, o_row: u32, q_head: u32, k_head: u32, v_head: u32, o_head: u32,
        b: u32, h: u32, hk: u32, d: u32, d_rounded: u32, scale: f32, sq: u32, sk: u32, sq_rounded: u32, sk_rounded: u32,
        bf16: c_int, causal: c_int, unpadded_lse: c_int, left: c_int, right: c_int, softcap: f32,
    );
}

#[rustfmt::skip]
pub fn attention() {
    let n = null_mut;
    unsafe {
        run_mha(n(), n(), n(), n(), n(), n(), null_mut(), null_mut(), 0, 0, 0, 0, 0, 512, 512, 512, 512,
                512, 512, 512, 512, 1, 1, 1, 512, 512, 1.0, 1, 1, 128, 128, 1, 0, 0, -1, -1, 0.0);
    }
}
