//! Strings and rates.

use std::ffi::{c_char, c_int, c_uint};

use crate::text;

pub(crate) extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    text::pick(&text::NODE_TYPES, i64::from(node_type) - 1, c"unknown").as_ptr()
}

pub(crate) extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    text::pick(&text::PORT_STATES, i64::from(state), c"unknown").as_ptr()
}

pub(crate) extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    text::pick(&text::STATUSES, i64::from(status), c"unknown").as_ptr()
}

pub(crate) extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    text::pick(&text::EVENTS, i64::from(event), c"unknown").as_ptr()
}

pub(crate) extern "C" fn ibv_rate_to_mult(rate: c_uint) -> c_int {
    text::rate_to_mult(rate)
}

pub(crate) extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_uint {
    text::mult_to_rate(multiple)
}

pub(crate) extern "C" fn ibv_rate_to_mbps(rate: c_uint) -> c_int {
    text::rate_to_mbps(rate)
}

pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_uint {
    text::mbps_to_rate(mbps)
}

/// The directory of `transom run`, or `/sys`.
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: std::sync::OnceLock<std::ffi::CString> = std::sync::OnceLock::new();
    let path = PATH.get_or_init(|| {
        let path = crate::environment::variable("TRANSOM_SYSFS").unwrap_or_else(|| "/sys".into());
        std::ffi::CString::new(path).unwrap_or_else(|_| c"/sys".to_owned())
    });
    path.as_ptr()
}

/// Bytes read, without the last newline; -1 if there is no such file.
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    super::minus_one(|| {
        if directory.is_null() || file.is_null() || buffer.is_null() {
            return Err(crate::errno::Errno::EINVAL);
        }
        // SAFETY: two strings of the caller's.
        let (directory, file) =
            unsafe { (std::ffi::CStr::from_ptr(directory), std::ffi::CStr::from_ptr(file)) };
        let path = format!("{}/{}", directory.to_string_lossy(), file.to_string_lossy());
        let mut bytes = std::fs::read(path)?;
        bytes.truncate(size);
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        // SAFETY: the caller's buffer has `size` bytes, of which there are at most so many here.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
            if bytes.len() < size {
                buffer.add(bytes.len()).write(0);
            }
        }
        c_int::try_from(bytes.len()).map_err(|_| crate::errno::Errno::EINVAL)
    })
}
