//! Device memory from libcuda.so.1, which is loaded at run time.

use std::ffi::{c_char, c_int, c_uint, c_void, CString};
use std::mem::{size_of_val, transmute_copy};
use std::ptr::null_mut;

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

pub struct Driver {
    library: *mut c_void,
    /// One that does not wait for the default stream, as candle's own streams are.
    pub stream: *mut c_void,
}

impl Driver {
    /// `None` where there is no driver.
    pub fn open() -> Option<Driver> {
        const RTLD_NOW: c_int = 2;
        let library = unsafe { dlopen(c"libcuda.so.1".as_ptr(), RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let mut driver = Driver { library, stream: null_mut() };
        let mut context: *mut c_void = null_mut();
        unsafe {
            let init: extern "C" fn(c_uint) -> c_int = driver.function("cuInit");
            let retain: extern "C" fn(*mut *mut c_void, c_int) -> c_int = driver.function("cuDevicePrimaryCtxRetain");
            let set: extern "C" fn(*mut c_void) -> c_int = driver.function("cuCtxSetCurrent");
            let stream: extern "C" fn(*mut *mut c_void, c_uint) -> c_int = driver.function("cuStreamCreate");
            assert_eq!(init(0), 0, "cuInit");
            assert_eq!(retain(&mut context, 0), 0, "cuDevicePrimaryCtxRetain");
            assert_eq!(set(context), 0, "cuCtxSetCurrent");
            assert_eq!(stream(&mut driver.stream, 1), 0, "cuStreamCreate");
        }
        Some(driver)
    }

    /// `F` is the type of that function's pointer.
    unsafe fn function<F>(&self, name: &str) -> F {
        let spelled = CString::new(name).unwrap();
        let found = dlsym(self.library, spelled.as_ptr());
        assert!(!found.is_null(), "libcuda.so.1 has no {name}");
        transmute_copy(&found)
    }

    pub fn upload<T>(&self, data: &[T]) -> *mut c_void {
        let mut address = 0u64;
        unsafe {
            let allocate: extern "C" fn(*mut u64, usize) -> c_int = self.function("cuMemAlloc_v2");
            let copy: extern "C" fn(u64, *const c_void, usize) -> c_int = self.function("cuMemcpyHtoD_v2");
            assert_eq!(allocate(&mut address, size_of_val(data)), 0, "cuMemAlloc");
            assert_eq!(copy(address, data.as_ptr().cast(), size_of_val(data)), 0, "cuMemcpyHtoD");
        }
        address as *mut c_void
    }

    /// What is at an address when all work is done.
    pub fn download<T>(&self, address: *mut c_void, into: &mut [T]) {
        unsafe {
            let wait: extern "C" fn() -> c_int = self.function("cuCtxSynchronize");
            let copy: extern "C" fn(*mut c_void, u64, usize) -> c_int = self.function("cuMemcpyDtoH_v2");
            assert_eq!(wait(), 0, "cuCtxSynchronize");
            assert_eq!(copy(into.as_mut_ptr().cast(), address as u64, size_of_val(into)), 0, "cuMemcpyDtoH");
        }
    }
}
