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

extern "C" {
    pub fn stasis_build() -> *const c_char;
    pub fn stasis_model_get_token(
        model: *const stasis_model,
        token: stasis_token,
        info: *mut stasis_token_info,
        error: *mut stasis_error,
    ) -> stasis_status;
}
