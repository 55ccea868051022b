//! Sessions: one mutable timeline of tokens each.
use crate::cancel::{raw_of, Cancel};
use crate::constraint::Constraint;
use crate::digest::Digest;
use crate::error::{check, Result};
use crate::info::SessionInfo;
use crate::model::{Model, Reply};
use crate::options::{RunOptions, SessionOptions};
use crate::raw::{c_text, fill, sized, text_from};
use crate::sampling::Sampling;
use crate::trace::{Listener, Trace};
use crate::Token;
use stasis_sys as sys;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// One timeline of tokens over a model, which it keeps open.
///
/// It may go from thread to thread, and may be read from several at once: short calls wait for each
/// other. Whoever comes during one that may take its time, such as [`Session::save`], gets
/// [`Status::Busy`](crate::Status::Busy).
///
/// ```
/// fn usable_from_any_thread<T: Send + Sync>() {}
/// usable_from_any_thread::<stasis::Session>();
/// ```
///
/// What changes it needs it alone:
///
/// ```compile_fail,E0596
/// fn grow(session: &stasis::Session) -> stasis::Result<()> {
///     session.append(&[1, 2, 3], Default::default())
/// }
/// ```
///
/// ```compile_fail,E0499
/// fn grow(session: &mut stasis::Session) {
///     std::thread::scope(|threads| {
///         threads.spawn(|| session.append(&[1], Default::default()));
///         threads.spawn(|| session.append(&[2], Default::default()));
///     });
/// }
/// ```
///
/// ```
/// fn look(session: &stasis::Session) {
///     std::thread::scope(|threads| {
///         threads.spawn(|| session.digest());
///         threads.spawn(|| session.info());
///     });
/// }
/// ```
pub struct Session {
    raw: NonNull<sys::stasis_session>,
    model: Model,
    listener: Option<Arc<Listener>>,
}

// SAFETY: a session belongs to no thread. "A session or snapshot serves one caller at a time: a
// second one gets BUSY, or waits", whatever thread it comes from; the listener of a trace is Send
// and runs inside the one call.
unsafe impl Send for Session {}
unsafe impl Sync for Session {}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the only owner, and no call can be running on what it owns. The listener, which
        // the library may call until then, is dropped after this.
        unsafe { sys::stasis_session_free(self.raw.as_ptr()) }
    }
}

/// The source of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Given as tokens.
    Prompt,
    /// Added by the chat template.
    Template,
    /// Text of a message.
    Text,
    /// Drawn.
    Sampled,
    /// A source that this crate does not know.
    Other(u8),
}

impl Source {
    pub(crate) fn of(number: u8) -> Source {
        match u32::from(number) {
            sys::STASIS_SOURCE_PROMPT => Source::Prompt,
            sys::STASIS_SOURCE_TEMPLATE => Source::Template,
            sys::STASIS_SOURCE_TEXT => Source::Text,
            sys::STASIS_SOURCE_SAMPLED => Source::Sampled,
            _ => Source::Other(number),
        }
    }
}

/// How attention is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// For each position.
    Total,
    /// For each layer, query head and position.
    ByHead,
}

/// Keys and values of a range of positions in one layer, bf16, each
/// `[position][kv_heads][head_dim]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct KeysValues {
    pub keys: Vec<u16>,
    pub values: Vec<u16>,
}

/// How tokens are proposed to generations; results are the same with any.
#[derive(Clone, Copy, Debug)]
pub enum Draft<'a> {
    /// Nothing.
    Off,
    /// The tokens that followed when the log's last tokens occurred before.
    Lookup {
        /// Proposed for a pass, at least; 0: 2.
        tokens_min: u64,
        /// At most, up to 32; 0: 8, or `tokens_min` if that is more.
        tokens_max: u64,
    },
    /// A smaller model with the same tokenizer; or the session's own, whose MTP head proposes
    /// (`mtp_bytes` of its info).
    Model {
        /// Which; the session keeps it open.
        model: &'a Model,
        /// As above.
        tokens_min: u64,
        /// As above.
        tokens_max: u64,
    },
}

impl Session {
    /// An empty session.
    pub fn create(model: &Model, options: SessionOptions) -> Result<Session> {
        let options = options.raw();
        Session::made(model, None, |raw, error| {
            // SAFETY: a living model, a struct with its size, a place for a pointer.
            unsafe { sys::stasis_session_create(model.raw(), &options, raw, error) }
        })
    }

