//! `stasis.h` without the headers that it includes.
use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_void};

pub type stasis_status = i32;
pub type stasis_token = u32;

macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _bytes: [u8; 0],
            _neither_moved_nor_shared: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )*};
}
opaque! {
    stasis_model stasis_session stasis_snapshot stasis_cancel stasis_generation stasis_text_stream
    stasis_threads
}

pub const STASIS_HEADER_VERSION: u32 = 0x00_0200;
pub const STASIS_OK: stasis_status = 0;
pub const STASIS_INVALID_ARGUMENT: stasis_status = 1;
pub const STASIS_NOT_FOUND: stasis_status = 2;
pub const STASIS_IO: stasis_status = 3;
pub const STASIS_NO_MEMORY: stasis_status = 4;
pub const STASIS_UNSUPPORTED: stasis_status = 5;
pub const STASIS_CORRUPT: stasis_status = 6;
pub const STASIS_VERSION: stasis_status = 7;
pub const STASIS_MODEL_MISMATCH: stasis_status = 8;
pub const STASIS_FULL: stasis_status = 9;
pub const STASIS_BUSY: stasis_status = 10;
pub const STASIS_CANCELLED: stasis_status = 11;
pub const STASIS_DIVERGED: stasis_status = 12;
pub const STASIS_DEVICE: stasis_status = 13;
pub const STASIS_STOPPED: stasis_status = 14;
pub const STASIS_INTERNAL: stasis_status = 15;
pub const STASIS_NONFINITE: stasis_status = 16;
pub const STASIS_POOL_EXHAUSTED: stasis_status = 17;
pub const STASIS_BUFFER_TOO_SMALL: stasis_status = 18;
pub const STASIS_CONFLICT: stasis_status = 19;
pub const STASIS_NO_TOKEN: stasis_status = 20;
pub const STASIS_TIMEOUT: stasis_status = 21;
pub const STASIS_MODEL_CONVERTED: u32 = 1;
pub const STASIS_MODEL_TOKENIZER: u32 = 2;
pub const STASIS_TOKENIZE_BOS: u32 = 1;
pub const STASIS_TOKENIZE_SPECIAL: u32 = 2;
pub const STASIS_DETOKENIZE_SPECIAL: u32 = 1;
pub const STASIS_DETOKENIZE_MIDDLE: u32 = 2;
pub const STASIS_DETOKENIZE_PIECE: u32 = 4;
pub const STASIS_RENDER_REPLY: u32 = 1;
pub const STASIS_WINDOW_RETAIN_NONE: u64 = u64::MAX;
pub const STASIS_TRACK_TOTAL: u32 = 1;
pub const STASIS_TRACK_BY_HEAD: u32 = 2;
pub const STASIS_DOMAIN_COMMON: u64 = 0;
pub const STASIS_DOMAIN_PRIVATE: u64 = u64::MAX;
pub const STASIS_SOURCE_PROMPT: u32 = 0;
pub const STASIS_SOURCE_TEMPLATE: u32 = 1;
pub const STASIS_SOURCE_TEXT: u32 = 2;
pub const STASIS_SOURCE_SAMPLED: u32 = 3;
pub const STASIS_MESSAGE_REPLY: u32 = 1;
pub const STASIS_REWIND_RECOMPUTE: u32 = 1;
pub const STASIS_ATTENTION_BY_HEAD: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_error {
    pub status: stasis_status,
    pub message: [c_char; 508],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_digest {
    pub bytes: [u8; 32],
}

pub type stasis_progress_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, done: u64, total: u64) -> i32>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_allocator {
    pub struct_size: u32,
    pub reserved: u32,
    pub user: *mut c_void,
    pub allocate: Option<
        unsafe extern "C" fn(user: *mut c_void, size: usize, alignment: usize) -> *mut c_void,
    >,
    pub deallocate: Option<
        unsafe extern "C" fn(user: *mut c_void, memory: *mut c_void, size: usize, alignment: usize),
    >,
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_model_options {
    pub struct_size: u32,
    pub threads: u32,
    pub device: *const c_char,
    pub kernels: *const c_char,
    pub kv_budget_bytes: u64,
    pub chat_template: *const c_char,
    pub allocator: *const stasis_allocator,
    pub cancel: *mut stasis_cancel,
    pub progress: stasis_progress_fn,
    pub progress_user: *mut c_void,
    pub profile: *const c_char,
    pub copy_weights: u32,
    pub verify_weights: u32,
    pub state_budget_bytes: u64,
    pub date: *const c_char,
    pub thread_pool: *mut stasis_threads,
    pub timeout_ms: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_model_info {
    pub struct_size: u32,
    pub flags: u32,
    pub architecture: [c_char; 32],
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub vocabulary: u32,
    pub context: u64,
    pub page_positions: u32,
    pub threads: u32,
    pub contract: [u32; 3],
    pub end_token_count: u32,
    pub end_tokens: *const stasis_token,
    pub layer_windows: *const u32,
    pub bos: i64,
    pub kernels: [c_char; 32],
    pub device: [c_char; 32],
    pub chat_template: [c_char; 32],
    pub model: stasis_digest,
    pub embeddings: stasis_digest,
    pub norms: stasis_digest,
    pub head: stasis_digest,
    pub tokenizer: stasis_digest,
    pub attention: *const stasis_digest,
    pub mlp: *const stasis_digest,
    pub weight_types: *const c_char,
    pub weight_bytes: u64,
    pub profile: [c_char; 192],
    pub layer_recurrent: *const u8,
    pub state_bytes: u64,
    pub experts: u32,
    pub experts_chosen: u32,
    pub contract_recurrent: u32,
    pub contract_experts: u32,
    pub ignored: *const c_char,
    pub mtp_bytes: u64,
    pub global_kv_heads: u32,
    pub global_head_dim: u32,
    pub layer_keys: *const u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_model_stats {
    pub struct_size: u32,
    pub reserved: u32,
    pub kv_budget_bytes: u64,
    pub kv_used_bytes: u64,
    pub kv_cached_bytes: u64,
    pub kv_shared_bytes: u64,
    pub scratch_bytes: u64,
    pub kv_known_bytes: u64,
    pub kv_free_bytes: u64,
    pub state_budget_bytes: u64,
    pub state_used_bytes: u64,
    pub state_cached_bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_message {
    pub struct_size: u32,
    pub reserved: u32,
    pub role: *const c_char,
    pub text: *const c_char,
    pub length: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_session_options {
    pub struct_size: u32,
    pub reserved: u32,
    pub capacity: u64,
    pub reserve: u64,
    pub window_retain: u64,
    pub track_attention: u32,
    pub reserved_1: u32,
    pub domain: u64,
}

pub type stasis_logits_fn = Option<
    unsafe extern "C" fn(user: *mut c_void, position: u64, logits: *const f32, count: usize) -> i32,
>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_run_options {
    pub struct_size: u32,
    pub chunk: u32,
    pub cancel: *mut stasis_cancel,
    pub progress: stasis_progress_fn,
    pub progress_user: *mut c_void,
    pub logits: stasis_logits_fn,
    pub logits_user: *mut c_void,
    pub timeout_ms: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_session_info {
    pub struct_size: u32,
    pub window: u32,
    pub position: u64,
    pub capacity: u64,
    pub rewind_floor: u64,
    pub window_retain: u64,
    pub window_begin: u64,
    pub pages_own: u64,
    pub pages_shared: u64,
    pub kv_bytes: u64,
    pub pending_bytes: u64,
    pub positions_evicted: u64,
    pub tokens_reused: u64,
    pub positions_foreign: u64,
    pub older: u32,
    pub reserved: u32,
    pub states: u64,
}

extern "C" {
    pub fn stasis_version() -> u32;
    pub fn stasis_status_name(status: stasis_status) -> *const c_char;
    pub fn stasis_cancel_create(
        cancel: *mut *mut stasis_cancel,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_cancel_request(cancel: *mut stasis_cancel);
    pub fn stasis_cancel_reset(cancel: *mut stasis_cancel);
    pub fn stasis_cancel_progress(cancel: *const stasis_cancel, done: *mut u64, total: *mut u64);
    pub fn stasis_cancel_release(cancel: *mut stasis_cancel);
    pub fn stasis_model_options_init(options: *mut stasis_model_options, size: usize);
    pub fn stasis_model_open(
        path: *const c_char,
        options: *const stasis_model_options,
        model: *mut *mut stasis_model,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_close(model: *mut stasis_model);
    pub fn stasis_model_get_info(
        model: *const stasis_model,
        info: *mut stasis_model_info,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_get_stats(
        model: *const stasis_model,
        stats: *mut stasis_model_stats,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_tokenize(
        model: *const stasis_model,
        text: *const c_char,
        length: usize,
        flags: u32,
        tokens: *mut stasis_token,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_detokenize(
        model: *const stasis_model,
        tokens: *const stasis_token,
        count: usize,
        flags: u32,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_render(
        model: *const stasis_model,
        messages: *const stasis_message,
        stride: usize,
        count: usize,
        flags: u32,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_options_init(options: *mut stasis_session_options, size: usize);
    pub fn stasis_run_options_init(options: *mut stasis_run_options, size: usize);
    pub fn stasis_session_create(
        model: *mut stasis_model,
        options: *const stasis_session_options,
        session: *mut *mut stasis_session,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_free(session: *mut stasis_session);
    pub fn stasis_session_append(
        session: *mut stasis_session,
        tokens: *const stasis_token,
        count: usize,
        options: *const stasis_run_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_append_message(
        session: *mut stasis_session,
        role: *const c_char,
        text: *const c_char,
        length: usize,
        flags: u32,
        options: *const stasis_run_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_fork(
        session: *const stasis_session,
        child: *mut *mut stasis_session,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_rewind(
        session: *mut stasis_session,
        position: u64,
        flags: u32,
        options: *const stasis_run_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_evict(
        session: *mut stasis_session,
        begin: u64,
        end: u64,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_kv(
        session: *const stasis_session,
        layer: u32,
        begin: u64,
        end: u64,
        keys: *mut u16,
        values: *mut u16,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_attention(
        session: *const stasis_session,
        flags: u32,
        weights: *mut f64,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_get_info(
        session: *const stasis_session,
        info: *mut stasis_session_info,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_tokens(
        session: *const stasis_session,
        begin: u64,
        tokens: *mut stasis_token,
        sources: *mut u8,
        capacity: usize,
        count: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_text(
        session: *const stasis_session,
        begin: u64,
        end: u64,
        text: *mut c_char,
        capacity: usize,
        length: *mut usize,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_session_digest(
        session: *const stasis_session,
        digest: *mut stasis_digest,
        error: *mut stasis_error,
    ) -> stasis_status;
}
