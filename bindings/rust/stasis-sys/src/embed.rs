//! `stasis_embed.h`.
use crate::stasis::*;
use std::os::raw::{c_char, c_void};

pub const STASIS_POOLING_LAST: u32 = 1;
pub const STASIS_POOLING_MEAN: u32 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_embed_info {
    pub struct_size: u32,
    pub pooling: u32,
    pub dimension: u32,
    pub normalised: u32,
    pub tokens_max: u64,
    pub contract: u32,
    pub prompt_count: u32,
    pub prompt_names: *const *const c_char,
    pub prompts: *const *const c_char,
    pub default_prompt: *const c_char,
    pub refusal: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_embed_input {
    pub struct_size: u32,
    pub reserved: u32,
    pub text: *const c_char,
    pub length: usize,
    pub tokens: *const stasis_token,
    pub token_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_embed_options {
    pub struct_size: u32,
    pub pooling: u32,
    pub prompt: *const c_char,
    pub chunk: u32,
    pub reserved: u32,
    pub cancel: *mut stasis_cancel,
    pub progress: stasis_progress_fn,
    pub progress_user: *mut c_void,
    pub timeout_ms: u64,
}

extern "C" {
    pub fn stasis_embed_options_init(options: *mut stasis_embed_options, size: usize);
    pub fn stasis_model_get_embed_info(
        model: *const stasis_model,
        info: *mut stasis_embed_info,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_embed(
        model: *const stasis_model,
        inputs: *const stasis_embed_input,
        stride: usize,
        input_count: usize,
        options: *const stasis_embed_options,
        vectors: *mut f32,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
}
