//! The library that is linked is the one that these bindings are for.

use flashattention_sys::*;
use std::ffi::CStr;

#[test]
fn the_library_knows_the_abi_of_the_bindings() {
    let mut info = fa_info::default();
    assert_eq!(unsafe { fa_build_info(&mut info) }, FA_OK);
    assert!(info.abi >= FA_ABI);
    let fa2 = unsafe { &*info.families };
    assert_eq!(fa2.family, FA_FAMILY_FA2);
    assert_eq!(unsafe { CStr::from_ptr(fa2.upstream) }.to_str(), Ok("@UPSTREAM_VERSION@"));
}

#[test]
fn arguments_of_another_size_are_refused_with_a_text() {
    let args = fa_fwd_args { size: 0, ..Default::default() };
    assert_eq!(unsafe { fa_supports(-1, &args, std::ptr::null_mut()) }, FA_INVALID);
    assert!(unsafe { CStr::from_ptr(fa_last_error()) }.to_string_lossy().contains("size"));
}
