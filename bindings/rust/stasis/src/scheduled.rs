//! Sessions that a scheduler has, and their events.
use crate::error::{check, said, Result, Status};
use crate::generate::{Generated, Stop};
use crate::raw::{sized, text_of};
use crate::scheduler::{milliseconds, Scheduler};
use crate::session::Session;
use stasis_sys as sys;
use std::iter::FusedIterator;
use std::os::raw::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// One submit of one session, different from all others of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScheduledId(usize);

impl ScheduledId {
    fn new() -> ScheduledId {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        ScheduledId(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A token of a session, or its end.
#[derive(Debug)]
#[non_exhaustive]
pub struct SchedulerEvent {
    /// Whose it is.
    pub id: ScheduledId,
    /// The token. With `end` the last one again (0: there was none), beside text that was held
    /// back.
    pub generated: Generated,
    /// The scheduler's pass that made it, counted from 1.
    pub pass: u64,
    /// With the session's last event.
    pub end: Option<SchedulerEnd>,
}

/// How a session ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct SchedulerEnd {
    /// Why; [`Stop::Callback`] where an error ended it.
    pub stop: Stop,
    /// Position of the first new token.
    pub begin: u64,
    /// New tokens.
    pub count: u64,
    /// What ended this session alone, [`Status::Cancelled`] too. Without a new token the prompt is
    /// not in the log either, unless the log shows it.
    pub outcome: Result<()>,
}

impl SchedulerEvent {
    /// # Safety
    /// The event's pointers must be valid.
    pub(crate) unsafe fn of(raw: &sys::stasis_scheduler_event) -> SchedulerEvent {
        let generated = sys::stasis_generated {
            token: raw.token,
            position: raw.position,
            text: raw.text,
            length: raw.length,
            last: raw.end,
            log_probability: raw.log_probability,
            best_tokens: raw.best_tokens,
            best_log_probabilities: raw.best_log_probabilities,
            log_probability_count: raw.log_probability_count,
            ..sized()
        };
        let end = (raw.end != 0).then(|| SchedulerEnd {
            stop: Stop::of(raw.stop_reason),
            begin: raw.begin,
            count: raw.count,
            outcome: said(raw.status, text_of(raw.message)),
        });
        SchedulerEvent {
            id: ScheduledId(raw.user as usize),
            generated: Generated::of(&generated),
            pass: raw.pass,
            end,
        }
    }
}

/// A session that a scheduler has. It can be read; what would change it needs it back, see
/// [`Scheduled::into_session`]. Dropped, it drops the session, which waits for the pass in which
/// that is, and leaves the scheduler with its events.
///
/// ```compile_fail,E0596
/// fn grow(scheduled: &mut stasis::Scheduled) -> stasis::Result<()> {
///     scheduled.session().append(&[1, 2, 3], Default::default())
/// }
/// ```
///
/// ```
/// fn look(scheduled: &mut stasis::Scheduled) -> stasis::Result<Vec<stasis::Token>> {
///     scheduled.session().tokens(0)
/// }
/// ```
#[derive(Debug)]
pub struct Scheduled {
    session: Session,
    place: Place, // after the session, whose last event may come until that is dropped
}

/// A place among a scheduler's members.
#[derive(Debug)]
pub(crate) struct Place {
    id: ScheduledId,
    scheduler: Scheduler,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.scheduler.members().remove(&self.id);
    }
}

impl Place {
    pub(crate) fn new(scheduler: &Scheduler) -> Place {
        let id = ScheduledId::new();
        scheduler.members().insert(id);
        Place { id, scheduler: scheduler.clone() }
    }

    /// As the `user` that comes with each event.
    pub(crate) fn user(&self) -> *mut c_void {
        self.id.0 as *mut c_void
    }
}

impl Scheduled {
    pub(crate) fn new(session: Session, place: Place) -> Scheduled {
        Scheduled { session, place }
    }

    /// That its events have.
    pub fn id(&self) -> ScheduledId {
        self.place.id
    }

    /// The session, to be read: calls wait for the pass in which it takes part, and are answered
    /// for the last token that has an event, or for the position before its prompt while that is
    /// being computed.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Waits for an event of this session, as [`Scheduler::next`]. [`Status::NotFound`]: its end
    /// was fetched.
    pub fn next(&self, timeout: Option<Duration>) -> Result<Option<SchedulerEvent>> {
        let Place { id, scheduler } = &self.place;
        let next = scheduler.next_of(self.session.raw(), milliseconds(timeout));
        if matches!(&next, Err(error) if error.status() == Status::NotFound) {
            scheduler.members().remove(id); // the thread that fetched it may not be so far
        }
        next
    }

    /// Events of this session, until its end was fetched, here or elsewhere.
    pub fn events(&self) -> Events<'_> {
        Events::new(&self.place.scheduler, Some(self))
    }

    /// Ends it: the outcome of its last event, after those that wait, is [`Status::Cancelled`]. A
    /// prompt that is not complete is undone, and tokens stay. Does not wait. After its end it has
    /// no effect; [`Status::NotFound`]: that was fetched.
    pub fn cancel(&self) -> Result<()> {
        let (scheduler, session) = (self.place.scheduler.raw(), self.session.raw());
        // SAFETY: a living scheduler and session.
        check(|error| unsafe { sys::stasis_scheduler_cancel(scheduler, session, error) })
    }

    /// Gives the session back, once its end was fetched or the scheduler was stopped; else itself.
    ///
    /// If the session's trace has panicked in a pass, the first call on the session resumes that.
    pub fn into_session(self) -> std::result::Result<Session, Scheduled> {
        if self.place.scheduler.members().contains(&self.place.id) {
            return Err(self);
        }
        self.session.leave_trace();
        Ok(self.session)
    }
}

/// Events of a scheduler's sessions, or of one; see [`Scheduler::events`] and
/// [`Scheduled::events`].
#[derive(Debug)]
pub struct Events<'a> {
    scheduler: &'a Scheduler,
    of: Option<&'a Scheduled>,
    over: bool,
}

/// Another thread may fetch the last end of all, of which the library does not tell those that wait
/// for any event.
const LOOK: Duration = Duration::from_millis(50);

impl<'a> Events<'a> {
    pub(crate) fn new(scheduler: &'a Scheduler, of: Option<&'a Scheduled>) -> Events<'a> {
        Events { scheduler, of, over: false }
    }

    fn ask(&self) -> Result<Option<SchedulerEvent>> {
        if let Some(scheduled) = self.of {
            return match scheduled.next(None) {
                Err(error) if error.status() == Status::NotFound => Ok(None),
                next => next,
            };
        }
        while self.scheduler.stats()?.sessions != 0 {
            if let Some(event) = self.scheduler.next(Some(LOOK))? {
                return Ok(Some(event));
            }
        }
        self.scheduler.next(Some(Duration::ZERO)) // nothing, or that it was stopped
    }
}

impl Iterator for Events<'_> {
    type Item = Result<SchedulerEvent>;

    fn next(&mut self) -> Option<Result<SchedulerEvent>> {
        if self.over {
            return None;
        }
        let next = self.ask().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl FusedIterator for Events<'_> {}
