//! Sessions to files and streams and back.
use crate::error::{Error, Result};
use crate::guard::{progress, Guard, ProgressFn};
use crate::model::Model;
use crate::options::{LoadOptions, SaveOptions};
use crate::raw::{c_path, sized};
use crate::session::Session;
use crate::trace::Listener;
use stasis_sys as sys;
use std::io::{self, Read, Write};
use std::os::raw::c_void;
use std::path::Path;
use std::ptr;

/// A writer or reader for the length of a call, with the error that it failed with.
pub(crate) struct Stream<T> {
    pub(crate) end: T,
    failure: Option<io::Error>,
}

impl<T> Stream<T> {
    /// Keeps the error, and returns what tells C of it.
    pub(crate) fn fail(&mut self, error: io::Error, told: i64) -> i64 {
        self.failure = Some(error);
        told
    }
}

impl<T> Guard<Stream<T>> {
    pub(crate) fn over(end: T) -> Guard<Stream<T>> {
        Guard::new(Some(Stream { end, failure: None }))
    }

    /// Returns the result of the call: resumes a panic, and adds an error of the stream to the
    /// call's.
    pub(crate) fn finish<R>(mut self, result: Result<R>) -> Result<R> {
        self.resume();
        let failure = self.closure_mut().and_then(|stream| stream.failure.take());
        match (result, failure) {
            (Err(error), Some(failure)) => Err(error.with_io(failure)),
            (result, _) => result,
        }
    }
}

type To<'a> = &'a mut dyn Write;
type From<'a> = &'a mut dyn Read;

unsafe extern "C" fn write(user: *mut c_void, data: *const c_void, size: usize) -> i32 {
    let bytes = std::slice::from_raw_parts(data.cast::<u8>(), size);
    Guard::<Stream<To<'_>>>::run(user, 1, |stream| match stream.end.write_all(bytes) {
        Ok(()) => 0,
        Err(error) => {
            stream.failure = Some(error);
            1
        }
    })
}

unsafe extern "C" fn read(user: *mut c_void, data: *mut c_void, size: usize) -> i64 {
    // A reader may look at what it is given.
    ptr::write_bytes(data.cast::<u8>(), 0, size);
    let bytes = std::slice::from_raw_parts_mut(data.cast::<u8>(), size);
    Guard::<Stream<From<'_>>>::run(user, -1, |stream| loop {
        match stream.end.read(bytes) {
            Ok(count) => return count as i64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                stream.failure = Some(error);
                return -1;
            }
        }
    })
}

/// A reader as C sees it, for as long as the guard lives.
pub(crate) fn source(guard: &mut Guard<Stream<From<'_>>>) -> sys::stasis_source {
    sys::stasis_source { read: Some(read), user: guard.user(), ..sized() }
}

impl Session {
    /// Saves to a file, whole or not at all; to a snapshot that shares a beginning with the
    /// session, only the difference.
    pub fn save(&mut self, path: impl AsRef<Path>, options: SaveOptions<'_>) -> Result<()> {
        let path = c_path(path.as_ref())?;
        // SAFETY: a living session, a zero-terminated path.
        let result = options.call(|options, error| unsafe {
            sys::stasis_session_save(self.raw(), path.as_ptr(), options, error)
        });
        self.after(result)
    }

    /// Writes a whole snapshot and flushes. If the writer fails, its error comes back as itself
    /// ([`Error::io`]), and what was written is no snapshot.
    pub fn write(&mut self, mut to: impl Write, options: SaveOptions<'_>) -> Result<()> {
        let mut guard = Guard::<Stream<To<'_>>>::over(&mut to);
        let sink = sys::stasis_sink { write: Some(write), user: guard.user(), ..sized() };
        // SAFETY: a living session, a struct with its size.
        let result = options.call(|options, error| unsafe {
            sys::stasis_session_write(self.raw(), &sink, options, error)
        });
        guard.finish(self.after(result))?;
        loop {
            match to.flush() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                flushed => return flushed.map_err(Error::of_io),
            }
        }
    }

    /// Continues a file's session, with the same bits and settings.
    pub fn load(
        model: &Model,
        path: impl AsRef<Path>,
        options: LoadOptions<'_>,
    ) -> Result<Session> {
        let path = c_path(path.as_ref())?;
        load(model, options, |options, raw, error| {
            // SAFETY: a living model, a zero-terminated path, a place for a pointer.
            unsafe { sys::stasis_session_load(model.raw(), path.as_ptr(), options, raw, error) }
        })
    }

    /// Continues the session that a reader gives, up to the end of the snapshot and no further. If
    /// the reader fails, its error comes back as itself ([`Error::io`]).
    pub fn read(model: &Model, mut from: impl Read, options: LoadOptions<'_>) -> Result<Session> {
        let mut guard = Guard::<Stream<From<'_>>>::over(&mut from);
        let source = source(&mut guard);
        let result = load(model, options, |options, raw, error| {
            // SAFETY: a living model, a struct with its size, a place for a pointer.
            unsafe { sys::stasis_session_read(model.raw(), &source, options, raw, error) }
        });
        guard.finish(result)
    }
}

pub(crate) fn load(
    model: &Model,
    options: LoadOptions<'_>,
    call: impl FnOnce(
        *const sys::stasis_load_options,
        *mut *mut sys::stasis_session,
        *mut sys::stasis_error,
    ) -> i32,
) -> Result<Session> {
    let mut guard = Guard::<ProgressFn<'_>>::new(options.progress);
    let session = options.session.map(|session| session.raw());
    let listener = options.trace.map(Listener::new);
    let trace = listener.as_ref().map(Listener::raw);
    let raw_options = sys::stasis_load_options {
        flags: if options.no_recompute { sys::STASIS_LOAD_NO_RECOMPUTE } else { 0 }
            | if options.trusted { sys::STASIS_LOAD_TRUSTED } else { 0 }
            | if options.any_profile { sys::STASIS_LOAD_ANY_PROFILE } else { 0 }
            | if options.accept_older { sys::STASIS_LOAD_ACCEPT_OLDER } else { 0 }
            | if options.skip_known { sys::STASIS_LOAD_SKIP_KNOWN } else { 0 },
        session: session.as_ref().map_or(ptr::null(), |session| session as *const _),
        cancel: crate::cancel::raw_of(options.cancel),
        timeout_ms: crate::cancel::raw_ms(options.timeout),
        progress: guard.is_some().then_some(progress),
        progress_user: guard.user(),
        trace: trace.as_ref().map_or(ptr::null(), |trace| trace as *const _),
        ..sized()
    };
    let result = Session::made(model, listener, |raw, error| call(&raw_options, raw, error));
    guard.resume();
    let session = result?;
    session.resume_trace();
    Ok(session)
}
