//! `stasis_quantize.h`.
use crate::stasis::*;
use std::os::raw::{c_char, c_void};

pub const STASIS_QUANTIZE_REPLACE: u32 = 1;
pub const STASIS_QUANTIZE_TYPES_MAX: i32 = 16;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_quantize_options {
    pub struct_size: u32,
    pub flags: u32,
    pub r#type: *const c_char,
    pub threads: u32,
    pub reserved: u32,
    pub cancel: *mut stasis_cancel,
    pub progress: stasis_progress_fn,
    pub progress_user: *mut c_void,
    pub timeout_ms: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_quantize_share {
    pub r#type: [c_char; 8],
    pub tensors: u64,
    pub values: u64,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_quantize_report {
    pub struct_size: u32,
    pub share_count: u32,
    pub source_bytes: u64,
    pub file_bytes: u64,
    pub shares: [stasis_quantize_share; STASIS_QUANTIZE_TYPES_MAX as usize],
}

extern "C" {
    pub fn stasis_quantize_options_init(options: *mut stasis_quantize_options, size: usize);
    pub fn stasis_model_quantize(
        path: *const c_char,
        out: *const c_char,
        options: *const stasis_quantize_options,
        report: *mut stasis_quantize_report,
        error: *mut stasis_error,
    ) -> stasis_status;
}
