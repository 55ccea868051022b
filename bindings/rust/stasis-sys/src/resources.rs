//! `stasis_resources.h`.
use crate::stasis::*;
use std::os::raw::{c_char, c_void};

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_threads_options {
    pub struct_size: u32,
    pub count: u32,
    pub cpus: *const u32,
    pub cpu_count: usize,
    pub name: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_model_source {
    pub struct_size: u32,
    pub reserved: u32,
    pub size: Option<unsafe extern "C" fn(user: *mut c_void, name: *const c_char) -> i64>,
    pub read: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            name: *const c_char,
            offset: u64,
            data: *mut c_void,
            size_bytes: usize,
        ) -> i64,
    >,
    pub user: *mut c_void,
}

extern "C" {
    pub fn stasis_model_open_source(
        source: *const stasis_model_source,
        name: *const c_char,
        options: *const stasis_model_options,
        model: *mut *mut stasis_model,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_model_open_descriptor(
        descriptor: i32,
        options: *const stasis_model_options,
        model: *mut *mut stasis_model,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_threads_options_init(options: *mut stasis_threads_options, size: usize);
    pub fn stasis_threads_create(
        options: *const stasis_threads_options,
        threads: *mut *mut stasis_threads,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_threads_free(threads: *mut stasis_threads);
}