    /// Owns what `make` makes.
    pub(crate) fn made(
        model: &Model,
        listener: Option<Arc<Listener>>,
        make: impl FnOnce(*mut *mut sys::stasis_session, *mut sys::stasis_error) -> i32,
    ) -> Result<Session> {
        let mut raw = ptr::null_mut();
        check(|error| make(&mut raw, error))?;
        let raw = NonNull::new(raw).expect("a session that was made");
        Ok(Session { raw, model: model.clone(), listener })
    }

    /// The model it runs on.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Appends tokens: all of them or, on any failure, none.
    pub fn append(&mut self, tokens: &[Token], options: RunOptions<'_>) -> Result<()> {
        let (data, count) = (tokens.as_ptr(), tokens.len());
        // SAFETY: an array with its count; as below, a living session and `call`'s error.
        let result = options.call(|options, error| unsafe {
            sys::stasis_session_append(self.raw(), data, count, options, error)
        });
        self.after(result)
    }

    /// Renders one turn through the chat template and appends it; history is never rendered or
    /// tokenized again.
    pub fn append_message(
        &mut self,
        role: &str,
        text: &str,
        reply: Reply,
        options: RunOptions<'_>,
    ) -> Result<()> {
        let role = c_text(role, "role")?;
        let flags = if reply == Reply::Prompt { sys::STASIS_MESSAGE_REPLY } else { 0 };
        let (raw, role, data) = (self.raw(), role.as_ptr(), text.as_ptr().cast());
        // SAFETY: a zero-terminated role, a text with its length.
        let result = options.call(|options, error| unsafe {
            sys::stasis_session_append_message(raw, role, data, text.len(), flags, options, error)
        });
        self.after(result)
    }

    /// Logits of the next token, one for each of the vocabulary.
    pub fn logits(&self) -> Result<Vec<f32>> {
        // SAFETY: a buffer with its capacity.
        self.after(fill(|logits, capacity, count, error| unsafe {
            sys::stasis_session_logits(self.raw(), logits, capacity, count, error)
        }))
    }

    /// The `n` most likely next tokens with their natural-log probabilities, best first.
    pub fn top(&self, n: usize) -> Result<Vec<(Token, f32)>> {
        // More than the vocabulary has is refused before anything is written.
        let room = if n <= self.model.vocabulary() { n } else { 0 };
        let (mut tokens, mut log_probabilities) = (vec![0; room], vec![0.0; room]);
        let likely: *mut f32 = log_probabilities.as_mut_ptr();
        // SAFETY: a buffer for `n`, or an `n` that is refused.
        self.call(|error| unsafe {
            sys::stasis_session_top(self.raw(), n, tokens.as_mut_ptr(), likely, error)
        })?;
        Ok(tokens.into_iter().zip(log_probabilities).collect())
    }

    /// Natural-log probability of each token of a continuation; the session is unchanged.
    pub fn score(&mut self, tokens: &[Token], options: RunOptions<'_>) -> Result<Vec<f64>> {
        let mut scores = vec![0.0; tokens.len()];
        let (data, count, to) = (tokens.as_ptr(), tokens.len(), scores.as_mut_ptr());
        // SAFETY: two arrays of the same count.
        let result = options.call(|options, error| unsafe {
            sys::stasis_session_score(self.raw(), data, count, to, options, error)
        });
        self.after(result.map(|()| scores))
    }

    /// How tokens are drawn from now on.
    pub fn set_sampling(&mut self, sampling: &Sampling) -> Result<()> {
        // SAFETY: a struct with its size, whose arrays live through the call.
        sampling.with_raw(|raw| {
            self.call(|error| unsafe { sys::stasis_session_set_sampling(self.raw(), raw, error) })
        })
    }

    /// Which texts replies may be from now on. Each reply, up to its end token, is one text. The
    /// constraint is saved with the session, and tokens are verified under it.
    pub fn set_constraint(
        &mut self,
        constraint: Constraint<'_>,
        cancel: Option<&Cancel>,
    ) -> Result<()> {
        let (kind, text) = constraint.parts();
        let (data, size, cancel) = (text.as_ptr().cast(), text.len(), raw_of(cancel));
        // SAFETY: a text with its length, a living handle or none.
        self.call(|error| unsafe {
            sys::stasis_session_set_constraint(self.raw(), kind, data, size, cancel, error)
        })
    }

