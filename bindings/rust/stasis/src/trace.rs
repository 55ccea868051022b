//! Events of a session's keys and values, reported when they happen.
use crate::digest::Digest;
use crate::guard::Payload;
use crate::raw::sized;
use stasis_sys as sys;
use std::ops::Range;
use std::os::raw::c_void;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The kind of an event; see `stasis_trace.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceKind {
    /// Had already: when the trace begins, or again when an append is undone.
    Held,
    /// A page of its own: empty, or read by a load.
    Taken,
    /// A page that already holds what these tokens give.
    Shared,
    /// The session's own copy in the place of a page that others have as well.
    Copied,
    /// A page it had: all positions computed, digest available.
    Filled,
    /// It has the page no more.
    Released,
    /// A pass of the model is about to read pages.
    Read,
    /// Tokens are in the log now.
    Append,
    /// An append failed or was cancelled: the log is as it was.
    Undone,
    /// Positions are gone.
    Rewind,
    /// No later token sees the positions.
    Evict,
    /// A second session was made.
    Fork,
    /// A file or stream holds the state.
    Save,
    /// The session came from a file or stream.
    Load,
    /// A kind that this crate does not know.
    Other(u32),
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEvent {
    /// The kind of the event.
    pub kind: TraceKind,
    /// Number of the group of layers; none: an operation of the session as a whole.
    pub group: Option<u32>,
    /// Positions that a query of the group's layers sees; 0: all.
    pub window: u32,
    /// First position; of a page, of all that it can hold.
    pub begin: u64,
    /// The position after the last.
    pub end: u64,
    /// Bytes of the pages; of an operation, of its positions in all layers.
    pub bytes: u64,
    /// Digest of a full page, or of the state saved or loaded; else zero.
    pub digest: Digest,
}

impl TraceEvent {
    /// The positions.
    pub fn positions(&self) -> Range<u64> {
        self.begin..self.end
    }

    fn of(raw: &sys::stasis_trace_event) -> TraceEvent {
        TraceEvent {
            kind: match raw.kind {
                sys::STASIS_TRACE_HELD => TraceKind::Held,
                sys::STASIS_TRACE_TAKEN => TraceKind::Taken,
                sys::STASIS_TRACE_SHARED => TraceKind::Shared,
                sys::STASIS_TRACE_COPIED => TraceKind::Copied,
                sys::STASIS_TRACE_FILLED => TraceKind::Filled,
                sys::STASIS_TRACE_RELEASED => TraceKind::Released,
                sys::STASIS_TRACE_READ => TraceKind::Read,
                sys::STASIS_TRACE_APPEND => TraceKind::Append,
                sys::STASIS_TRACE_UNDONE => TraceKind::Undone,
                sys::STASIS_TRACE_REWIND => TraceKind::Rewind,
                sys::STASIS_TRACE_EVICT => TraceKind::Evict,
                sys::STASIS_TRACE_FORK => TraceKind::Fork,
                sys::STASIS_TRACE_SAVE => TraceKind::Save,
                sys::STASIS_TRACE_LOAD => TraceKind::Load,
                other => TraceKind::Other(other),
            },
            group: Some(raw.group).filter(|group| *group != sys::STASIS_TRACE_ALL_GROUPS),
            window: raw.window,
            begin: raw.begin,
            end: raw.end,
            bytes: raw.bytes,
            digest: Digest::of(raw.digest),
        }
    }
}

/// Gets each event.
pub type ListenerFn = Box<dyn FnMut(&TraceEvent) + Send>;

/// The receiver of events of a session's keys and values. It belongs to the session, which may move
/// between threads: so it borrows nothing that could be dropped before, and is `Send`.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/zoo/gemma3-text");
/// # let model = stasis::Model::open(path, Default::default())?;
/// # let mut session = stasis::Session::create(&model, Default::default())?;
/// let (to, events) = std::sync::mpsc::channel();
/// session.set_trace(Some(stasis::Trace::new(move |event| to.send(*event).unwrap_or_default())))?;
/// session.append(&[1, 2, 3], Default::default())?;
/// assert!(events.try_iter().any(|event| event.kind == stasis::TraceKind::Append));
/// # Ok::<(), stasis::Error>(())
/// ```
///
/// ```compile_fail,E0597
/// # let path = "a model";
/// # let model = stasis::Model::open(path, Default::default())?;
/// # let mut session = stasis::Session::create(&model, Default::default())?;
/// let told = std::sync::atomic::AtomicU64::new(0);
/// let told = &told; // goes before the session could
/// session.set_trace(Some(stasis::Trace::new(move |_| {
///     told.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
/// })))?;
/// # Ok::<(), stasis::Error>(())
/// ```
///
/// ```compile_fail,E0277
/// # let path = "a model";
/// # let model = stasis::Model::open(path, Default::default())?;
/// # let mut session = stasis::Session::create(&model, Default::default())?;
/// let told = std::rc::Rc::new(std::cell::Cell::new(0)); // of one thread
/// session.set_trace(Some(stasis::Trace::new(move |_| told.set(told.get() + 1))))?;
/// # Ok::<(), stasis::Error>(())
/// ```
pub struct Trace {
    /// Report reads too.
    pub reads: bool,
    /// Runs on the thread that called, inside the call; it cannot end the call. If it panics, the
    /// panic is resumed after the call, and the trace is not called any more.
    pub listener: ListenerFn,
}

