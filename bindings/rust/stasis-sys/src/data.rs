//! `stasis_data.h`.
use crate::stasis::*;
use std::os::raw::{c_char, c_void};

pub const STASIS_DATA_NAME_MAX: u32 = 255;
pub const STASIS_DATA_ENTRIES_MAX: u32 = 1024;
pub const STASIS_DATA_BYTES_MAX: u32 = 16777216;

pub const STASIS_ROLE_NONE: u32 = 0;
pub const STASIS_ROLE_SYSTEM: u32 = 1;
pub const STASIS_ROLE_USER: u32 = 2;
pub const STASIS_ROLE_ASSISTANT: u32 = 3;
pub const STASIS_ROLE_OTHER: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_data_entry {
    pub struct_size: u32,
    pub reserved: u32,
    pub bytes: u64,
    pub name: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_turn {
    pub struct_size: u32,
    pub role: u32,
    pub begin: u64,
    pub end: u64,
    pub content_begin: u64,
    pub content_end: u64,
    pub source: u32,
    pub reserved: u32,
}

extern "C" {
    pub fn stasis_session_set_data(
        session: *mut stasis_session,
        name: *const c_char,
        bytes: *const c_void,
        length: usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_get_data(
        session: *const stasis_session,
        name: *const c_char,
        bytes: *mut c_void,
        capacity: usize,
        length: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_get_data(
        snapshot: *const stasis_snapshot,
        name: *const c_char,
        bytes: *mut c_void,
        capacity: usize,
        length: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_list_data(
        session: *const stasis_session,
        entries: *mut stasis_data_entry,
        stride: usize,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_list_data(
        snapshot: *const stasis_snapshot,
        entries: *mut stasis_data_entry,
        stride: usize,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_turns(
        session: *const stasis_session,
        begin: u64,
        turns: *mut stasis_turn,
        stride: usize,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_snapshot_turns(
        snapshot: *const stasis_snapshot,
        begin: u64,
        turns: *mut stasis_turn,
        stride: usize,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
}
