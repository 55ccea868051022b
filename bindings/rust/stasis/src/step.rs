//! Steps of several sessions, computed together.
use crate::error::{Error, Result};
use crate::options::RunOptions;
use crate::session::Session;
use crate::Token;
use stasis_sys as sys;
use std::mem::size_of;
use std::ptr;

/// The work of one session in a step, and its outcome.
pub struct StepItem<'a> {
    session: &'a mut Session,
    tokens: &'a [Token],
    sample: bool,
    outcome: Result<Option<Token>>,
}

impl<'a> StepItem<'a> {
    /// Appends tokens.
    pub fn append(session: &'a mut Session, tokens: &'a [Token]) -> StepItem<'a> {
        StepItem { session, tokens, sample: false, outcome: Ok(None) }
    }

    /// Then draws the next token and appends it.
    pub fn and_decode(self) -> StepItem<'a> {
        StepItem { sample: true, ..self }
    }

    /// Draws the next token and appends it.
    pub fn decode(session: &'a mut Session) -> StepItem<'a> {
        StepItem::append(session, &[]).and_decode()
    }

    /// The token that the last step drew, or what it met: its session is then as before, or lacks
    /// only the draw. None before a step, and without a draw.
    pub fn outcome(&self) -> &Result<Option<Token>> {
        &self.outcome
    }

    /// The same, for keeps.
    pub fn into_outcome(self) -> Result<Option<Token>> {
        self.outcome
    }
}

/// Computes one step of several sessions of one model: each gets the bits that it gets alone. A
/// failure of an item is its outcome and does not affect the others. An error of the whole step
/// means that nothing was done, unless it was cancelled or stopped: sessions that are complete then
/// stay so, and the outcomes show which.
///
/// No session can be in a step twice:
///
/// ```compile_fail,E0499
/// # use stasis::{step, Session, StepItem};
/// fn twice(session: &mut Session) -> stasis::Result<()> {
///     let first = StepItem::decode(session);
///     step(&mut [first, StepItem::decode(session)], Default::default())
/// }
/// ```
///
/// ```
/// # use stasis::{step, Session, StepItem};
/// fn once(session: &mut Session, other: &mut Session) -> stasis::Result<()> {
///     let first = StepItem::decode(session);
///     step(&mut [first, StepItem::decode(other)], Default::default())
/// }
/// ```
pub fn step(items: &mut [StepItem<'_>], options: RunOptions<'_>) -> Result<()> {
    let tokens: Vec<Token> = items.iter().flat_map(|item| item.tokens.iter().copied()).collect();
    let nothing = sys::stasis_error { status: UNTOUCHED, message: [0; 508] };
    let mut errors = vec![nothing; items.len()];
    let mut begin = 0;
    let mut raw: Vec<sys::stasis_step_item> = Vec::with_capacity(items.len());
    let stride = size_of::<sys::stasis_step_item>();
    let place = errors.as_mut_ptr();
    for (index, item) in items.iter().enumerate() {
        raw.push(sys::stasis_step_item {
            struct_size: stride as u32,
            flags: if item.sample { sys::STASIS_STEP_SAMPLE } else { 0 },
            session: item.session.raw(),
            begin,
            count: item.tokens.len(),
            token: 0,
            status: UNTOUCHED,
            // SAFETY: one for each item.
            error: unsafe { place.add(index) },
        });
        begin += item.tokens.len();
    }
    let count = raw.len();
    let to = if count == 0 { ptr::null_mut() } else { raw.as_mut_ptr() };
    // SAFETY: arrays with their counts, of sessions that are borrowed for this.
    let result = options.call(|options, error| unsafe {
        let data = tokens.as_ptr();
        sys::stasis_sessions_step(to, stride, count, data, tokens.len(), options, error)
    });
    for ((item, raw), error) in items.iter_mut().zip(&raw).zip(&errors) {
        if raw.status == sys::STASIS_OK {
            item.outcome = Ok(Some(raw.token).filter(|_| item.sample));
        } else if raw.status != UNTOUCHED {
            item.outcome = Err(Error::told(error));
        }
    }
    for item in items.iter() {
        item.session.resume_trace();
    }
    result
}

/// No status of the library: nothing was written to the item.
const UNTOUCHED: sys::stasis_status = i32::MIN;