    /// Which tokens the next draw may give, for masks of the caller's own: token t, if bit t % 32
    /// of `bits[t / 32]` is set; `None`: all. It holds for one token.
    pub fn set_allowed(&mut self, bits: Option<&[u32]>) -> Result<()> {
        let (data, size) = bits.map_or((ptr::null(), 0), |bits| (bits.as_ptr(), bits.len()));
        // SAFETY: words with their number, or none.
        self.call(|error| unsafe { sys::stasis_session_set_allowed(self.raw(), data, size, error) })
    }

    /// Draws the next token and changes nothing.
    pub fn sample(&self) -> Result<Token> {
        let mut token = 0;
        // SAFETY: a place for a token.
        self.call(|error| unsafe { sys::stasis_session_sample(self.raw(), &mut token, error) })?;
        Ok(token)
    }

    /// Draws the next token and appends it, or does neither.
    pub fn decode(&mut self) -> Result<Token> {
        let mut token = 0;
        // SAFETY: a place for a token.
        self.call(|error| unsafe { sys::stasis_session_decode(self.raw(), &mut token, error) })?;
        Ok(token)
    }

    /// A second session with the same state and settings, but without a trace. Copies no page.
    pub fn fork(&self) -> Result<Session> {
        // SAFETY: a place for a pointer.
        self.after(Session::made(&self.model, None, |child, error| unsafe {
            sys::stasis_session_fork(self.raw(), child, error)
        }))
    }

    /// Goes back: tokens from `position` on are gone. Below the floor (see
    /// [`SessionInfo::rewind_floor`]) only with `recompute`, which computes local layers again.
    pub fn rewind(
        &mut self,
        position: u64,
        recompute: bool,
        options: RunOptions<'_>,
    ) -> Result<()> {
        let flags = if recompute { sys::STASIS_REWIND_RECOMPUTE } else { 0 };
        // SAFETY: numbers.
        let result = options.call(|options, error| unsafe {
            sys::stasis_session_rewind(self.raw(), position, flags, options, error)
        });
        self.after(result)
    }

    /// Hides these positions from every later token.
    pub fn evict(&mut self, positions: Range<u64>) -> Result<()> {
        let (begin, end) = (positions.start, positions.end);
        // SAFETY: numbers.
        self.call(|error| unsafe { sys::stasis_session_evict(self.raw(), begin, end, error) })
    }

    /// Returns the accumulated attention of each position.
    pub fn attention(&self, how: Attention) -> Result<Vec<f64>> {
        let flags = if how == Attention::ByHead { sys::STASIS_ATTENTION_BY_HEAD } else { 0 };
        // SAFETY: a buffer with its capacity.
        self.after(fill(|weights, capacity, count, error| unsafe {
            sys::stasis_session_attention(self.raw(), flags, weights, capacity, count, error)
        }))
    }

    /// Copies of the keys and values of a layer.
    pub fn kv(&self, layer: u32, positions: Range<u64>) -> Result<KeysValues> {
        let (raw, begin, end) = (self.raw(), positions.start, positions.end);
        let mut values = Vec::new();
        // SAFETY: two buffers of the same capacity.
        let keys = self.after(fill(|keys, capacity, count, error| unsafe {
            values.resize(capacity, 0);
            let to = if capacity == 0 { ptr::null_mut() } else { values.as_mut_ptr() };
            sys::stasis_session_kv(raw, layer, begin, end, keys, to, capacity, count, error)
        }))?;
        Ok(KeysValues { keys, values })
    }

    /// Describes the session.
    pub fn info(&self) -> Result<SessionInfo> {
        let mut info = sized();
        // SAFETY: a struct with its size.
        self.call(|error| unsafe { sys::stasis_session_get_info(self.raw(), &mut info, error) })?;
        Ok(SessionInfo::of(&info))
    }

    /// Tokens from `begin` to the end.
    pub fn tokens(&self, begin: u64) -> Result<Vec<Token>> {
        let none = ptr::null_mut();
        // SAFETY: a buffer with its capacity, and none for sources.
        self.after(fill(|tokens, capacity, count, error| unsafe {
            sys::stasis_session_tokens(self.raw(), begin, tokens, none, capacity, count, error)
        }))
    }

