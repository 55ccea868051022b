//! Generation: as an iterator that draws one token each time it is asked, and with a closure that
//! is called with each token.
use crate::cancel::{raw_ms, raw_of, Cancel};
use crate::error::{check, Error, Result, Status};
use crate::guard::{answer, Guard, STOP};
use crate::raw::{c_text, copied, sized, text_from};
use crate::session::Session;
use crate::Token;
use stasis_sys as sys;
use std::ffi::CString;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::os::raw::{c_char, c_void};
use std::ptr;
use std::time::Duration;

/// When a generation ends, and what it reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenerateOptions<'a> {
    /// 0: until the session is full.
    pub tokens_max: u64,
    /// The model's own end tokens do not stop.
    pub ignore_end: bool,
    /// Besides the model's end tokens.
    pub stop_tokens: &'a [Token],
    /// The text ends before the first of them; none may be empty.
    pub stop_strings: &'a [&'a str],
    /// Ends the generation; tokens stay.
    pub cancel: Option<&'a Cancel>,
    /// Ends the generation, from the call that begins it on, with
    /// [`Status::Timeout`](crate::Status::Timeout); tokens stay.
    pub timeout: Option<Duration>,
    /// Report each token's log-probability, and those of this many most likely tokens at its
    /// position; 0: none are computed.
    pub log_probabilities: u32,
}

/// A token that is in the log now.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Generated {
    /// Its number.
    pub token: Token,
    /// Its position.
    pub position: u64,
    /// Text that can be shown since the last event, perhaps none: complete characters, nothing that
    /// may still become part of a stop string. Bytes that are no UTF-8 are shown as U+FFFD.
    pub text: String,
    /// At the end, text that was held back; the token is the last one again.
    pub last: bool,
    /// Natural, of the model's own distribution; 0 if none are asked for, and with `last`.
    pub log_probability: f32,
    /// The most likely tokens in its place with theirs, best first.
    pub best: Vec<(Token, f32)>,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// `tokens_max`, or the session is full.
    Length,
    /// An end or stop token; it is in the log, not in the text.
    EndToken,
    /// A stop string; its tokens are in the log.
    StopString,
    /// The closure.
    Callback,
    /// The cancel handle.
    Cancelled,
    /// A constraint leaves no token to draw.
    NoToken,
    /// The `timeout` has passed.
    Timeout,
    /// A reason that this crate does not know.
    Other(u32),
}

/// How a generation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GenerateResult {
    /// Why it ended.
    pub stop: Stop,
    /// Position of the first new token.
    pub begin: u64,
    /// New tokens.
    pub count: u64,
    /// Tokens that a drafter proposed.
    pub drafted: u64,
    /// The proposed tokens that were then drawn.
    pub accepted: u64,
    /// Passes of the model.
    pub passes: u64,
    /// Times the drafter failed; the call then continued without it.
    pub draft_failures: u64,
}

impl Stop {
    pub(crate) fn of(reason: u32) -> Stop {
        match reason {
            sys::STASIS_STOP_LENGTH => Stop::Length,
            sys::STASIS_STOP_END_TOKEN => Stop::EndToken,
            sys::STASIS_STOP_STRING => Stop::StopString,
            sys::STASIS_STOP_CALLBACK => Stop::Callback,
            sys::STASIS_STOP_CANCELLED => Stop::Cancelled,
            sys::STASIS_STOP_NO_TOKEN => Stop::NoToken,
            sys::STASIS_STOP_TIMEOUT => Stop::Timeout,
            other => Stop::Other(other),
        }
    }
}

impl GenerateResult {
    fn of(raw: &sys::stasis_generate_result) -> GenerateResult {
        GenerateResult {
            stop: Stop::of(raw.stop_reason),
            begin: raw.begin,
            count: raw.count,
            drafted: raw.drafted,
            accepted: raw.accepted,
            passes: raw.passes,
            draft_failures: raw.draft_failures,
        }
    }
}

/// Options in C's form, with the texts that they point to.
pub(crate) struct RawOptions<'a> {
    raw: sys::stasis_generate_options,
    _strings: Vec<CString>,
    _pointers: Vec<*const c_char>,
    _given: PhantomData<GenerateOptions<'a>>,
}

