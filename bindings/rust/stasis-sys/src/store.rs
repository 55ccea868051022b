//! `stasis_store.h`.
use crate::snapshot::*;
use crate::stasis::*;
use std::os::raw::{c_char, c_void};

#[repr(C)]
pub struct stasis_store {
    _private: [u8; 0],
}

pub const STASIS_STORE_EXISTING: u32 = 1;
pub const STASIS_STORE_OVERWRITE: u32 = 1;
pub const STASIS_STORE_FULL_LOGITS: u32 = 2;

pub type stasis_store_key_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        key: *const c_char,
        bytes: u64,
        age_seconds: u64,
    ) -> i32,
>;
pub type stasis_stored_session_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, session: *const stasis_stored_session) -> i32>;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_store_options {
    pub struct_size: u32,
    pub flags: u32,
    pub reserved: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_store_backend {
    pub struct_size: u32,
    pub reserved: u32,
    pub user: *mut c_void,
    pub size: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            key: *const c_char,
            size: *mut u64,
        ) -> stasis_status,
    >,
    pub read: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            key: *const c_char,
            offset: u64,
            data: *mut c_void,
            length: usize,
        ) -> stasis_status,
    >,
    pub put: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            key: *const c_char,
            data: *const c_void,
            length: usize,
        ) -> stasis_status,
    >,
    pub get_root: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            key: *const c_char,
            data: *mut c_void,
            capacity: usize,
            length: *mut usize,
            mark: *mut c_char,
        ) -> stasis_status,
    >,
    pub swap: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            key: *const c_char,
            mark: *const c_char,
            data: *const c_void,
            length: usize,
            new_mark: *mut c_char,
        ) -> stasis_status,
    >,
    pub list: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            prefix: *const c_char,
            visit: stasis_store_key_fn,
            visit_user: *mut c_void,
        ) -> stasis_status,
    >,
    pub remove:
        Option<unsafe extern "C" fn(user: *mut c_void, key: *const c_char) -> stasis_status>,
    pub lock: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            collect: i32,
            lock: *mut *mut c_void,
        ) -> stasis_status,
    >,
    pub unlock: Option<unsafe extern "C" fn(user: *mut c_void, lock: *mut c_void)>,
    pub release: Option<unsafe extern "C" fn(user: *mut c_void)>,
    pub replace: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            key: *const c_char,
            data: *const c_void,
            length: usize,
        ) -> stasis_status,
    >,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_store_call_options {
    pub struct_size: u32,
    pub flags: u32,
    pub cancel: *mut stasis_cancel,
    pub progress: stasis_progress_fn,
    pub progress_user: *mut c_void,
    pub codec: u32,
    pub keep: u32,
    pub timeout_ms: u64,
    pub grace_seconds: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_store_result {
    pub struct_size: u32,
    pub reserved: u32,
    pub root: stasis_digest,
    pub state: stasis_digest,
    pub sequence: u64,
    pub bytes_written: u64,
    pub bytes_shared: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_stored_session {
    pub struct_size: u32,
    pub reserved: u32,
    pub name: *const c_char,
    pub damage: *const c_char,
    pub root: stasis_digest,
    pub state: stasis_digest,
    pub model: stasis_digest,
    pub position: u64,
    pub bytes: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_store_collected {
    pub struct_size: u32,
    pub reserved: u32,
    pub sessions: u64,
    pub objects: u64,
    pub bytes: u64,
    pub removed_objects: u64,
    pub removed_bytes: u64,
}

extern "C" {
    pub fn stasis_store_options_init(options: *mut stasis_store_options, size: usize);
    pub fn stasis_store_open(
        uri: *const c_char,
        options: *const stasis_store_options,
        store: *mut *mut stasis_store,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_close(store: *mut stasis_store);
    pub fn stasis_store_open_backend(
        backend: *const stasis_store_backend,
        name: *const c_char,
        options: *const stasis_store_options,
        store: *mut *mut stasis_store,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_call_options_init(options: *mut stasis_store_call_options, size: usize);
    pub fn stasis_store_put(
        store: *mut stasis_store,
        session: *mut stasis_session,
        name: *const c_char,
        options: *const stasis_store_call_options,
        result: *mut stasis_store_result,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_get(
        store: *mut stasis_store,
        model: *mut stasis_model,
        name: *const c_char,
        options: *const stasis_load_options,
        session: *mut *mut stasis_session,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_snapshot(
        store: *mut stasis_store,
        name: *const c_char,
        options: *const stasis_store_call_options,
        snapshot: *mut *mut stasis_snapshot,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_list(
        store: *mut stasis_store,
        options: *const stasis_store_call_options,
        visit: stasis_stored_session_fn,
        visit_user: *mut c_void,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_remove(
        store: *mut stasis_store,
        name: *const c_char,
        options: *const stasis_store_call_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_fork(
        store: *mut stasis_store,
        from: *const c_char,
        to: *const c_char,
        options: *const stasis_store_call_options,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_collect(
        store: *mut stasis_store,
        options: *const stasis_store_call_options,
        collected: *mut stasis_store_collected,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_import(
        store: *mut stasis_store,
        path: *const c_char,
        name: *const c_char,
        options: *const stasis_store_call_options,
        result: *mut stasis_store_result,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_store_export(
        store: *mut stasis_store,
        name: *const c_char,
        path: *const c_char,
        options: *const stasis_store_call_options,
        error: *mut stasis_error,
    ) -> stasis_status;
}
