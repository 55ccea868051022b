//! Options of sessions, of calls that compute, and of saving and loading.
use crate::cancel::{raw_ms, raw_of, Cancel};
use crate::error::{check, Result};
use crate::guard::{answer, progress, Guard, ProgressFn, STOP};
use crate::raw::sized;
use crate::trace::Trace;
use stasis_sys as sys;
use std::ops::ControlFlow;
use std::os::raw::c_void;
use std::time::Duration;

/// [`SessionOptions::window_retain`]: local layers keep nothing beyond their window.
pub const RETAIN_NONE: u64 = sys::STASIS_WINDOW_RETAIN_NONE;

/// With whom a session shares pages that hold the same tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Domain {
    /// All sessions of the common domain.
    #[default]
    Common,
    /// Sessions of the same number, from 1 to `u64::MAX - 1`.
    Number(u64),
    /// Only its forks.
    Private,
}

/// How attention is tracked, for [`Session::attention`](crate::Session::attention).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Track {
    /// Nothing, at no cost.
    #[default]
    Off,
    /// All layers and query heads together.
    Total,
    /// Each layer and query head; takes as many times the memory.
    ByHead,
}

/// Settings of a session, fixed when it is created.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionOptions {
    /// Positions it may reach; 0: the model's context, which is the most.
    pub capacity: u64,
    /// Positions whose memory is taken at once; 0: as they come.
    pub reserve: u64,
    /// Positions that local layers keep beyond their window, so that rewind reaches back; 0: one
    /// window; [`RETAIN_NONE`]: none.
    pub window_retain: u64,
    /// How attention is tracked.
    pub track_attention: Track,
    /// With whom it shares pages.
    pub domain: Domain,
}

impl SessionOptions {
    pub(crate) fn raw(&self) -> sys::stasis_session_options {
        sys::stasis_session_options {
            capacity: self.capacity,
            reserve: self.reserve,
            window_retain: self.window_retain,
            track_attention: match self.track_attention {
                Track::Off => 0,
                Track::Total => sys::STASIS_TRACK_TOTAL,
                Track::ByHead => sys::STASIS_TRACK_BY_HEAD,
            },
            domain: match self.domain {
                Domain::Common => sys::STASIS_DOMAIN_COMMON,
                Domain::Number(number) => number,
                Domain::Private => sys::STASIS_DOMAIN_PRIVATE,
            },
            ..sized()
        }
    }
}

/// Gets a position and its logits; a break ends the call with
/// [`Status::Stopped`](crate::Status::Stopped).
pub type LogitsFn<'a> = &'a mut dyn FnMut(u64, &[f32]) -> ControlFlow<()>;

/// How a call computes. None of the options influences results.
#[derive(Default)]
pub struct RunOptions<'a> {
    /// Positions computed together; 0: chosen.
    pub chunk: u32,
    /// Ends the call with [`Status::Cancelled`](crate::Status::Cancelled).
    pub cancel: Option<&'a Cancel>,
    /// Ends the call after this time with [`Status::Timeout`](crate::Status::Timeout).
    pub timeout: Option<Duration>,
    /// Gets done and total positions now and then; a break ends the call with
    /// [`Status::Stopped`](crate::Status::Stopped).
    pub progress: Option<ProgressFn<'a>>,
    /// Gets each appended position with its logits, in rising order; a break stops.
    pub logits: Option<LogitsFn<'a>>,
}

unsafe extern "C" fn logits(
    user: *mut c_void,
    position: u64,
    logits: *const f32,
    count: usize,
) -> i32 {
    let row = std::slice::from_raw_parts(logits, count);
    Guard::<LogitsFn<'_>>::run(user, STOP, |closure| answer(closure(position, row)))
}

impl RunOptions<'_> {
    /// Makes a call with these options, and resumes the panic of a closure.
    pub(crate) fn call(
        self,
        call: impl FnOnce(*const sys::stasis_run_options, *mut sys::stasis_error) -> i32,
    ) -> Result<()> {
        let mut progress_guard = Guard::<ProgressFn<'_>>::new(self.progress);
        let mut logits_guard = Guard::<LogitsFn<'_>>::new(self.logits);
        let raw = sys::stasis_run_options {
            chunk: self.chunk,
            cancel: raw_of(self.cancel),
            timeout_ms: raw_ms(self.timeout),
            progress: progress_guard.is_some().then_some(progress),
            progress_user: progress_guard.user(),
            logits: logits_guard.is_some().then_some(logits),
            logits_user: logits_guard.user(),
            ..sized()
        };
        let result = check(|error| call(&raw, error));
        progress_guard.resume();
        logits_guard.resume();
        result
    }
}

