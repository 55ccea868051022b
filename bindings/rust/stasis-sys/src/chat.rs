//! `stasis_chat.h`.
use crate::stasis::*;
use std::os::raw::c_char;

pub const STASIS_CHAT_REPLY: u32 = 1;
pub const STASIS_REPLY_COMPLETE: u32 = 1;

extern "C" {
    pub fn stasis_model_render_chat(
        model: *const stasis_model,
        conversation: *const c_char,
        size: usize,
        flags: u32,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_append_chat(
        session: *mut stasis_session,
        conversation: *const c_char,
        size: usize,
        flags: u32,
        position: *mut u64,
        options: *const stasis_run_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_chat_tokens(
        session: *const stasis_session,
        conversation: *const c_char,
        size: usize,
        flags: u32,
        position: *mut u64,
        tokens: *mut stasis_token,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_reply(
        session: *const stasis_session,
        conversation: *const c_char,
        size: usize,
        flags: u32,
        message: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
}
