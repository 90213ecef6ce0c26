//! The library that is linked is the one that these bindings are for.

use flashattention_sys::*;
use std::ffi::CStr;

#[test]
fn the_library_knows_the_abi_of_the_bindings() {
    let mut info = fa2_info::default();
    assert_eq!(unsafe { fa2_build_info(&mut info) }, FA2_OK);
    assert!(info.abi >= FA2_ABI);
    assert_eq!(unsafe { CStr::from_ptr(info.upstream) }.to_str(), Ok("@UPSTREAM_VERSION@"));
}

#[test]
fn arguments_of_another_size_are_refused_with_a_text() {
    let args = fa2_fwd_args { size: 0, ..Default::default() };
    assert_eq!(unsafe { fa2_supports(-1, &args) }, FA2_INVALID);
    assert!(unsafe { CStr::from_ptr(fa2_last_error()) }.to_string_lossy().contains("size"));
}
