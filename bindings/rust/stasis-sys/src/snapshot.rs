//! `stasis_snapshot.h`.
use crate::stasis::*;
use crate::trace::stasis_trace_options;
use std::os::raw::{c_char, c_void};

pub const STASIS_SAVE_REPLACE: u32 = 1;
pub const STASIS_SAVE_FULL_LOGITS: u32 = 2;
pub const STASIS_SAVE_IF_MATCH: u32 = 4;
pub const STASIS_CODEC_DEFAULT: u32 = 0;
pub const STASIS_CODEC_RAW: u32 = 1;
pub const STASIS_CODEC_ZSTD: u32 = 2;
pub const STASIS_KEEP_FULL: u32 = 0;
pub const STASIS_KEEP_NONE: u32 = 1;
pub const STASIS_LOAD_NO_RECOMPUTE: u32 = 1;
pub const STASIS_LOAD_TRUSTED: u32 = 2;
pub const STASIS_LOAD_ANY_PROFILE: u32 = 4;
pub const STASIS_LOAD_ACCEPT_OLDER: u32 = 8;
pub const STASIS_LOAD_SKIP_KNOWN: u32 = 16;
pub const STASIS_VERIFY_STRICT: u32 = 1;
pub const STASIS_SNAPSHOT_DAMAGED_ROOT: u32 = 1;
pub const STASIS_NOWHERE: u32 = u32::MAX;
pub const STASIS_KEYS: u32 = 0;
pub const STASIS_VALUES: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_save_options {
    pub struct_size: u32,
    pub flags: u32,
    pub cancel: *mut stasis_cancel,
    pub progress: stasis_progress_fn,
    pub progress_user: *mut c_void,
    pub codec: u32,
    pub keep: u32,
    pub timeout_ms: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_load_options {
    pub struct_size: u32,
    pub flags: u32,
    pub session: *const stasis_session_options,
    pub cancel: *mut stasis_cancel,
    pub progress: stasis_progress_fn,
    pub progress_user: *mut c_void,
    pub trace: *const stasis_trace_options,
    pub timeout_ms: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_sink {
    pub struct_size: u32,
    pub reserved: u32,
    pub write: Option<
        unsafe extern "C" fn(user: *mut c_void, data: *const c_void, size_bytes: usize) -> i32,
    >,
    pub user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_source {
    pub struct_size: u32,
    pub reserved: u32,
    pub read: Option<
        unsafe extern "C" fn(user: *mut c_void, data: *mut c_void, size_bytes: usize) -> i64,
    >,
    pub user: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_snapshot_info {
    pub struct_size: u32,
    pub format: u32,
    pub contract: [u32; 3],
    pub page_positions: u32,
    pub position: u64,
    pub file_bytes: u64,
    pub digest: stasis_digest,
    pub root: stasis_digest,
    pub model: stasis_digest,
    pub flags: u32,
    pub keep: u32,
    pub codec: u32,
    pub reserved: u32,
    pub commits: u64,
    pub kv_bytes: u64,
    pub kv_stored_bytes: u64,
    pub positions_foreign: u64,
    pub profile: [c_char; 192],
    pub dead_bytes: u64,
    pub older: u32,
    pub reserved_1: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_difference {
    pub struct_size: u32,
    pub equal: u32,
    pub element: u32,
    pub layer: u32,
    pub head: u32,
    pub reserved: u32,
    pub position: u64,
    pub message: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_verify_options {
    pub struct_size: u32,
    pub chunk: u32,
    pub cancel: *mut stasis_cancel,
    pub progress: stasis_progress_fn,
    pub progress_user: *mut c_void,
    pub audit_percent: f64,
    pub audit_seed: u64,
    pub flags: u32,
    pub reserved: u32,
    pub timeout_ms: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_verify_report {
    pub struct_size: u32,
    pub verified: u32,
    pub positions: u64,
    pub position: u64,
    pub layer: u32,
    pub element: u32,
    pub message: [c_char; 256],
    pub head: u32,
    pub part: u32,
    pub drawn: u64,
    pub drawn_otherwise: u64,
    pub audit_pages: u64,
    pub audit_drawn: u64,
    pub unreachable_begin: u64,
    pub unreachable_end: u64,
    pub sections: u64,
    pub older: u32,
    pub reserved: u32,
}

extern "C" {
    pub fn stasis_save_options_init(options: *mut stasis_save_options, size: usize);
    pub fn stasis_load_options_init(options: *mut stasis_load_options, size: usize);
    pub fn stasis_session_save(
        session: *mut stasis_session,
        path: *const c_char,
        options: *const stasis_save_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_write(
        session: *mut stasis_session,
        sink: *const stasis_sink,
        options: *const stasis_save_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_load(
        model: *mut stasis_model,
        path: *const c_char,
        options: *const stasis_load_options,
        session: *mut *mut stasis_session,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_read(
        model: *mut stasis_model,
        source: *const stasis_source,
        options: *const stasis_load_options,
        session: *mut *mut stasis_session,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_open(
        path: *const c_char,
        snapshot: *mut *mut stasis_snapshot,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_open_source(
        source: *const stasis_source,
        snapshot: *mut *mut stasis_snapshot,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_close(snapshot: *mut stasis_snapshot);
    pub fn stasis_snapshot_get_info(
        snapshot: *const stasis_snapshot,
        info: *mut stasis_snapshot_info,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_element(
        snapshot: *const stasis_snapshot,
        element: u32,
        json: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_tokens(
        snapshot: *const stasis_snapshot,
        begin: u64,
        tokens: *mut stasis_token,
        sources: *mut u8,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_compare(
        a: *const stasis_snapshot,
        b: *const stasis_snapshot,
        difference: *mut stasis_difference,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_compact(
        path: *const c_char,
        options: *const stasis_save_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_verify_options_init(options: *mut stasis_verify_options, size: usize);
    pub fn stasis_snapshot_verify(
        snapshot: *const stasis_snapshot,
        model: *mut stasis_model,
        options: *const stasis_verify_options,
        report: *mut stasis_verify_report,
        error: *mut stasis_error,
    ) -> stasis_status;
}