impl Trace {
    /// Reports all events but reads.
    pub fn new(listener: impl FnMut(&TraceEvent) + Send + 'static) -> Trace {
        Trace { reads: false, listener: Box::new(listener) }
    }
}

/// A trace as C calls it. A session lets one call at a time report, so no thread ever waits for the
/// locks; they make that safe in Rust.
pub(crate) struct Listener {
    reads: bool,
    closure: Mutex<ListenerFn>,
    /// The thread that panicked (none: any may resume it), and its payload.
    panic: Mutex<Panic>,
}

enum Panic {
    None,
    Pending(Option<ThreadId>, Payload),
    Passed,
}

impl Listener {
    pub(crate) fn new(trace: Trace) -> Arc<Listener> {
        let closure = Mutex::new(trace.listener);
        Arc::new(Listener { reads: trace.reads, closure, panic: Mutex::new(Panic::None) })
    }

    /// Options for C, valid as long as the caller keeps it.
    pub(crate) fn raw(self: &Arc<Listener>) -> sys::stasis_trace_options {
        sys::stasis_trace_options {
            flags: if self.reads { sys::STASIS_TRACE_READS } else { 0 },
            callback: Some(hear),
            user: Arc::as_ptr(self) as *mut c_void,
            ..sized()
        }
    }

    /// Resumes a panic of this thread's call.
    pub(crate) fn resume(&self) {
        let mut panic = lock(&self.panic);
        match std::mem::replace(&mut *panic, Panic::Passed) {
            Panic::Pending(thread, payload)
                if thread.map_or(true, |thread| thread == thread::current().id()) =>
            {
                drop(panic);
                resume_unwind(payload);
            }
            other => *panic = other,
        }
    }

    /// Leaves a panic to the thread of the next call, whichever that is.
    pub(crate) fn leave(&self) {
        if let Panic::Pending(thread, _) = &mut *lock(&self.panic) {
            *thread = None;
        }
    }

    fn hear(&self, event: &TraceEvent) {
        if !matches!(*lock(&self.panic), Panic::None) {
            return;
        }
        let mut closure = lock(&self.closure);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| closure(event))) {
            *lock(&self.panic) = Panic::Pending(Some(thread::current().id()), payload);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn hear(user: *mut c_void, event: *const sys::stasis_trace_event) {
    (*user.cast::<Listener>()).hear(&TraceEvent::of(&*event));
}