impl RawOptions<'_> {
    pub(crate) fn raw(&self) -> &sys::stasis_generate_options {
        &self.raw
    }
}

impl<'a> GenerateOptions<'a> {
    pub(crate) fn to_raw(self) -> Result<RawOptions<'a>> {
        let texts = self.stop_strings.iter().map(|text| c_text(text, "a stop string"));
        let strings = texts.collect::<Result<Vec<CString>>>()?;
        let pointers: Vec<*const c_char> = strings.iter().map(|text| text.as_ptr()).collect();
        let raw = sys::stasis_generate_options {
            flags: if self.ignore_end { sys::STASIS_GENERATE_IGNORE_END } else { 0 },
            tokens_max: self.tokens_max,
            stop_tokens: self.stop_tokens.as_ptr(),
            stop_token_count: self.stop_tokens.len(),
            stop_strings: pointers.as_ptr(),
            stop_string_count: pointers.len(),
            cancel: raw_of(self.cancel),
            timeout_ms: raw_ms(self.timeout),
            log_probability_count: self.log_probabilities,
            ..sized()
        };
        Ok(RawOptions { raw, _strings: strings, _pointers: pointers, _given: PhantomData })
    }
}

impl Generated {
    /// # Safety
    /// The event's pointers must be valid.
    pub(crate) unsafe fn of(raw: &sys::stasis_generated) -> Generated {
        let count = raw.log_probability_count as usize;
        let best = copied(raw.best_tokens, count);
        Generated {
            token: raw.token,
            position: raw.position,
            text: text_from(copied(raw.text.cast::<u8>(), raw.length)),
            last: raw.last != 0,
            log_probability: raw.log_probability,
            best: best.into_iter().zip(copied(raw.best_log_probabilities, count)).collect(),
        }
    }
}

type Each<'a> = &'a mut dyn FnMut(Generated) -> ControlFlow<()>;

unsafe extern "C" fn each(user: *mut c_void, raw: *const sys::stasis_generated) -> i32 {
    let generated = Generated::of(&*raw);
    Guard::<Each<'_>>::run(user, STOP, |closure| answer(closure(generated)))
}

impl Session {
    /// Draws a token each time the iterator is asked for one. A token that it has not yielded is
    /// not in the session, so it may be dropped at any time. It yields what
    /// [`Session::generate_with`] reports, one by one. After an error it ends; the session is as
    /// the last item left it. Meanwhile [`Generation::session`] can be read, by other threads too.
    ///
    /// The speed of several sessions that generate at once does not add up;
    /// a [`Scheduler`](crate::Scheduler) computes many together.
    ///
    /// The session is the iterator's as long as that lives:
    ///
    /// ```compile_fail,E0502
    /// # let path = "a model";
    /// # let model = stasis::Model::open(path, Default::default())?;
    /// # let mut session = stasis::Session::create(&model, Default::default())?;
    /// for generated in session.generate(Default::default()) {
    ///     println!("{} {}", generated?.text, session.digest()?);
    /// }
    /// # Ok::<(), stasis::Error>(())
    /// ```
    ///
    /// ```no_run
    /// # let path = "a model";
    /// # let model = stasis::Model::open(path, Default::default())?;
    /// # let mut session = stasis::Session::create(&model, Default::default())?;
    /// for generated in session.generate(Default::default()) {
    ///     println!("{}", generated?.text);
    /// }
    /// println!("{}", session.digest()?);
    /// # Ok::<(), stasis::Error>(())
    /// ```
    pub fn generate<'a>(&'a mut self, options: GenerateOptions<'a>) -> Generation<'a> {
        let result = GenerateResult { stop: Stop::Callback, ..GenerateResult::of(&sized()) };
        Generation { session: self, raw: ptr::null_mut(), next: Next::Begin(options), result }
    }

