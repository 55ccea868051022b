//! `stasis_trace.h`.
use crate::stasis::*;
use std::os::raw::c_void;

pub const STASIS_TRACE_HELD: u32 = 1;
pub const STASIS_TRACE_TAKEN: u32 = 2;
pub const STASIS_TRACE_SHARED: u32 = 3;
pub const STASIS_TRACE_COPIED: u32 = 4;
pub const STASIS_TRACE_FILLED: u32 = 5;
pub const STASIS_TRACE_RELEASED: u32 = 6;
pub const STASIS_TRACE_READ: u32 = 7;
pub const STASIS_TRACE_APPEND: u32 = 8;
pub const STASIS_TRACE_UNDONE: u32 = 9;
pub const STASIS_TRACE_REWIND: u32 = 10;
pub const STASIS_TRACE_EVICT: u32 = 11;
pub const STASIS_TRACE_FORK: u32 = 12;
pub const STASIS_TRACE_SAVE: u32 = 13;
pub const STASIS_TRACE_LOAD: u32 = 14;
pub const STASIS_TRACE_ALL_GROUPS: u32 = u32::MAX;
pub const STASIS_TRACE_READS: u32 = 1;
pub const STASIS_TRACE_QUEUE_MAX: u32 = 16777216;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_trace_event {
    pub struct_size: u32,
    pub kind: u32,
    pub group: u32,
    pub window: u32,
    pub begin: u64,
    pub end: u64,
    pub bytes: u64,
    pub digest: stasis_digest,
}

pub type stasis_trace_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, event: *const stasis_trace_event)>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_trace_options {
    pub struct_size: u32,
    pub flags: u32,
    pub callback: stasis_trace_fn,
    pub user: *mut c_void,
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
    pub queue_events: u64,
}

extern "C" {
    pub fn stasis_trace_options_init(options: *mut stasis_trace_options, size: usize);
    pub fn stasis_session_set_trace(
        session: *mut stasis_session,
        options: *const stasis_trace_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_take_trace(
        session: *mut stasis_session,
        events: *mut stasis_trace_event,
        stride: usize,
        capacity: usize,
        count: *mut usize,
        lost: *mut u64,
        error: *mut stasis_error,
    ) -> stasis_status;
}
