//! The handle that cancels calls and reports their progress.
use crate::error::{check, Result};
use stasis_sys as sys;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

/// Cancels every call that it was given to, from any thread, and reports the progress of the last
/// one. Clones are the same handle.
///
/// ```
/// fn usable_from_any_thread<T: Clone + Send + Sync>() {}
/// usable_from_any_thread::<stasis::Cancel>();
/// ```
#[derive(Clone)]
pub struct Cancel(Arc<Handle>);

struct Handle(NonNull<sys::stasis_cancel>);

// SAFETY: "all but create may be called from any thread at any time".
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the only owner; running calls keep what they need.
        unsafe { sys::stasis_cancel_release(self.0.as_ptr()) }
    }
}

impl Cancel {
    /// A handle that nothing has been requested of.
    pub fn new() -> Result<Cancel> {
        let mut raw = ptr::null_mut();
        // SAFETY: the output is a place for a pointer.
        check(|error| unsafe { sys::stasis_cancel_create(&mut raw, error) })?;
        Ok(Cancel(Arc::new(Handle(NonNull::new(raw).expect("a handle that was made")))))
    }

    /// Ends calls that have the handle with [`Status::Cancelled`](crate::Status::Cancelled), those
    /// that come later too, until it is reset.
    pub fn request(&self) {
        // SAFETY: a living handle.
        unsafe { sys::stasis_cancel_request(self.raw()) }
    }

    /// Takes the request back.
    pub fn reset(&self) {
        // SAFETY: a living handle.
        unsafe { sys::stasis_cancel_reset(self.raw()) }
    }

    /// Done and total of the last call that was given the handle; 0 of 0 before its first report.
    pub fn progress(&self) -> (u64, u64) {
        let (mut done, mut total) = (0, 0);
        // SAFETY: a living handle, and two places for numbers.
        unsafe { sys::stasis_cancel_progress(self.raw(), &mut done, &mut total) }
        (done, total)
    }

    fn raw(&self) -> *mut sys::stasis_cancel {
        self.0 .0.as_ptr()
    }
}

/// Null for none.
pub(crate) fn raw_of(cancel: Option<&Cancel>) -> *mut sys::stasis_cancel {
    cancel.map_or(ptr::null_mut(), Cancel::raw)
}

/// At least a millisecond, for 0 is no limit; none for none.
pub(crate) fn raw_ms(timeout: Option<Duration>) -> u64 {
    timeout.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1))
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Cancel").field("progress", &self.progress()).finish()
    }
}