    /// Returns the sources of the tokens from `begin` to the end.
    pub fn sources(&self, begin: u64) -> Result<Vec<Source>> {
        let none = ptr::null_mut();
        // SAFETY: a buffer with its capacity, and none for tokens.
        let sources = self.after(fill(|sources, capacity, count, error| unsafe {
            sys::stasis_session_tokens(self.raw(), begin, none, sources, capacity, count, error)
        }))?;
        Ok(sources.into_iter().map(Source::of).collect())
    }

    /// Text of positions, without special tokens and without an incomplete last character. Bytes
    /// that are no UTF-8 become U+FFFD; [`Model::detokenize`] has them as they are.
    pub fn text(&self, positions: Range<u64>) -> Result<String> {
        let (begin, end) = (positions.start, positions.end);
        // SAFETY: a buffer with its capacity.
        let text = self.after(fill(|text: *mut u8, capacity, length, error| unsafe {
            let to = text.cast();
            sys::stasis_session_text(self.raw(), begin, end, to, capacity, length, error)
        }))?;
        Ok(text_from(text))
    }

    /// Returns SHA-256 over the state. Sessions with equal digests give the same bits from this
    /// position on.
    pub fn digest(&self) -> Result<Digest> {
        let mut digest = sys::stasis_digest { bytes: [0; 32] };
        // SAFETY: a place for a digest.
        self.call(|error| unsafe { sys::stasis_session_digest(self.raw(), &mut digest, error) })?;
        Ok(Digest::of(digest))
    }

    /// Calls the trace with everything that happens to the session's keys and values from now on,
    /// beginning with the pages that it has; none: no trace. An earlier trace ends, unless this
    /// fails.
    pub fn set_trace(&mut self, trace: Option<Trace>) -> Result<()> {
        let listener = trace.map(Listener::new);
        let raw = listener.as_ref().map(Listener::raw);
        let options = raw.as_ref().map_or(ptr::null(), |raw| raw as *const _);
        // SAFETY: a struct with its size; the listener stays as long as the library may call it.
        check(|error| unsafe { sys::stasis_session_set_trace(self.raw(), options, error) })?;
        self.listener = listener;
        self.resume_trace();
        Ok(())
    }

    /// Sets the source of proposed tokens.
    pub fn set_draft(&mut self, draft: Draft<'_>) -> Result<()> {
        let (model, options) = match draft {
            Draft::Off => (ptr::null_mut(), None),
            Draft::Lookup { tokens_min, tokens_max } => {
                (ptr::null_mut(), Some((tokens_min, tokens_max)))
            }
            Draft::Model { model, tokens_min, tokens_max } => {
                (model.raw(), Some((tokens_min, tokens_max)))
            }
        };
        let raw = options.map(|(tokens_min, tokens_max)| sys::stasis_draft_options {
            tokens_min,
            tokens_max,
            ..sized()
        });
        let options = raw.as_ref().map_or(ptr::null(), |raw| raw as *const _);
        // SAFETY: a living model or none, a struct with its size or none.
        self.call(|error| unsafe {
            sys::stasis_session_set_draft(self.raw(), model, options, error)
        })
    }

    pub(crate) fn raw(&self) -> *mut sys::stasis_session {
        self.raw.as_ptr()
    }

    fn call(&self, call: impl FnOnce(*mut sys::stasis_error) -> i32) -> Result<()> {
        self.after(check(call))
    }

    /// Work to do after a call on the session has returned.
    pub(crate) fn after<T>(&self, result: Result<T>) -> Result<T> {
        self.resume_trace();
        result
    }

    /// Resumes a panic of the trace's listener.
    pub(crate) fn resume_trace(&self) {
        if let Some(listener) = &self.listener {
            listener.resume();
        }
    }

    /// Leaves a panic of the trace's listener to the next call on the session.
    pub(crate) fn leave_trace(&self) {
        if let Some(listener) = &self.listener {
            listener.leave();
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = to.debug_struct("Session");
        match self.info() {
            Ok(info) => shown.field("position", &info.position),
            Err(error) => shown.field("error", &error.to_string()),
        };
        shown.finish_non_exhaustive()
    }
}
