//! Schedulers: many sessions that generate together.
use crate::error::{check, Error, Result};
use crate::generate::GenerateOptions;
use crate::model::Model;
use crate::raw::{c_text, sized};
use crate::scheduled::{Events, Place, Scheduled, ScheduledId, SchedulerEvent};
use crate::session::Session;
use crate::Token;
use stasis_sys as sys;
use std::collections::HashSet;
use std::ffi::CString;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a scheduler works. None of the options influences results.
#[derive(Clone, Copy, Debug, Default)]
pub struct SchedulerOptions {
    /// Sessions that draw a token in a pass, and prompts begun; 0: 64; at most 1024.
    pub sessions_max: u32,
    /// What prompts may add to a pass, in milliseconds; 0: 100.
    pub stall_ms: u32,
    /// Positions of prompts in a pass; 0: by `stall_ms` and the measured speed; at most 1024.
    pub slice: u32,
    /// Events of a session that wait; it goes on when one is fetched; 0: 16.
    pub events_max: u64,
}

/// What a session appends before it generates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prompt<'a> {
    /// It generates from where it is.
    #[default]
    Nothing,
    /// Tokens, as [`Session::append`].
    Tokens(&'a [Token]),
    /// A turn, as [`Session::append_message`] with [`Reply::Prompt`](crate::Reply::Prompt).
    Message {
        /// Who says it.
        role: &'a str,
        /// What is said.
        text: &'a str,
    },
    /// What the log lacks of a conversation in JSON, as [`Session::append_chat`] with
    /// [`Reply::Prompt`](crate::Reply::Prompt). If the log differs, or has more, the session is
    /// refused with [`Status::Conflict`](crate::Status::Conflict): rewound to the position of
    /// [`Session::chat_tokens`], it is taken.
    Conversation(&'a str),
}

/// Generates for many sessions of a model together: a token of each in a pass over the weights, and
/// prompts in slices beside them. Each session gets the bits that it gets alone. Threads that each
/// call [`Session::generate`] get the throughput of one; this is the way for many.
///
/// It has no thread of its own: whoever waits for an event computes. Any number of threads may,
/// each for its own session or all for any. Clones are the same scheduler; it stays open as long as
/// one of them or a [`Scheduled`] lives.
///
/// ```
/// use stasis::{GenerateOptions, Model, Prompt, Scheduler, Session};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/recall-gemma3");
/// let model = Model::open(path, Default::default())?;
/// let scheduler = Scheduler::create(&model, Default::default())?;
/// let options = GenerateOptions { tokens_max: 8, ..Default::default() };
/// let mut replies = std::collections::HashMap::new();
/// for text in ["What is m?", "Tell me about the sea."] {
///     let session = Session::create(&model, Default::default())?;
///     let prompt = Prompt::Message { role: "user", text };
///     let scheduled = scheduler.submit(session, options, prompt)?;
///     replies.insert(scheduled.id(), (scheduled, String::new()));
/// }
/// for event in scheduler.events() {
///     let event = event?;
///     let (_, text) = replies.get_mut(&event.id).unwrap();
///     *text += &event.generated.text;
///     if let Some(end) = event.end {
///         end.outcome?; // what ended this session alone
///     }
/// }
/// for (scheduled, text) in replies.into_values() {
///     let session = scheduled.into_session().unwrap(); // its end was fetched
///     println!("{text}, {} tokens in the log", session.info()?.position);
/// }
/// # Ok::<(), stasis::Error>(())
/// ```
///
/// ```
/// fn usable_from_any_thread<T: Clone + Send + Sync>() {}
/// usable_from_any_thread::<stasis::Scheduler>();
/// ```
#[derive(Clone)]
pub struct Scheduler(Arc<Handle>);

struct Handle {
    raw: NonNull<sys::stasis_scheduler>,
    /// Those whose end was not fetched. The lock is held through no call of the library.
    members: Mutex<HashSet<ScheduledId>>,
}

// SAFETY: "thread-safe".
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the only owner, so no call is running and none follows.
        unsafe { sys::stasis_scheduler_close(self.raw.as_ptr()) }
    }
}

/// What a scheduler has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerStats {
    /// Submitted, and their end not fetched.
    pub sessions: u64,
    /// That wait.
    pub events: u64,
    /// Since the scheduler was created, as all below.
    pub passes: u64,
    /// Drawn.
    pub tokens: u64,
    /// Positions of prompts, computed or taken from the prefix cache.
    pub prompt_positions: u64,
    /// The most sessions in a pass.
    pub most_together: u64,
    /// Positions that the next pass has for prompts.
    pub slice: u64,
    /// The longest pass.
    pub pass_max: Duration,
}

/// A session that was not submitted, which is as it was, and the error. As an [`Error`], which `?`
/// makes of it, it drops the session.
#[derive(Debug)]
pub struct Refused {
    /// As before.
    pub session: Session,
    /// Why it was refused.
    pub error: Error,
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(to)
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        refused.error
    }
}

impl Scheduler {
    /// A scheduler without sessions.
    pub fn create(model: &Model, options: SchedulerOptions) -> Result<Scheduler> {
        let options = sys::stasis_scheduler_options {
            sessions_max: options.sessions_max,
            stall_ms: options.stall_ms,
            slice: options.slice,
            events_max: options.events_max,
            ..sized()
        };
        let mut raw = ptr::null_mut();
        // SAFETY: a living model, a struct with its size, a place for a pointer.
        check(|error| unsafe {
            sys::stasis_scheduler_create(model.raw(), &options, &mut raw, error)
        })?;
        let raw = NonNull::new(raw).expect("a scheduler that was made");
        Ok(Scheduler(Arc::new(Handle { raw, members: Mutex::default() })))
    }

