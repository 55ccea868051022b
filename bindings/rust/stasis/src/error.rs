//! The error of a failed call: the library's status and message, and what Rust adds.
use crate::digest::Digest;
use crate::raw::{text_in, text_of};
use crate::verify::VerifyReport;
use stasis_sys as sys;
use std::fmt;
use std::io;

/// The kind of a failure; the header's statuses, whose numbers never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// An argument is out of its domain; the message names it.
    InvalidArgument,
    /// No such file, position or state.
    NotFound,
    /// The operating system failed a file operation, or a reader or writer failed.
    Io,
    /// An allocation failed.
    NoMemory,
    /// Valid, but not something this build or model can do.
    Unsupported,
    /// A file's bytes contradict themselves.
    Corrupt,
    /// A format or contract version this build cannot honour.
    Version,
    /// Snapshot and model differ; the message names the element.
    ModelMismatch,
    /// The session's capacity or the model's maximum position.
    Full,
    /// Another call is running on the object.
    Busy,
    /// [`Cancel::request`](crate::Cancel::request).
    Cancelled,
    /// Recomputation did not reproduce the stored bits.
    Diverged,
    /// The device or its driver is missing or failed.
    Device,
    /// A closure asked to stop.
    Stopped,
    /// A defect of the library.
    Internal,
    /// A NaN or infinity appeared; layer and position are named.
    Nonfinite,
    /// The KV budget is used up now; dropping sessions helps.
    PoolExhausted,
    /// The library asked for another buffer than it had asked for before.
    BufferTooSmall,
    /// Another process has saved to the file, or put to the name in a store, meanwhile.
    Conflict,
    /// A constraint leaves no token to draw.
    NoToken,
    /// The `timeout` of the options has passed.
    Timeout,
    /// A status that this crate does not know.
    Other(i32),
}

const KNOWN: [(sys::stasis_status, Status); 21] = [
    (sys::STASIS_INVALID_ARGUMENT, Status::InvalidArgument),
    (sys::STASIS_NOT_FOUND, Status::NotFound),
    (sys::STASIS_IO, Status::Io),
    (sys::STASIS_NO_MEMORY, Status::NoMemory),
    (sys::STASIS_UNSUPPORTED, Status::Unsupported),
    (sys::STASIS_CORRUPT, Status::Corrupt),
    (sys::STASIS_VERSION, Status::Version),
    (sys::STASIS_MODEL_MISMATCH, Status::ModelMismatch),
    (sys::STASIS_FULL, Status::Full),
    (sys::STASIS_BUSY, Status::Busy),
    (sys::STASIS_CANCELLED, Status::Cancelled),
    (sys::STASIS_DIVERGED, Status::Diverged),
    (sys::STASIS_DEVICE, Status::Device),
    (sys::STASIS_STOPPED, Status::Stopped),
    (sys::STASIS_INTERNAL, Status::Internal),
    (sys::STASIS_NONFINITE, Status::Nonfinite),
    (sys::STASIS_POOL_EXHAUSTED, Status::PoolExhausted),
    (sys::STASIS_BUFFER_TOO_SMALL, Status::BufferTooSmall),
    (sys::STASIS_CONFLICT, Status::Conflict),
    (sys::STASIS_NO_TOKEN, Status::NoToken),
    (sys::STASIS_TIMEOUT, Status::Timeout),
];

impl Status {
    /// The number in the header.
    pub fn code(self) -> i32 {
        match self {
            Status::Other(code) => code,
            known => KNOWN.iter().find(|(_, status)| *status == known).map_or(0, |(code, _)| *code),
        }
    }

    fn of(code: sys::stasis_status) -> Status {
        KNOWN.iter().find(|(known, _)| *known == code).map_or(Status::Other(code), |(_, it)| *it)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: returns a static, zero-terminated text for any number.
        to.write_str(&unsafe { text_of(sys::stasis_status_name(self.code())) })
    }
}

