//! Generation: as an iterator that draws one token each time it is asked, and with a closure that
//! is called with each token.
use crate::cancel::{raw_of, Cancel};
use crate::error::{check, Error, Result, Status};
use crate::guard::{answer, Guard, STOP};
use crate::model::Detokenize;
use crate::raw::{c_text, copied, sized, text_from};
use crate::session::Session;
use crate::text_stream::TextStream;
use crate::Token;
use stasis_sys as sys;
use std::ffi::CString;
use std::iter::FusedIterator;
use std::ops::ControlFlow;
use std::os::raw::{c_char, c_void};

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

impl GenerateResult {
    fn of(raw: &sys::stasis_generate_result) -> GenerateResult {
        GenerateResult {
            stop: match raw.stop_reason {
                sys::STASIS_STOP_LENGTH => Stop::Length,
                sys::STASIS_STOP_END_TOKEN => Stop::EndToken,
                sys::STASIS_STOP_STRING => Stop::StopString,
                sys::STASIS_STOP_CALLBACK => Stop::Callback,
                sys::STASIS_STOP_CANCELLED => Stop::Cancelled,
                other => Stop::Other(other),
            },
            begin: raw.begin,
            count: raw.count,
            drafted: raw.drafted,
            accepted: raw.accepted,
            passes: raw.passes,
            draft_failures: raw.draft_failures,
        }
    }
}

type Each<'a> = &'a mut dyn FnMut(Generated) -> ControlFlow<()>;

unsafe extern "C" fn each(user: *mut c_void, raw: *const sys::stasis_generated) -> i32 {
    let raw = &*raw;
    let count = raw.log_probability_count as usize;
    let best = copied(raw.best_tokens, count);
    let generated = Generated {
        token: raw.token,
        position: raw.position,
        text: text_from(copied(raw.text.cast::<u8>(), raw.length)),
        last: raw.last != 0,
        log_probability: raw.log_probability,
        best: best.into_iter().zip(copied(raw.best_log_probabilities, count)).collect(),
    };
    Guard::<Each<'_>>::run(user, STOP, |closure| answer(closure(generated)))
}

impl Session {
    /// Draws a token each time the iterator is asked for one. A token that it has not yielded is
    /// not in the session, so it may be dropped at any time. It yields the tokens that
    /// [`Session::generate_with`] reports, one by one, and never drafts. After an error it ends;
    /// the session is as the last item left it.
    ///
    /// The speed of several sessions that generate at once does not add up;
    /// [`step`](crate::step) computes many together.
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
        let text = TextStream::new(options.stop_strings);
        Generation { session: self, options, text, last: None, count: 0, next: Next::Token }
    }

    /// Generates until something ends it and calls the closure with each token; a break ends it
    /// with [`Stop::Callback`], and the token stays. After an error, [`Status::Cancelled`] too, the
    /// reported tokens stay in the session.
    pub fn generate_with(
        &mut self,
        options: GenerateOptions<'_>,
        mut closure: impl FnMut(Generated) -> ControlFlow<()>,
    ) -> Result<GenerateResult> {
        let (result, raw) = self.generate_raw(&options, options.tokens_max, &mut closure);
        let result = match result {
            Err(error) if error.status() == Status::Stopped => Ok(()),
            other => other,
        };
        result.map(|()| GenerateResult::of(&raw))
    }

    fn generate_raw(
        &mut self,
        options: &GenerateOptions<'_>,
        tokens_max: u64,
        closure: Each<'_>,
    ) -> (Result<()>, sys::stasis_generate_result) {
        let mut result = sized();
        let texts = options.stop_strings.iter().map(|text| c_text(text, "a stop string"));
        let stop_strings: Vec<CString> = match texts.collect() {
            Ok(texts) => texts,
            Err(error) => return (Err(error), result),
        };
        let pointers: Vec<*const c_char> = stop_strings.iter().map(|text| text.as_ptr()).collect();
        let mut guard = Guard::new(Some(closure));
        let raw = sys::stasis_generate_options {
            flags: if options.ignore_end { sys::STASIS_GENERATE_IGNORE_END } else { 0 },
            tokens_max,
            stop_tokens: options.stop_tokens.as_ptr(),
            stop_token_count: options.stop_tokens.len(),
            stop_strings: pointers.as_ptr(),
            stop_string_count: pointers.len(),
            callback: Some(each),
            callback_user: guard.user(),
            cancel: raw_of(options.cancel),
            log_probability_count: options.log_probabilities,
            ..sized()
        };
        // SAFETY: a living session, arrays with their counts, structs with their sizes.
        let status = check(|error| unsafe {
            sys::stasis_session_generate(self.raw(), &raw, &mut result, error)
        });
        guard.resume();
        self.resume_trace();
        (status, result)
    }
}

/// The next result of the iterator.
enum Next {
    Token,
    HeldText(Option<Error>),
    Error(Error),
    End,
}

/// A generation, token by token; see [`Session::generate`].
pub struct Generation<'a> {
    session: &'a mut Session,
    options: GenerateOptions<'a>,
    text: TextStream,
    last: Option<(Token, u64)>,
    count: u64,
    next: Next,
}

impl Generation<'_> {
    /// The next token with its text; none where the generation has ended.
    fn token(&mut self) -> Result<Option<Generated>> {
        if self.options.tokens_max != 0 && self.count == self.options.tokens_max {
            return Ok(None);
        }
        let mut drawn = None;
        let (status, result) = self.session.generate_raw(&self.options, 1, &mut |generated| {
            drawn = drawn.take().or(Some(generated)); // its own held text would be the second
            ControlFlow::Continue(())
        });
        status?;
        let mut generated = match drawn {
            Some(generated) => generated,
            None => return Ok(None),
        };
        self.count += 1;
        self.last = Some((generated.token, generated.position));
        let ends = result.stop_reason == sys::STASIS_STOP_END_TOKEN;
        let model = self.session.model();
        if !ends && model.has_tokenizer() {
            let middle = Detokenize { middle: true, ..Detokenize::default() };
            self.text.add(&model.detokenize(&[generated.token], middle)?);
        }
        generated.text = self.text.take();
        self.next = if ends || self.text.stopped() { Next::HeldText(None) } else { Next::Token };
        Ok(Some(generated))
    }

    fn held_text(&mut self) -> Option<Generated> {
        let (token, position) = self.last?;
        if !self.text.stopped() {
            self.text.finish();
        }
        let text = self.text.take();
        (!text.is_empty()).then(|| Generated {
            token,
            position,
            text,
            last: true,
            log_probability: 0.0,
            best: Vec::new(),
        })
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Generated>;

    fn next(&mut self) -> Option<Result<Generated>> {
        loop {
            match std::mem::replace(&mut self.next, Next::End) {
                Next::End => return None,
                Next::Error(error) => return Some(Err(error)),
                Next::Token => match self.token() {
                    Ok(Some(generated)) => return Some(Ok(generated)),
                    Ok(None) => self.next = Next::HeldText(None),
                    Err(error) if error.status() == Status::Cancelled => {
                        self.next = Next::HeldText(Some(error));
                    }
                    Err(error) => return Some(Err(error)),
                },
                Next::HeldText(error) => {
                    self.next = error.map_or(Next::End, Next::Error);
                    if let Some(generated) = self.held_text() {
                        return Some(Ok(generated));
                    }
                }
            }
        }
    }
}

impl FusedIterator for Generation<'_> {}
