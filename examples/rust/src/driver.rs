//! The few calls of CUDA's driver API that the example needs, found in the driver's library at run time: the program needs
//! no CUDA toolkit. Types and names are those of the CUDA Driver API manual.

use std::ffi::{c_char, c_int, c_uint, c_void, CStr, CString};
use std::mem::{size_of, size_of_val, transmute_copy};
use std::ptr::null_mut;

type CuResult = c_int;
type CuDevicePointer = u64;
pub type Handle = *mut c_void;

const NO_DEVICE: CuResult = 100;
const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const COMPUTE_CAPABILITY_MINOR: c_int = 76;

#[cfg(not(windows))]
mod system {
    use super::{c_char, c_int, c_void, CStr, Handle};

    extern "C" {
        fn dlopen(name: *const c_char, mode: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    pub const DRIVER: &CStr = c"libcuda.so.1";
    const RTLD_NOW: c_int = 2;

    pub unsafe fn load(name: &CStr) -> Handle {
        dlopen(name.as_ptr(), RTLD_NOW)
    }

    pub unsafe fn find(library: Handle, name: &CStr) -> Handle {
        dlsym(library, name.as_ptr())
    }
}

#[cfg(windows)]
mod system {
    use super::{c_char, CStr, Handle};

    extern "system" {
        fn LoadLibraryA(name: *const c_char) -> Handle;
        fn GetProcAddress(library: Handle, name: *const c_char) -> Handle;
    }

    pub const DRIVER: &CStr = c"nvcuda.dll";

    pub unsafe fn load(name: &CStr) -> Handle {
        LoadLibraryA(name.as_ptr())
    }

    pub unsafe fn find(library: Handle, name: &CStr) -> Handle {
        GetProcAddress(library, name.as_ptr())
    }
}

/// Why there is no driver to call.
pub enum Failure {
    NoGpu(String),
    Broken(String),
}

type Answer<T> = Result<T, String>;

macro_rules! driver {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Calls { $($name: unsafe extern "C" fn($($argument),*) -> CuResult,)* }

        impl Calls {
            /// The functions of a library, or the name of the first that it lacks.
            fn find(library: *mut c_void) -> Result<Self, &'static str> {
                $(let $name = find(library, $symbol)?;)*
                // SAFETY: the types are those of the CUDA Driver API manual.
                Ok(Self { $($name: unsafe { transmute_copy(&$name) },)* })
            }
        }
    };
}

driver! {
    init = "cuInit" (c_uint);
    error_string = "cuGetErrorString" (CuResult, *mut *const c_char);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    context_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, c_int);
    context_set = "cuCtxSetCurrent" (Handle);
    allocate = "cuMemAlloc_v2" (*mut CuDevicePointer, usize);
    free = "cuMemFree_v2" (CuDevicePointer);
    to_device = "cuMemcpyHtoD_v2" (CuDevicePointer, *const c_void, usize);
    to_host = "cuMemcpyDtoH_v2" (*mut c_void, CuDevicePointer, usize);
    stream_create = "cuStreamCreate" (*mut Handle, c_uint);
    stream_synchronize = "cuStreamSynchronize" (Handle);
    event_create = "cuEventCreate" (*mut Handle, c_uint);
    event_record = "cuEventRecord" (Handle, Handle);
    event_synchronize = "cuEventSynchronize" (Handle);
    event_elapsed = "cuEventElapsedTime" (*mut f32, Handle, Handle);
}

