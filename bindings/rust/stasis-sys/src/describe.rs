//! `stasis_describe.h`.
use crate::stasis::*;
use std::os::raw::c_char;

pub const STASIS_TOKEN_NORMAL: u32 = 1;
pub const STASIS_TOKEN_UNKNOWN: u32 = 2;
pub const STASIS_TOKEN_SPECIAL: u32 = 3;
pub const STASIS_TOKEN_UNUSED: u32 = 5;
pub const STASIS_TOKEN_BYTE: u32 = 6;

pub const STASIS_TOKEN_ENDS: u32 = 1;
pub const STASIS_TOKEN_SCORED: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_token_info {
    pub struct_size: u32,
    pub kind: u32,
    pub flags: u32,
    pub score: f32,
    pub piece: *const c_char,
    pub length: usize,
}

pub const STASIS_METADATA_TEXT: u32 = 1;
pub const STASIS_METADATA_JSON: u32 = 2;
pub const STASIS_METADATA_LEFT_OUT: u32 = 3;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_metadata {
    pub struct_size: u32,
    pub kind: u32,
    pub key: *const c_char,
    pub value: *const c_char,
    pub length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_session_memory {
    pub struct_size: u32,
    pub page_positions: u32,
    pub kv_bytes: u64,
    pub kv_most_bytes: u64,
    pub position_bytes: u64,
    pub global_position_bytes: u64,
    pub states: u64,
    pub state_bytes: u64,
    pub log_bytes: u64,
    pub tracking_bytes: u64,
    pub fixed_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_estimate {
    pub struct_size: u32,
    pub layers: u32,
    pub architecture: [c_char; 32],
    pub hidden: u32,
    pub vocabulary: u32,
    pub context: u64,
    pub parameters: u64,
    pub weight_bytes: u64,
    pub mtp_bytes: u64,
    pub file_bytes: u64,
    pub mapped_bytes: u64,
    pub allocated_bytes: u64,
    pub heap_bytes: u64,
    pub workspace_bytes: u64,
    pub weight_types: [c_char; 256],
}

extern "C" {
    pub fn stasis_build() -> *const c_char;
    pub fn stasis_model_get_token(
        model: *const stasis_model,
        token: stasis_token,
        info: *mut stasis_token_info,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_get_metadata(
        model: *const stasis_model,
        key: *const c_char,
        metadata: *mut stasis_metadata,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_get_metadata_at(
        model: *const stasis_model,
        index: usize,
        metadata: *mut stasis_metadata,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_session_memory(
        model: *const stasis_model,
        options: *const stasis_session_options,
        positions: u64,
        memory: *mut stasis_session_memory,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_estimate(
        path: *const c_char,
        options: *const stasis_model_options,
        session_options: *const stasis_session_options,
        positions: u64,
        estimate: *mut stasis_estimate,
        session: *mut stasis_session_memory,
        error: *mut stasis_error,
    ) -> stasis_status;
}
