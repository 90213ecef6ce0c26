use std::ffi::CStr;
use std::fmt;

use flashattention_sys as sys;

/// What kind of thing went wrong; the status codes of the C ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is wrong, whatever the library and the GPU.
    Invalid,
    /// Right, but not in this library; the text says what would have it.
    Unsupported,
    /// The library has no machine code that this GPU runs.
    NoKernelForArch,
    /// The workspace is smaller than [`Forward::workspace`](crate::Forward::workspace) said.
    WorkspaceTooSmall,
    /// CUDA answered with an error.
    Cuda,
    /// A fault of the library.
    Internal,
}

/// Why a call did nothing. Its text names the argument, its value and what is allowed.
///
/// Its [`source`](std::error::Error::source) is cudarc's error, where one of its calls failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
    #[cfg(feature = "cudarc")]
    source: Option<cudarc::driver::DriverError>,
}

impl Error {
    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub(crate) fn invalid(text: String) -> Self {
        Self::new(ErrorKind::Invalid, text)
    }

    fn new(kind: ErrorKind, text: String) -> Self {
        Self {
            kind,
            text,
            #[cfg(feature = "cudarc")]
            source: None,
        }
    }

    #[cfg(feature = "cudarc")]
    pub(crate) fn cuda(error: cudarc::driver::DriverError) -> Self {
        Self { source: Some(error), ..Self::new(ErrorKind::Cuda, error.to_string()) }
    }

    /// The answer of a call of the library, made on this thread just before.
    pub(crate) fn check(status: sys::fa_status) -> Result<(), Self> {
        let kind = match status {
            sys::FA_STATUS_OK => return Ok(()),
            sys::FA_STATUS_INVALID => ErrorKind::Invalid,
            sys::FA_STATUS_UNSUPPORTED => ErrorKind::Unsupported,
            sys::FA_STATUS_NO_KERNEL_FOR_ARCH => ErrorKind::NoKernelForArch,
            sys::FA_STATUS_WORKSPACE_TOO_SMALL => ErrorKind::WorkspaceTooSmall,
            sys::FA_STATUS_CUDA => ErrorKind::Cuda,
            _ => ErrorKind::Internal,
        };
        // SAFETY: the text is valid until this thread's next failing call, and is copied here.
        let text = unsafe { CStr::from_ptr(sys::fa_last_error()) }.to_string_lossy().into_owned();
        Err(Self::new(kind, text))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        #[cfg(feature = "cudarc")]
        if let Some(error) = &self.source {
            return Some(error);
        }
        None
    }
}