/// How keys and values are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// Raw; for [`compact`](crate::compact) compressed if any of the file is.
    #[default]
    Default,
    /// As they are: saved and loaded fastest.
    Raw,
    /// Compressed; loads to the same bits.
    Zstd,
}

impl Codec {
    pub(crate) fn raw(self) -> u32 {
        match self {
            Codec::Default => sys::STASIS_CODEC_DEFAULT,
            Codec::Raw => sys::STASIS_CODEC_RAW,
            Codec::Zstd => sys::STASIS_CODEC_ZSTD,
        }
    }
}

/// Which keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// All that the session still has.
    #[default]
    Full,
    /// None: some 14 bytes a token, and loading computes them again.
    None,
}

impl Keep {
    pub(crate) fn raw(self) -> u32 {
        match self {
            Keep::Full => sys::STASIS_KEEP_FULL,
            Keep::None => sys::STASIS_KEEP_NONE,
        }
    }
}

/// How a session is saved.
#[derive(Default)]
pub struct SaveOptions<'a> {
    /// Put the snapshot in the place of any file, whatever it holds.
    pub replace: bool,
    /// An existing file must hold the state that this session loaded or saved last;
    /// [`Status::Conflict`](crate::Status::Conflict) if not.
    pub if_match: bool,
    /// Keep the whole row of logits beside the hidden state.
    pub full_logits: bool,
    /// Codec of what this call writes.
    pub codec: Codec,
    /// The part of the whole session's keys and values that is kept.
    pub keep: Keep,
    /// Ends the call.
    pub cancel: Option<&'a Cancel>,
    /// Ends the call after this time with [`Status::Timeout`](crate::Status::Timeout).
    pub timeout: Option<Duration>,
    /// Gets done and total bytes of keys and values that are new to the file; a break stops.
    pub progress: Option<ProgressFn<'a>>,
}

impl SaveOptions<'_> {
    pub(crate) fn call(
        self,
        call: impl FnOnce(*const sys::stasis_save_options, *mut sys::stasis_error) -> i32,
    ) -> Result<()> {
        let mut guard = Guard::<ProgressFn<'_>>::new(self.progress);
        let raw = sys::stasis_save_options {
            flags: if self.replace { sys::STASIS_SAVE_REPLACE } else { 0 }
                | if self.if_match { sys::STASIS_SAVE_IF_MATCH } else { 0 }
                | if self.full_logits { sys::STASIS_SAVE_FULL_LOGITS } else { 0 },
            codec: self.codec.raw(),
            keep: self.keep.raw(),
            cancel: raw_of(self.cancel),
            timeout_ms: raw_ms(self.timeout),
            progress: guard.is_some().then_some(progress),
            progress_user: guard.user(),
            ..sized()
        };
        let result = check(|error| call(&raw, error));
        guard.resume();
        result
    }
}

/// How a session is loaded.
#[derive(Default)]
pub struct LoadOptions<'a> {
    /// Refuse a file without keys and values.
    pub no_recompute: bool,
    /// The caller vouches that the file's keys and values are those its tokens give: sessions that
    /// append the same tokens may take its pages.
    pub trusted: bool,
    /// Also what a model of another profile computed, which only such a model computes again: see
    /// [`SessionInfo::positions_foreign`](crate::SessionInfo::positions_foreign).
    pub any_profile: bool,
    /// Also the state before the last commit, where the root of the last one is damaged.
    pub accept_older: bool,
    /// Pages that are in memory under the digests that the file names are not read.
    pub skip_known: bool,
    /// None: all but the reserve as saved.
    pub session: Option<SessionOptions>,
    /// Ends the call.
    pub cancel: Option<&'a Cancel>,
    /// Ends the call after this time with [`Status::Timeout`](crate::Status::Timeout).
    pub timeout: Option<Duration>,
    /// Gets done and total bytes of keys and values, or positions where it recomputes; a break
    /// stops.
    pub progress: Option<ProgressFn<'a>>,
    /// Called with the new session's pages, and with every later event.
    pub trace: Option<Trace>,
}
