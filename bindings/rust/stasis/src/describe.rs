//! What the library and a model say of themselves.
use crate::error::{check, Result};
use crate::raw::{copied, sized, text_of};
use crate::{Model, Token};
use stasis_sys as sys;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenKind {
    /// Stands for its text.
    Normal,
    /// What the vocabulary has no token for.
    Unknown,
    /// Marks structure; no plain text becomes it.
    Special,
    /// The model has a row for it, the tokenizer no text.
    Unused,
    /// One byte, spelled `<0x0A>`, of text that has no other token.
    Byte,
}

/// A token in its vocabulary.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TokenInfo {
    /// Its number.
    pub token: Token,
    /// As the vocabulary spells it; not always UTF-8.
    pub piece: Vec<u8>,
    /// What it is.
    pub kind: TokenKind,
    /// It ends replies.
    pub ends: bool,
    /// None: the vocabulary gives it no finite one.
    pub score: Option<f32>,
}

fn kind_of(kind: u32) -> TokenKind {
    match kind {
        sys::STASIS_TOKEN_UNKNOWN => TokenKind::Unknown,
        sys::STASIS_TOKEN_SPECIAL => TokenKind::Special,
        sys::STASIS_TOKEN_UNUSED => TokenKind::Unused,
        sys::STASIS_TOKEN_BYTE => TokenKind::Byte,
        _ => TokenKind::Normal,
    }
}

/// How the library was built: version, compiler, kind of build, optional parts.
pub fn build() -> String {
    // SAFETY: a static text.
    unsafe { text_of(sys::stasis_build()) }
}

impl Model {
    /// Describes one token of the vocabulary.
    pub fn token(&self, token: Token) -> Result<TokenInfo> {
        let mut info: sys::stasis_token_info = sized();
        // SAFETY: a living model, which owns the piece, and a struct with its size.
        unsafe {
            check(|error| sys::stasis_model_get_token(self.raw(), token, &mut info, error))?;
            Ok(TokenInfo {
                token,
                piece: copied(info.piece.cast::<u8>(), info.length),
                kind: kind_of(info.kind),
                ends: info.flags & sys::STASIS_TOKEN_ENDS != 0,
                score: (info.flags & sys::STASIS_TOKEN_SCORED != 0).then_some(info.score),
            })
        }
    }

    /// All tokens in the order of their numbers; the first is the error of a model without a
    /// tokenizer, if it has none.
    pub fn tokens(&self) -> impl Iterator<Item = Result<TokenInfo>> + '_ {
        (0..self.vocabulary() as Token).map(move |token| self.token(token))
    }
}
