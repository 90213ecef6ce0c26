//! run_mha as each version of candle declares it. The cfg `form` says which one is linked.

use std::ffi::{c_char, c_int, c_void};

/// What goes to run_mha, whatever its list.
pub struct Call {
    /// q, k, v, o and lse.
    pub data: [*mut c_void; 5],
    pub cu_q: *mut i32,
    pub cu_k: *mut i32,
    /// Batch, row and head strides of q and o, and of k and v.
    pub q_strides: [u32; 3],
    pub k_strides: [u32; 3],
    pub b: u32,
    pub h: u32,
    pub hk: u32,
    pub d: u32,
    pub sq: u32,
    pub sk: u32,
    pub bf16: bool,
    pub causal: bool,
    pub left: c_int,
    pub right: c_int,
    #[cfg_attr(form = "35", allow(dead_code))]
    pub of_newer_lists: Newer,
}

/// What only some lists have.
#[cfg_attr(not(form = "45"), allow(dead_code))]
pub struct Newer {
    pub total_q: u32,
    pub unpadded_lse: bool,
    pub softcap: f32,
    pub table: *mut i32,
    pub page_size: c_int,
    pub stream: *mut c_void,
}

extern "C" {
    pub fn fa_candle_last_status() -> i32;
    pub fn fa_candle_last_error() -> *const c_char;
}

/// The declaration, and a function that calls it. The lists are: after the lengths, after is_causal, at the end.
macro_rules! argument_list {
    (|$c:ident| [$($a:ident: $a_type:ty = $a_value:expr),*]
                [$($b:ident: $b_type:ty = $b_value:expr),*]
                [$($e:ident: $e_type:ty = $e_value:expr),*]) => {
        extern "C" {
            fn run_mha(
                q: *mut c_void, k: *mut c_void, v: *mut c_void, o: *mut c_void, lse: *mut c_void, alibi: *mut c_void,
                cu_q: *mut i32, cu_k: *mut i32,
                q_batch: u32, k_batch: u32, v_batch: u32, o_batch: u32, alibi_batch: u32,
                q_row: u32, k_row: u32, v_row: u32, o_row: u32, q_head: u32, k_head: u32, v_head: u32, o_head: u32,
                b: u32, h: u32, h_k: u32, d: u32, d_rounded: u32, scale: f32,
                sq: u32, sk: u32, sq_rounded: u32, sk_rounded: u32, $($a: $a_type,)*
                bf16: c_int, causal: c_int, $($b: $b_type,)* left: c_int, right: c_int $(, $e: $e_type)*
            );
        }

        /// # Safety
        /// Every address is one on the device, of as many elements as the sizes say.
        pub unsafe fn call($c: &Call) {
            let [q, k, v, o, lse] = $c.data;
            let ([q_batch, q_row, q_head], [k_batch, k_row, k_head]) = ($c.q_strides, $c.k_strides);
            let up = |value: u32, unit: u32| value.div_ceil(unit) * unit;
            run_mha(
                q, k, v, o, lse, std::ptr::null_mut(), $c.cu_q, $c.cu_k,
                q_batch, k_batch, k_batch, q_batch, 0, q_row, k_row, k_row, q_row, q_head, k_head, k_head, q_head,
                $c.b, $c.h, $c.hk, $c.d, up($c.d, 32), 1.0 / ($c.d as f32).sqrt(),
                $c.sq, $c.sk, up($c.sq, 128), up($c.sk, 128), $($a_value,)*
                $c.bf16.into(), $c.causal.into(), $($b_value,)* $c.left, $c.right $(, $e_value)*
            );
        }
    };
}

#[cfg(form = "35")]
argument_list!(|c| [] [] []);

#[cfg(form = "37")]
argument_list!(|c| [] [unpadded_lse: c_int = c.of_newer_lists.unpadded_lse.into()]
    [softcap: f32 = c.of_newer_lists.softcap]);

#[cfg(form = "45")]
argument_list!(|c| [total_q: u32 = c.of_newer_lists.total_q]
    [unpadded_lse: c_int = c.of_newer_lists.unpadded_lse.into()]
    [softcap: f32 = c.of_newer_lists.softcap, table: *mut i32 = c.of_newer_lists.table, table_stride: u32 = 2,
     page_size: c_int = c.of_newer_lists.page_size, ranges: *mut i32 = std::ptr::null_mut(),
     ranges_stride: u32 = 0, ranges_count: c_int = 0, stream: *mut c_void = c.of_newer_lists.stream]);
