//! Closures that C calls. A panic must not cross C: it is caught where C calls the closure, and
//! resumed after the interrupted call has returned.
use std::any::Any;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

pub(crate) type Payload = Box<dyn Any + Send>;

/// Stops the call that a closure interrupts.
pub(crate) const STOP: i32 = 1;

/// A closure, or none, for the length of a call.
pub(crate) struct Guard<F> {
    closure: Option<F>,
    panic: Option<Payload>,
}

impl<F> Guard<F> {
    pub(crate) fn new(closure: Option<F>) -> Guard<F> {
        Guard { closure, panic: None }
    }

    pub(crate) fn is_some(&self) -> bool {
        self.closure.is_some()
    }

    /// Itself, as the `user` that C hands back.
    pub(crate) fn user(&mut self) -> *mut c_void {
        (self as *mut Guard<F>).cast()
    }

    pub(crate) fn closure_mut(&mut self) -> Option<&mut F> {
        self.closure.as_mut()
    }

    /// Runs the closure through `body`; `otherwise` if it panics, or has panicked before.
    ///
    /// # Safety
    /// `user` must come from `user` of a guard of this type that still lives and that nothing else
    /// uses meanwhile.
    pub(crate) unsafe fn run<R>(
        user: *mut c_void,
        otherwise: R,
        body: impl FnOnce(&mut F) -> R,
    ) -> R {
        let guard = &mut *user.cast::<Guard<F>>();
        match (&mut guard.closure, &guard.panic) {
            (Some(closure), None) => match catch_unwind(AssertUnwindSafe(move || body(closure))) {
                Ok(result) => result,
                Err(payload) => {
                    guard.panic = Some(payload);
                    otherwise
                }
            },
            _ => otherwise,
        }
    }

    /// Resumes a panic that was caught.
    pub(crate) fn resume(&mut self) {
        if let Some(payload) = self.panic.take() {
            resume_unwind(payload);
        }
    }
}

/// The answer of a closure as C wants it.
pub(crate) fn answer(flow: ControlFlow<()>) -> i32 {
    match flow {
        ControlFlow::Continue(()) => 0,
        ControlFlow::Break(()) => STOP,
    }
}

/// Gets what is done and the total, now and then; a break ends the call with
/// [`Status::Stopped`](crate::Status::Stopped).
pub type ProgressFn<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

pub(crate) unsafe extern "C" fn progress(user: *mut c_void, done: u64, total: u64) -> i32 {
    Guard::<ProgressFn<'_>>::run(user, STOP, |closure| answer(closure(done, total)))
}