fn find(library: *mut c_void, symbol: &'static str) -> Result<*mut c_void, &'static str> {
    let name = CString::new(symbol).expect("names have no zero byte");
    let found = unsafe { system::find(library, &name) };
    if found.is_null() { Err(symbol) } else { Ok(found) }
}

/// The driver, with the first GPU's primary context current: the one that CUDA's runtime uses as well.
pub struct Driver {
    calls: Calls,
    pub gpu: String,
}

impl Driver {
    pub fn open() -> Result<Self, Failure> {
        let library = unsafe { system::load(system::DRIVER) };
        if library.is_null() {
            return Err(Failure::NoGpu(format!("{} is not there. The NVIDIA driver brings it.", system::DRIVER.to_string_lossy())));
        }
        let calls = Calls::find(library).map_err(|name| Failure::Broken(format!("it is too old: no {name}")))?;
        let mut driver = Self { calls, gpu: String::new() };
        if unsafe { (driver.calls.init)(0) } == NO_DEVICE {
            let text = "the driver is there and serves none. In a container, start it with --gpus all.";
            return Err(Failure::NoGpu(text.into()));
        }
        driver.gpu = driver.first_gpu().map_err(Failure::Broken)?;
        Ok(driver)
    }

    fn first_gpu(&self) -> Answer<String> {
        let (mut device, mut context) = (0, null_mut());
        let (mut name, mut major, mut minor) = ([0 as c_char; 128], 0, 0);
        unsafe {
            self.done((self.calls.init)(0), "cuInit")?;
            self.done((self.calls.device_get)(&mut device, 0), "cuDeviceGet")?;
            self.done((self.calls.context_retain)(&mut context, device), "cuDevicePrimaryCtxRetain")?;
            self.done((self.calls.context_set)(context), "cuCtxSetCurrent")?;
            self.done((self.calls.device_name)(name.as_mut_ptr(), name.len() as c_int, device), "cuDeviceGetName")?;
            let attribute = self.calls.device_attribute;
            self.done(attribute(&mut major, COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute")?;
            self.done(attribute(&mut minor, COMPUTE_CAPABILITY_MINOR, device), "cuDeviceGetAttribute")?;
            let name = CStr::from_ptr(name.as_ptr()).to_string_lossy();
            Ok(format!("{name}, compute capability {major}.{minor}"))
        }
    }

    fn done(&self, result: CuResult, what: &str) -> Answer<()> {
        if result == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        let known = unsafe { (self.calls.error_string)(result, &mut text) } == 0 && !text.is_null();
        let text = if known { unsafe { CStr::from_ptr(text) }.to_string_lossy() } else { "unknown error".into() };
        Err(format!("{what}: {text}"))
    }

    pub fn stream(&self) -> Answer<Handle> {
        let mut stream = null_mut();
        self.done(unsafe { (self.calls.stream_create)(&mut stream, 0) }, "cuStreamCreate")?;
        Ok(stream)
    }

    pub fn synchronize(&self, stream: Handle) -> Answer<()> {
        self.done(unsafe { (self.calls.stream_synchronize)(stream) }, "the kernel")
    }

    pub fn array<T: Copy>(&self, count: usize) -> Answer<DeviceArray<'_, T>> {
        let mut data = 0;
        self.done(unsafe { (self.calls.allocate)(&mut data, count * size_of::<T>()) }, "cuMemAlloc")?;
        Ok(DeviceArray { driver: self, data, count, of: std::marker::PhantomData })
    }

    pub fn array_of<T: Copy>(&self, values: &[T]) -> Answer<DeviceArray<'_, T>> {
        let array = self.array(values.len())?;
        let copied = unsafe { (self.calls.to_device)(array.data, values.as_ptr().cast(), size_of_val(values)) };
        self.done(copied, "cuMemcpyHtoD")?;
        Ok(array)
    }

    /// Milliseconds that a stream needs for some work.
    pub fn time(&self, stream: Handle, work: impl FnOnce() -> Answer<()>) -> Answer<f32> {
        let (mut begin, mut end, mut milliseconds) = (null_mut(), null_mut(), 0.0);
        unsafe {
            self.done((self.calls.event_create)(&mut begin, 0), "cuEventCreate")?;
            self.done((self.calls.event_create)(&mut end, 0), "cuEventCreate")?;
            self.done((self.calls.event_record)(begin, stream), "cuEventRecord")?;
            work()?;
            self.done((self.calls.event_record)(end, stream), "cuEventRecord")?;
            self.done((self.calls.event_synchronize)(end), "the kernels")?;
            self.done((self.calls.event_elapsed)(&mut milliseconds, begin, end), "cuEventElapsedTime")?;
        }
        Ok(milliseconds)
    }
}

/// Memory of the GPU, freed with its owner.
pub struct DeviceArray<'a, T> {
    driver: &'a Driver,
    data: CuDevicePointer,
    count: usize,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy + Default> DeviceArray<'_, T> {
    pub fn pointer(&self) -> *mut T {
        self.data as *mut T
    }

    pub fn read(&self) -> Answer<Vec<T>> {
        let mut values = vec![T::default(); self.count];
        let bytes = self.count * size_of::<T>();
        let copied = unsafe { (self.driver.calls.to_host)(values.as_mut_ptr().cast(), self.data, bytes) };
        self.driver.done(copied, "cuMemcpyDtoH")?;
        Ok(values)
    }
}

impl<T> Drop for DeviceArray<'_, T> {
    fn drop(&mut self) {
        // An error here is one of an earlier kernel, which its own check reports.
        unsafe { (self.driver.calls.free)(self.data) };
    }
}
