//! `stasis_generate.h`.
use crate::stasis::*;
use std::os::raw::{c_char, c_void};

pub const STASIS_GENERATE_IGNORE_END: u32 = 1;
pub const STASIS_STOP_LENGTH: u32 = 0;
pub const STASIS_STOP_END_TOKEN: u32 = 1;
pub const STASIS_STOP_STRING: u32 = 2;
pub const STASIS_STOP_CALLBACK: u32 = 3;
pub const STASIS_STOP_CANCELLED: u32 = 4;
pub const STASIS_STOP_NO_TOKEN: u32 = 5;
pub const STASIS_STOP_TIMEOUT: u32 = 6;
pub const STASIS_STEP_SAMPLE: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_sampling {
    pub struct_size: u32,
    pub top_k: u32,
    pub temperature: f32,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub frequency_penalty: f32,
    pub presence_penalty: f32,
    pub penalty_window: u32,
    pub bias_count: u32,
    pub bias_tokens: *const stasis_token,
    pub bias: *const f32,
    pub seed: u64,
    pub typical_p: f32,
    pub top_n_sigma: f32,
    pub xtc_probability: f32,
    pub xtc_threshold: f32,
    pub dry_multiplier: f32,
    pub dry_base: f32,
    pub dry_allowed_length: u32,
    pub dry_range: u32,
    pub min_keep: u32,
    pub dry_breaker_count: u32,
    pub dry_breakers: *const stasis_token,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_generated {
    pub struct_size: u32,
    pub token: stasis_token,
    pub position: u64,
    pub text: *const c_char,
    pub length: usize,
    pub last: u32,
    pub reserved: u32,
    pub log_probability: f32,
    pub log_probability_count: u32,
    pub best_tokens: *const stasis_token,
    pub best_log_probabilities: *const f32,
}

pub type stasis_generate_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, generated: *const stasis_generated) -> i32>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_generate_options {
    pub struct_size: u32,
    pub flags: u32,
    pub tokens_max: u64,
    pub stop_tokens: *const stasis_token,
    pub stop_token_count: usize,
    pub stop_strings: *const *const c_char,
    pub stop_string_count: usize,
    pub callback: stasis_generate_fn,
    pub callback_user: *mut c_void,
    pub cancel: *mut stasis_cancel,
    pub log_probability_count: u32,
    pub reserved: u32,
    pub timeout_ms: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_generate_result {
    pub struct_size: u32,
    pub stop_reason: u32,
    pub begin: u64,
    pub count: u64,
    pub drafted: u64,
    pub accepted: u64,
    pub passes: u64,
    pub draft_failures: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_text_piece {
    pub struct_size: u32,
    pub stopped: u32,
    pub stop_reason: u32,
    pub reserved: u32,
    pub text: *const c_char,
    pub length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_draft_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub tokens_min: u64,
    pub tokens_max: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_step_item {
    pub struct_size: u32,
    pub flags: u32,
    pub session: *mut stasis_session,
    pub begin: usize,
    pub count: usize,
    pub token: stasis_token,
    pub status: stasis_status,
    pub error: *mut stasis_error,
}

extern "C" {
    pub fn stasis_sampling_init(sampling: *mut stasis_sampling, size: usize);
    pub fn stasis_session_logits(
        session: *const stasis_session,
        logits: *mut f32,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_top(
        session: *const stasis_session,
        n: usize,
        tokens: *mut stasis_token,
        log_probabilities: *mut f32,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_score(
        session: *mut stasis_session,
        tokens: *const stasis_token,
        count: usize,
        log_probabilities: *mut f64,
        options: *const stasis_run_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_set_sampling(
        session: *mut stasis_session,
        sampling: *const stasis_sampling,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_recommended_sampling(
        model: *const stasis_model,
        sampling: *mut stasis_sampling,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_sample(
        session: *const stasis_session,
        token: *mut stasis_token,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_decode(
        session: *mut stasis_session,
        token: *mut stasis_token,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_generate_options_init(options: *mut stasis_generate_options, size: usize);
    pub fn stasis_session_generate(
        session: *mut stasis_session,
        options: *const stasis_generate_options,
        result: *mut stasis_generate_result,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_generation_begin(
        session: *mut stasis_session,
        options: *const stasis_generate_options,
        generation: *mut *mut stasis_generation,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_generation_next(
        generation: *mut stasis_generation,
        generated: *mut stasis_generated,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_generation_get_result(
        generation: *const stasis_generation,
        result: *mut stasis_generate_result,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_generation_end(generation: *mut stasis_generation);
    pub fn stasis_text_stream_create(
        model: *const stasis_model,
        options: *const stasis_generate_options,
        stream: *mut *mut stasis_text_stream,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_text_stream_push(
        stream: *mut stasis_text_stream,
        token: stasis_token,
        piece: *mut stasis_text_piece,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_text_stream_finish(
        stream: *mut stasis_text_stream,
        piece: *mut stasis_text_piece,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_text_stream_free(stream: *mut stasis_text_stream);
    pub fn stasis_draft_options_init(options: *mut stasis_draft_options, size: usize);
    pub fn stasis_session_set_draft(
        session: *mut stasis_session,
        draft: *mut stasis_model,
        options: *const stasis_draft_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_sessions_step(
        items: *mut stasis_step_item,
        stride: usize,
        item_count: usize,
        tokens: *const stasis_token,
        token_count: usize,
        options: *const stasis_run_options,
        error: *mut stasis_error,
    ) -> stasis_status;
}
