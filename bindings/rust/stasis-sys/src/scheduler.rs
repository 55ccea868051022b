//! `stasis_scheduler.h`.
use crate::generate::*;
use crate::stasis::*;
use std::os::raw::{c_char, c_void};

pub const STASIS_FOREVER: u64 = u64::MAX;

#[repr(C)]
pub struct stasis_scheduler {
    _private: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_scheduler_options {
    pub struct_size: u32,
    pub sessions_max: u32,
    pub stall_ms: u32,
    pub slice: u32,
    pub events_max: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_prompt {
    pub struct_size: u32,
    pub reserved: u32,
    pub tokens: *const stasis_token,
    pub token_count: usize,
    pub role: *const c_char,
    pub text: *const c_char,
    pub length: usize,
    pub conversation: *const c_char,
    pub conversation_length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_scheduler_event {
    pub struct_size: u32,
    pub end: u32,
    pub session: *mut stasis_session,
    pub user: *mut c_void,
    pub pass: u64,
    pub position: u64,
    pub token: stasis_token,
    pub log_probability: f32,
    pub text: *const c_char,
    pub length: usize,
    pub best_tokens: *const stasis_token,
    pub best_log_probabilities: *const f32,
    pub log_probability_count: u32,
    pub stop_reason: u32,
    pub begin: u64,
    pub count: u64,
    pub status: stasis_status,
    pub reserved: u32,
    pub message: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_scheduler_stats {
    pub struct_size: u32,
    pub reserved: u32,
    pub sessions: u64,
    pub events: u64,
    pub passes: u64,
    pub tokens: u64,
    pub prompt_positions: u64,
    pub most_together: u64,
    pub slice: u64,
    pub pass_us_max: u64,
}

extern "C" {
    pub fn stasis_scheduler_options_init(options: *mut stasis_scheduler_options, size: usize);
    pub fn stasis_prompt_init(prompt: *mut stasis_prompt, size: usize);
    pub fn stasis_scheduler_create(
        model: *mut stasis_model,
        options: *const stasis_scheduler_options,
        scheduler: *mut *mut stasis_scheduler,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_scheduler_submit(
        scheduler: *mut stasis_scheduler,
        session: *mut stasis_session,
        options: *const stasis_generate_options,
        prompt: *const stasis_prompt,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_scheduler_next(
        scheduler: *mut stasis_scheduler,
        session: *const stasis_session,
        timeout_ms: u64,
        event: *mut *mut stasis_scheduler_event,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_scheduler_event_free(event: *mut stasis_scheduler_event);
    pub fn stasis_scheduler_cancel(
        scheduler: *mut stasis_scheduler,
        session: *const stasis_session,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_scheduler_get_stats(
        scheduler: *const stasis_scheduler,
        stats: *mut stasis_scheduler_stats,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_scheduler_stop(scheduler: *mut stasis_scheduler);
    pub fn stasis_scheduler_close(scheduler: *mut stasis_scheduler);
}
