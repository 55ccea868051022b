//! Conversations in JSON: what a session's log lacks of one, and the reply as a message.
use crate::error::{Result, Status};
use crate::model::Reply;
use crate::options::RunOptions;
use crate::raw::{fill, text_from};
use crate::{Session, Token};
use stasis_sys as sys;
use std::ptr;

/// What a log lacks of a conversation; see [`Session::chat_tokens`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatTokens {
    /// The first position that the log lacks or has otherwise.
    pub position: u64,
    /// The tokens that follow there.
    pub tokens: Vec<Token>,
}

fn flags_of(reply: Reply) -> u32 {
    if reply == Reply::Prompt {
        sys::STASIS_CHAT_REPLY
    } else {
        0
    }
}

impl Session {
    /// Appends what the log lacks of a conversation in JSON, rendered by the model's own template.
    /// Where the log differs from the rendering, nothing is appended, and the position of the first
    /// difference is returned: rewind to it and append again. `None`: it is appended.
    pub fn append_chat(
        &mut self,
        conversation: &str,
        reply: Reply,
        options: RunOptions<'_>,
    ) -> Result<Option<u64>> {
        let flags = flags_of(reply);
        let (raw, data, size) = (self.raw(), conversation.as_ptr().cast(), conversation.len());
        let mut position = 0;
        // SAFETY: a text with its length, a place for the position.
        let result = options.call(|options, error| unsafe {
            sys::stasis_session_append_chat(raw, data, size, flags, &mut position, options, error)
        });
        match self.after(result) {
            Err(error) if error.status() == Status::Conflict => Ok(Some(position)),
            result => result.map(|()| None),
        }
    }

    /// What [`Session::append_chat`] appends, after a rewind where the log differs; it appends
    /// nothing.
    pub fn chat_tokens(&self, conversation: &str, reply: Reply) -> Result<ChatTokens> {
        let (data, size) = (conversation.as_ptr().cast(), conversation.len());
        let (raw, flags, mut position) = (self.raw(), flags_of(reply), 0);
        // SAFETY: a text with its length, a place for the position, a buffer with its capacity.
        let tokens = self.after(fill(|tokens, capacity, count, error| unsafe {
            let at = &mut position;
            sys::stasis_session_chat_tokens(
                raw, data, size, flags, at, tokens, capacity, count, error,
            )
        }))?;
        Ok(ChatTokens { position, tokens })
    }

    /// What follows the last generation prompt, as a message in JSON: content, thoughts and tool
    /// calls. `conversation` tells the tools' types. Until the reply has ended, or is `complete`,
    /// what may still become a call is held back.
    pub fn reply(&self, conversation: Option<&str>, complete: bool) -> Result<String> {
        let flags = if complete { sys::STASIS_REPLY_COMPLETE } else { 0 };
        let data = conversation.map_or(ptr::null(), |text| text.as_ptr().cast());
        let size = conversation.map_or(0, str::len);
        // SAFETY: a text with its length or none, a buffer with its capacity.
        let text = self.after(fill(|text: *mut u8, capacity, length, error| unsafe {
            sys::stasis_session_reply(
                self.raw(),
                data,
                size,
                flags,
                text.cast(),
                capacity,
                length,
                error,
            )
        }))?;
        Ok(text_from(text))
    }
}
