//! Text of tokens that were drawn one by one: whole characters, nothing that may yet become a stop
//! string.
use crate::error::{check, Result};
use crate::generate::{GenerateOptions, Stop};
use crate::model::Model;
use crate::raw::{copied, sized, text_from};
use crate::Token;
use stasis_sys as sys;
use std::ptr::{self, NonNull};

/// Makes text of tokens that [`step`](crate::step()) or [`Session::decode`](crate::Session::decode)
/// have drawn, as a generation makes it of its own, and says when the text stops.
///
/// ```no_run
/// # let model = stasis::Model::open("a model", Default::default())?;
/// # let mut session = stasis::Session::create(&model, Default::default())?;
/// let mut text = stasis::TextStream::new(&model, Default::default())?;
/// loop {
///     let piece = text.push(session.decode()?)?;
///     print!("{}", piece.text);
///     if piece.stop.is_some() {
///         break;
///     }
/// }
/// print!("{}", text.finish()?.text);
/// # Ok::<(), stasis::Error>(())
/// ```
pub struct TextStream {
    raw: NonNull<sys::stasis_text_stream>,
}

// SAFETY: a stream belongs to no thread, and gives BUSY to a second caller.
unsafe impl Send for TextStream {}
unsafe impl Sync for TextStream {}

impl Drop for TextStream {
    fn drop(&mut self) {
        // SAFETY: the only owner.
        unsafe { sys::stasis_text_stream_free(self.raw.as_ptr()) }
    }
}

/// The text that became final with a token.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// Perhaps none. Bytes that are no UTF-8 are shown as U+FFFD.
    pub text: String,
    /// The stop condition that is met; later tokens add nothing.
    pub stop: Option<Stop>,
}

impl TextStream {
    /// With the stop conditions of the options, of which `tokens_max` counts the tokens of this
    /// stream. `cancel`, `timeout` and `log_probabilities` must be none.
    pub fn new(model: &Model, options: GenerateOptions<'_>) -> Result<TextStream> {
        let options = options.to_raw()?;
        let mut raw = ptr::null_mut();
        // SAFETY: a living model, arrays with their counts, a place for a pointer.
        check(|error| unsafe {
            sys::stasis_text_stream_create(model.raw(), options.raw(), &mut raw, error)
        })?;
        Ok(TextStream { raw: NonNull::new(raw).expect("a stream that was made") })
    }

    /// Adds a token.
    pub fn push(&mut self, token: Token) -> Result<Piece> {
        // SAFETY: a living stream, a struct with its size.
        self.piece(|stream, piece, error| unsafe {
            sys::stasis_text_stream_push(stream, token, piece, error)
        })
    }

    /// Ends the text, stopped or not: the piece has what was held back.
    pub fn finish(&mut self) -> Result<Piece> {
        // SAFETY: as above.
        self.piece(|stream, piece, error| unsafe {
            sys::stasis_text_stream_finish(stream, piece, error)
        })
    }

    fn piece(
        &mut self,
        mut call: impl FnMut(
            *mut sys::stasis_text_stream,
            *mut sys::stasis_text_piece,
            *mut sys::stasis_error,
        ) -> sys::stasis_status,
    ) -> Result<Piece> {
        let mut raw: sys::stasis_text_piece = sized();
        check(|error| call(self.raw.as_ptr(), &mut raw, error))?;
        // SAFETY: the text is valid until the next call.
        let text = text_from(unsafe { copied(raw.text.cast::<u8>(), raw.length) });
        Ok(Piece { text, stop: (raw.stopped != 0).then(|| Stop::of(raw.stop_reason)) })
    }
}

impl std::fmt::Debug for TextStream {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("TextStream").finish_non_exhaustive()
    }
}
