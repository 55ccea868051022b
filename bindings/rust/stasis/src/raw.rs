//! Conversions between Rust and C: texts, arrays whose size is asked for first, structs that state
//! their own size.
use crate::error::{check, Error, Result, Status};
use stasis_sys as sys;
use std::ffi::{CStr, CString};
use std::mem;
use std::os::raw::c_char;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// A struct that begins with `struct_size` and whose zero is valid.
///
/// # Safety
/// It must be `repr(C)`, begin with a `u32`, and be valid when all of its bytes are zero.
pub(crate) unsafe trait Versioned: Copy {}

macro_rules! versioned {
    ($($name:ident)*) => {$(unsafe impl Versioned for sys::$name {})*};
}
// SAFETY: numbers, arrays of numbers, pointers that may be null and optional functions.
versioned! {
    stasis_allocator stasis_model_options stasis_model_info stasis_model_stats stasis_message
    stasis_session_options stasis_run_options stasis_session_info stasis_sampling stasis_generated
    stasis_generate_options stasis_generate_result stasis_draft_options stasis_save_options
    stasis_load_options stasis_sink stasis_source stasis_snapshot_info stasis_difference
    stasis_verify_options stasis_verify_report stasis_trace_event stasis_trace_options
    stasis_quantize_options stasis_quantize_report stasis_embed_info stasis_embed_input
    stasis_embed_options stasis_text_piece stasis_scheduler_options stasis_prompt
    stasis_scheduler_stats stasis_token_info stasis_threads_options stasis_session_memory
    stasis_estimate stasis_metadata
    stasis_model_source stasis_store_options stasis_store_backend stasis_store_call_options
    stasis_store_result stasis_store_collected
}

/// All defaults, with the size stated.
pub(crate) fn sized<T: Versioned>() -> T {
    // SAFETY: what Versioned promises.
    unsafe {
        let mut value: T = mem::zeroed();
        ptr::addr_of_mut!(value).cast::<u32>().write(mem::size_of::<T>() as u32);
        value
    }
}

/// # Safety
/// `text` must be null or point to a zero-terminated text.
pub(crate) unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

/// A zero-terminated text in an array of fixed size.
pub(crate) fn text_in(array: &[c_char]) -> String {
    let bytes: Vec<u8> =
        array.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// # Safety
/// `data` must point to `count` values, or `count` be 0.
pub(crate) unsafe fn copied<T: Copy>(data: *const T, count: usize) -> Vec<T> {
    if count == 0 {
        return Vec::new();
    }
    std::slice::from_raw_parts(data, count).to_vec()
}

pub(crate) fn c_text(text: &str, name: &str) -> Result<CString> {
    CString::new(text).map_err(|error| {
        Error::invalid(format!("{name} has a zero at byte {}", error.nul_position()))
    })
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| {
        Error::invalid(format!("path has a zero at byte {}", error.nul_position()))
    })
}

/// Null for none.
pub(crate) fn pointer_to(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

/// Returns what a call writes into a buffer, whose size is asked for first. `call` gets buffer,
/// capacity and the place for the count.
pub(crate) fn fill<T: Copy + Default>(
    mut call: impl FnMut(*mut T, usize, *mut usize, *mut sys::stasis_error) -> sys::stasis_status,
) -> Result<Vec<T>> {
    let mut count = 0;
    match check(|error| call(ptr::null_mut(), 0, &mut count, error)) {
        Err(error) if error.status() == Status::BufferTooSmall => {}
        Err(error) => return Err(error),
        Ok(()) => return Ok(Vec::new()),
    }
    let mut buffer = vec![T::default(); count];
    check(|error| call(buffer.as_mut_ptr(), buffer.len(), &mut count, error))?;
    buffer.truncate(count);
    Ok(buffer)
}

/// Output of the library as text. It is UTF-8, but for what a model made of single bytes.
pub(crate) fn text_from(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
