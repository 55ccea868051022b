//! `stasis_constraint.h`.
use crate::stasis::*;
use std::os::raw::c_char;

pub const STASIS_CONSTRAINT_NONE: u32 = 0;
pub const STASIS_CONSTRAINT_JSON_SCHEMA: u32 = 1;
pub const STASIS_CONSTRAINT_JSON: u32 = 2;
pub const STASIS_CONSTRAINT_REGEX: u32 = 3;
pub const STASIS_CONSTRAINT_GRAMMAR: u32 = 4;

extern "C" {
    pub fn stasis_session_set_constraint(
        session: *mut stasis_session,
        kind: u32,
        text: *const c_char,
        length: usize,
        cancel: *mut stasis_cancel,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_set_allowed(
        session: *mut stasis_session,
        bits: *const u32,
        count: usize,
        error: *mut stasis_error,
    ) -> stasis_status;
}