    /// Generates until something ends it and calls the closure with each token; a break ends it
    /// with [`Stop::Callback`], and the token stays. After an error, [`Status::Cancelled`] too, the
    /// reported tokens stay in the session.
    pub fn generate_with(
        &mut self,
        options: GenerateOptions<'_>,
        mut closure: impl FnMut(Generated) -> ControlFlow<()>,
    ) -> Result<GenerateResult> {
        let mut options = options.to_raw()?;
        let mut result = sized();
        let mut guard: Guard<Each<'_>> = Guard::new(Some(&mut closure));
        options.raw.callback = Some(each);
        options.raw.callback_user = guard.user();
        // SAFETY: a living session, arrays with their counts, structs with their sizes.
        let status = check(|error| unsafe {
            sys::stasis_session_generate(self.raw(), options.raw(), &mut result, error)
        });
        guard.resume();
        self.resume_trace();
        match status {
            Err(error) if error.status() != Status::Stopped => Err(error),
            _ => Ok(GenerateResult::of(&result)),
        }
    }
}

/// The next result of the iterator.
enum Next<'a> {
    Begin(GenerateOptions<'a>),
    Token,
    Error(Error),
    End,
}

/// A generation, token by token; see [`Session::generate`].
pub struct Generation<'a> {
    session: &'a Session, // which was borrowed as its only user: nothing else changes it
    raw: *mut sys::stasis_generation, // null: not begun, or over
    next: Next<'a>,
    result: GenerateResult, // of one that is over
}

// SAFETY: a generation belongs to no thread.
unsafe impl Send for Generation<'_> {}

impl<'a> Generation<'a> {
    /// The session, to be read while it generates: all that was yielded is in it, and nothing else.
    /// Other threads may read it while this one computes; they wait for the token.
    ///
    /// ```no_run
    /// # let path = "a model";
    /// # let model = stasis::Model::open(path, Default::default())?;
    /// # let mut session = stasis::Session::create(&model, Default::default())?;
    /// let mut generation = session.generate(Default::default());
    /// let watched = generation.session();
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| println!("{:?}", watched.info().map(|info| info.position)));
    ///     generation.by_ref().for_each(drop);
    /// });
    /// # Ok::<(), stasis::Error>(())
    /// ```
    pub fn session(&self) -> &'a Session {
        self.session
    }

    /// How it went so far; [`Stop::Callback`] while it goes on.
    pub fn result(&self) -> GenerateResult {
        if self.raw.is_null() {
            return self.result;
        }
        let mut raw = sized();
        // SAFETY: a living generation, a struct with its size.
        let reported =
            check(|error| unsafe { sys::stasis_generation_get_result(self.raw, &mut raw, error) });
        reported.expect("a result of a generation that nobody else uses");
        GenerateResult::of(&raw)
    }

    fn begin(&mut self, options: GenerateOptions<'_>) -> Result<()> {
        let options = options.to_raw()?;
        // SAFETY: a living session, arrays with their counts, a place for a pointer.
        let status = check(|error| unsafe {
            sys::stasis_generation_begin(self.session.raw(), options.raw(), &mut self.raw, error)
        });
        self.session.resume_trace();
        status
    }

    /// Asks for the next event. One with `last` is the end, which after a cancel comes beside the
    /// error, with the text that was held back.
    fn ask(&mut self) -> (Generated, Result<()>) {
        let mut raw = sized();
        // SAFETY: a living generation, a struct with its size.
        let status =
            check(|error| unsafe { sys::stasis_generation_next(self.raw, &mut raw, error) });
        self.session.resume_trace();
        // SAFETY: the pointers are valid until the next call; in a failed call they stay null.
        (unsafe { Generated::of(&raw) }, status)
    }

    fn end(&mut self) {
        self.result = self.result();
        // SAFETY: the only owner; null is ignored.
        unsafe { sys::stasis_generation_end(self.raw) }
        self.raw = ptr::null_mut();
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Generated>;

    fn next(&mut self) -> Option<Result<Generated>> {
        match std::mem::replace(&mut self.next, Next::End) {
            Next::End => return None,
            Next::Error(error) => return Some(Err(error)),
            Next::Begin(options) => {
                if let Err(error) = self.begin(options) {
                    return Some(Err(error));
                }
            }
            Next::Token => {}
        }
        let (generated, status) = self.ask();
        if status.is_ok() && !generated.last {
            self.next = Next::Token;
            return Some(Ok(generated));
        }
        self.end();
        if generated.text.is_empty() {
            return status.err().map(Err);
        }
        self.next = status.err().map_or(Next::End, Next::Error);
        Some(Ok(generated))
    }
}

impl FusedIterator for Generation<'_> {}
