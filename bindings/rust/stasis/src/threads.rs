//! Pools of threads that models share.
use crate::error::{check, Result};
use crate::raw::{c_text, pointer_to, sized};
use stasis_sys as sys;
use std::ptr::{self, NonNull};

/// How a pool is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadsOptions<'a> {
    /// That compute, the caller's included; 0: one for each of `cpus`, or else one per core.
    pub count: u32,
    /// CPUs on any of which the started threads run; none: those of the creator.
    pub cpus: &'a [u32],
    /// Of the started threads, followed by their number; 15 bytes at most together.
    pub name: Option<&'a str>,
}

/// Threads that any number of models compute with. The results are the same. Models keep the
/// threads that they were opened with, also after this is dropped.
///
/// ```
/// use stasis::{Model, ModelOptions, Threads, ThreadsOptions};
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/recall-gemma3");
/// let threads = Threads::create(ThreadsOptions { count: 2, ..Default::default() })?;
/// let shared = || ModelOptions { thread_pool: Some(&threads), ..Default::default() };
/// let first = Model::open(path, shared())?;
/// let second = Model::open(path, shared())?; // the process has one thread more, not two
/// # Ok::<(), stasis::Error>(())
/// ```
pub struct Threads(NonNull<sys::stasis_threads>);

// SAFETY: its functions are thread-safe.
unsafe impl Send for Threads {}
unsafe impl Sync for Threads {}

impl Threads {
    /// Starts the threads.
    pub fn create(options: ThreadsOptions<'_>) -> Result<Threads> {
        let name = options.name.map(|name| c_text(name, "name")).transpose()?;
        let raw_options = sys::stasis_threads_options {
            count: options.count,
            cpus: options.cpus.as_ptr(),
            cpu_count: options.cpus.len(),
            name: pointer_to(&name),
            ..sized()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: everything that is pointed to outlives the call.
        check(|error| unsafe { sys::stasis_threads_create(&raw_options, &mut raw, error) })?;
        Ok(Threads(NonNull::new(raw).expect("a pool that was made")))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // SAFETY: the only owner; models keep what they need.
        unsafe { sys::stasis_threads_free(self.0.as_ptr()) }
    }
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Threads")
    }
}

/// Null for none.
pub(crate) fn raw_of(threads: Option<&Threads>) -> *mut sys::stasis_threads {
    threads.map_or(ptr::null_mut(), |threads| threads.0.as_ptr())
}
