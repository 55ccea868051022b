//! `stasis_resources.h`.
use crate::stasis::*;
use std::os::raw::c_char;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stasis_threads_options {
    pub struct_size: u32,
    pub count: u32,
    pub cpus: *const u32,
    pub cpu_count: usize,
    pub name: *const c_char,
}

extern "C" {
    pub fn stasis_threads_options_init(options: *mut stasis_threads_options, size: usize);
    pub fn stasis_threads_create(
        options: *const stasis_threads_options,
        threads: *mut *mut stasis_threads,
        error: *mut stasis_error,
    ) -> stasis_status;
    pub fn stasis_threads_free(threads: *mut stasis_threads);
}
