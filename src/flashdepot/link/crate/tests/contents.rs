//! The library that is linked is one of these bindings.

use flashattention_sys::*;
use std::ffi::CStr;

#[test]
fn the_library_knows_the_abi_of_the_bindings() {
    let mut info = fa_info::default();
    // SAFETY: info is a whole struct of this library's, with its size.
    assert_eq!(unsafe { fa_build_info(&mut info) }, FA_STATUS_OK);
    assert!(info.version >= FA_VERSION);
    assert!(info.families_count > 0);
}

#[test]
fn arguments_of_another_size_are_refused_with_a_text() {
    let args = fa_fwd_args {
        size: 0,
        ..Default::default()
    };
    // SAFETY: args is a whole struct, and the choice may be null.
    assert_eq!(
        unsafe { fa_supports(-1, &args, std::ptr::null_mut()) },
        FA_STATUS_INVALID
    );
    // SAFETY: the text is valid until this thread's next failing call.
    assert!(unsafe { CStr::from_ptr(fa_last_error()) }
        .to_string_lossy()
        .contains("size"));
}