    /// Gives a session to the scheduler: it appends the prompt, and generates as
    /// [`Session::generate`] with these options. Computes nothing yet.
    pub fn submit(
        &self,
        session: Session,
        options: GenerateOptions<'_>,
        prompt: Prompt<'_>,
    ) -> std::result::Result<Scheduled, Refused> {
        let place = Place::new(self); // before the call: its end may come at once
        match self.submit_at(&place, &session, options, prompt) {
            Ok(()) => Ok(Scheduled::new(session, place)),
            Err(error) => Err(Refused { session, error }),
        }
    }

    fn submit_at(
        &self,
        place: &Place,
        session: &Session,
        options: GenerateOptions<'_>,
        prompt: Prompt<'_>,
    ) -> Result<()> {
        let options = options.to_raw()?;
        let given = sys::stasis_generate_options { callback_user: place.user(), ..*options.raw() };
        let mut first: sys::stasis_prompt = sized();
        let given_role: CString; // lives through the call
        match prompt {
            Prompt::Nothing => {}
            Prompt::Tokens(tokens) => {
                first.tokens = tokens.as_ptr();
                first.token_count = tokens.len();
            }
            Prompt::Message { role, text } => {
                given_role = c_text(role, "role")?;
                first.role = given_role.as_ptr();
                first.text = text.as_ptr().cast();
                first.length = text.len();
            }
            Prompt::Conversation(conversation) => {
                first.conversation = conversation.as_ptr().cast();
                first.conversation_length = conversation.len();
            }
        }
        let scheduler = self.raw();
        // SAFETY: a living scheduler and session, structs with their sizes, arrays with their
        // counts.
        check(|error| unsafe {
            sys::stasis_scheduler_submit(scheduler, session.raw(), &given, &first, error)
        })
    }

    /// Waits for an event of any session, taking turns, and computes meanwhile. None: no event came
    /// in that time, if there is a limit; a pass that has begun is finished before.
    ///
    /// An error is that of a whole pass (all sessions are as they were, and the next call tries
    /// again), or [`Status::Cancelled`](crate::Status::Cancelled): the scheduler was stopped. What
    /// ends one session alone is in its last event.
    pub fn next(&self, timeout: Option<Duration>) -> Result<Option<SchedulerEvent>> {
        self.next_of(ptr::null(), milliseconds(timeout))
    }

    /// Events of all sessions, until none is in the scheduler. Errors are those of
    /// [`Scheduler::next`]; the iterator ends after one, and a new one goes on.
    pub fn events(&self) -> Events<'_> {
        Events::new(self, None)
    }

    /// Reports at this moment.
    pub fn stats(&self) -> Result<SchedulerStats> {
        let mut raw: sys::stasis_scheduler_stats = sized();
        let scheduler = self.raw();
        // SAFETY: a living scheduler, a struct with its size.
        check(|error| unsafe { sys::stasis_scheduler_get_stats(scheduler, &mut raw, error) })?;
        Ok(SchedulerStats {
            sessions: raw.sessions,
            events: raw.events,
            passes: raw.passes,
            tokens: raw.tokens,
            prompt_positions: raw.prompt_positions,
            most_together: raw.most_together,
            slice: raw.slice,
            pass_max: Duration::from_micros(raw.pass_us_max),
        })
    }

    /// Ends all work for good: waits for the pass that runs, lets go of all sessions, as if they
    /// had been cancelled, and drops their events. Threads that wait, and later calls, get
    /// [`Status::Cancelled`](crate::Status::Cancelled).
    pub fn stop(&self) {
        // SAFETY: a living scheduler.
        unsafe { sys::stasis_scheduler_stop(self.raw()) }
        self.members().clear();
    }

    pub(crate) fn raw(&self) -> *mut sys::stasis_scheduler {
        self.0.raw.as_ptr()
    }

    pub(crate) fn members(&self) -> MutexGuard<'_, HashSet<ScheduledId>> {
        self.0.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an event of a session, or of any. None: the time is over.
    pub(crate) fn next_of(
        &self,
        session: *const sys::stasis_session,
        timeout_ms: u64,
    ) -> Result<Option<SchedulerEvent>> {
        let (scheduler, mut raw) = (self.raw(), ptr::null_mut());
        // SAFETY: a living scheduler, a session that the caller owns or none, a place for a
        // pointer.
        check(|error| unsafe {
            sys::stasis_scheduler_next(scheduler, session, timeout_ms, &mut raw, error)
        })?;
        // SAFETY: an event that is this call's, or none.
        let event = unsafe { raw.as_ref().map(|event| SchedulerEvent::of(event)) };
        // SAFETY: copied above; null is ignored.
        unsafe { sys::stasis_scheduler_event_free(raw) }
        if let Some(SchedulerEvent { id, end: Some(_), .. }) = event {
            self.members().remove(&id);
        }
        Ok(event)
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Scheduler").field("stats", &self.stats()).finish()
    }
}

/// The library waits without end for `u64::MAX`.
pub(crate) fn milliseconds(timeout: Option<Duration>) -> u64 {
    let longest = u128::from(sys::STASIS_FOREVER - 1);
    timeout.map_or(sys::STASIS_FOREVER, |limit| {
        // Rounded up: a wait that is not 0 computes.
        ((limit.as_nanos() + 999_999) / 1_000_000).min(longest) as u64
    })
}
