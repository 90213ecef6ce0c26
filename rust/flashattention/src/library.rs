use std::ffi::CStr;

use flashattention_sys as sys;

use crate::Error;

/// A line of kernels in the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFamily {
    /// `fa2`, `fa4`.
    pub name: String,
    /// The version of its source.
    pub upstream: String,
    /// The GPUs that it has machine code for, `10 * major + minor`.
    pub sass: Vec<i32>,
}

/// What a library holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The CUDA release that compiled it, `1000 * major + 10 * minor`.
    pub cuda: i32,
    /// Its lines of kernels, the fastest first.
    pub families: Vec<KernelFamily>,
}

/// What the library that is linked holds. Needs no GPU.
///
/// # Errors
/// When the library is of another ABI.
pub fn library() -> Result<Library, Error> {
    let mut info = sys::fa_info::default();
    // SAFETY: info is a whole struct with its size.
    Error::check(unsafe { sys::fa_build_info(&mut info) })?;
    let count = usize::try_from(info.families_count).unwrap_or(0);
    let step = usize::try_from(info.family_size).unwrap_or(0);
    let families = (0..count)
        .map(|index| {
            // SAFETY: the library says that so many structs lie there, so many bytes apart, while it is loaded.
            let family = unsafe { &*info.families.byte_add(index * step) };
            let sass_count = usize::try_from(family.sass_count).unwrap_or(0);
            // SAFETY: as many numbers lie there, and the texts end with 0.
            let (sass, name, upstream) = unsafe {
                let sass = if sass_count == 0 { &[] } else { std::slice::from_raw_parts(family.sass, sass_count) };
                (sass, CStr::from_ptr(family.name), CStr::from_ptr(family.upstream))
            };
            KernelFamily {
                name: name.to_string_lossy().into_owned(),
                upstream: upstream.to_string_lossy().into_owned(),
                sass: sass.to_vec(),
            }
        })
        .collect();
    Ok(Library { cuda: info.cuda, families })
}