/// Why a call failed. Every object is as it was before.
#[derive(Debug)]
pub struct Error {
    status: Status,
    message: String,
    detail: Detail,
}

#[derive(Debug)]
enum Detail {
    None,
    Io(io::Error),
    Verify(Box<VerifyReport>),
    Stored(Box<Stored>),
}

/// What a store holds in place of what was expected.
#[derive(Debug)]
struct Stored {
    root: Digest,
    state: Digest,
}

/// The result of calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kind of the failure.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The message: what was expected, what was found, and where.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error of the reader, writer or [`Backend`](crate::Backend) of the call, if that failed
    /// it.
    pub fn io(&self) -> Option<&io::Error> {
        match &self.detail {
            Detail::Io(error) => Some(error),
            _ => None,
        }
    }

    /// The place at which a verification found other bits than stored, with [`Status::Diverged`].
    pub fn divergence(&self) -> Option<&VerifyReport> {
        match &self.detail {
            Detail::Verify(report) => Some(report),
            _ => None,
        }
    }

    /// The root digest of what is stored instead, with [`Status::Conflict`] of a
    /// [`Store`](crate::Store); none: nothing is.
    pub fn root(&self) -> Option<Digest> {
        match &self.detail {
            Detail::Stored(stored) => Some(stored.root),
            _ => None,
        }
    }

    /// The digest of the session that is stored instead, beside [`root`](Error::root): that of the
    /// session to be put, if it was put before and the answer was lost.
    pub fn state(&self) -> Option<Digest> {
        match &self.detail {
            Detail::Stored(stored) => Some(stored.state),
            _ => None,
        }
    }

    pub(crate) fn told(raw: &sys::stasis_error) -> Error {
        let message = text_in(&raw.message);
        Error { status: Status::of(raw.status), message, detail: Detail::None }
    }

    pub(crate) fn invalid(message: String) -> Error {
        Error { status: Status::InvalidArgument, message, detail: Detail::None }
    }

    pub(crate) fn of_io(error: io::Error) -> Error {
        Error { status: Status::Io, message: error.to_string(), detail: Detail::Io(error) }
    }

    pub(crate) fn with_io(self, error: io::Error) -> Error {
        Error { detail: Detail::Io(error), ..self }
    }

    pub(crate) fn with_stored(self, root: Digest, state: Digest) -> Error {
        Error { detail: Detail::Stored(Box::new(Stored { root, state })), ..self }
    }

    pub(crate) fn with_report(self, report: VerifyReport) -> Error {
        Error { detail: Detail::Verify(Box::new(report)), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.status, self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.io().map(|error| error as _)
    }
}

/// The reader's or writer's own error, if it was one; else one that holds this error.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error.detail {
            Detail::Io(own) => own,
            _ => io::Error::new(kind(error.status), error),
        }
    }
}

/// Never `Interrupted`, cancelled or not: callers of readers and writers take that for "again".
fn kind(status: Status) -> io::ErrorKind {
    match status {
        Status::NotFound => io::ErrorKind::NotFound,
        Status::InvalidArgument => io::ErrorKind::InvalidInput,
        Status::Timeout => io::ErrorKind::TimedOut,
        Status::Corrupt | Status::Version | Status::ModelMismatch => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    }
}

/// A status that came with its message.
pub(crate) fn said(status: sys::stasis_status, message: String) -> Result<()> {
    if status == sys::STASIS_OK {
        return Ok(());
    }
    Err(Error { status: Status::of(status), message, detail: Detail::None })
}

/// Makes one call; `call` gets the place for its error.
pub(crate) fn check(call: impl FnOnce(*mut sys::stasis_error) -> sys::stasis_status) -> Result<()> {
    let mut error = sys::stasis_error { status: sys::STASIS_OK, message: [0; 508] };
    let status = call(&mut error);
    if status == sys::STASIS_OK {
        return Ok(());
    }
    error.status = status;
    Err(Error::told(&error))
}
