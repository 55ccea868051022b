//! Embeddings: texts as vectors.
use crate::cancel::{raw_ms, raw_of, Cancel};
use crate::error::{check, Result};
use crate::guard::{progress, Guard, ProgressFn};
use crate::raw::{c_text, copied, fill, pointer_to, sized, text_of};
use crate::{Model, Token};
use stasis_sys as sys;
use std::mem::size_of;
use std::time::Duration;

/// What a text's final hidden states give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// That of the last token.
    Last,
    /// The mean of all tokens'.
    Mean,
}

/// How the model's files say that texts become vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbedInfo {
    /// None: they do not say, or `refusal`.
    pub pooling: Option<Pooling>,
    /// Numbers of a vector.
    pub dimension: u32,
    /// The L2 norm of a vector is 1.
    pub normalised: bool,
    /// Most tokens of a text, tokens around it included.
    pub tokens_max: u64,
    /// Version of the numerics contract's part on embeddings.
    pub contract: u32,
    /// Names, and texts to put before a text.
    pub prompts: Vec<(String, String)>,
    /// The name of the one in use if none is asked for; empty: none.
    pub default_prompt: String,
    /// What the files ask for that is not supported; empty: nothing.
    pub refusal: String,
}

/// What one vector is made of.
#[derive(Clone, Copy, Debug)]
pub enum EmbedInput<'a> {
    /// A text, with the prompt and the tokens around it that the model's files ask for.
    Text(&'a str),
    /// Tokens as they are.
    Tokens(&'a [Token]),
}

/// How vectors are made.
#[derive(Default)]
pub struct EmbedOptions<'a> {
    /// None: as the model's files say.
    pub pooling: Option<Pooling>,
    /// The name of one of the model's prompts; none: the default one.
    pub prompt: Option<&'a str>,
    /// Positions computed together; 0: chosen.
    pub chunk: u32,
    /// Ends the call.
    pub cancel: Option<&'a Cancel>,
    /// Ends the call after this time with [`Status::Timeout`](crate::Status::Timeout).
    pub timeout: Option<Duration>,
    /// Gets done and total positions; a break stops.
    pub progress: Option<ProgressFn<'a>>,
}

fn raw_pooling(pooling: Option<Pooling>) -> u32 {
    match pooling {
        None => 0,
        Some(Pooling::Last) => sys::STASIS_POOLING_LAST,
        Some(Pooling::Mean) => sys::STASIS_POOLING_MEAN,
    }
}

fn raw_input(input: &EmbedInput<'_>) -> sys::stasis_embed_input {
    match input {
        EmbedInput::Text(text) => {
            sys::stasis_embed_input { text: text.as_ptr().cast(), length: text.len(), ..sized() }
        }
        EmbedInput::Tokens(tokens) => sys::stasis_embed_input {
            tokens: tokens.as_ptr(),
            token_count: tokens.len(),
            ..sized()
        },
    }
}

impl Model {
    /// Describes how the model makes vectors.
    pub fn embed_info(&self) -> Result<EmbedInfo> {
        let mut info: sys::stasis_embed_info = sized();
        // SAFETY: a living model and a struct with its size; its texts live as long as the model.
        unsafe {
            check(|error| sys::stasis_model_get_embed_info(self.raw(), &mut info, error))?;
            let count = info.prompt_count as usize;
            let names = copied(info.prompt_names, count).into_iter();
            let texts = copied(info.prompts, count).into_iter();
            Ok(EmbedInfo {
                pooling: [Pooling::Last, Pooling::Mean]
                    .into_iter()
                    .find(|pooling| raw_pooling(Some(*pooling)) == info.pooling),
                dimension: info.dimension,
                normalised: info.normalised != 0,
                tokens_max: info.tokens_max,
                contract: info.contract,
                prompts: names
                    .zip(texts)
                    .map(|(name, text)| (text_of(name), text_of(text)))
                    .collect(),
                default_prompt: text_of(info.default_prompt),
                refusal: text_of(info.refusal),
            })
        }
    }

    /// A vector of each input: the same bits whatever is beside it.
    pub fn embed(
        &self,
        inputs: &[EmbedInput<'_>],
        options: EmbedOptions<'_>,
    ) -> Result<Vec<Vec<f32>>> {
        let prompt = options.prompt.map(|name| c_text(name, "prompt")).transpose()?;
        let raw_inputs: Vec<sys::stasis_embed_input> = inputs.iter().map(raw_input).collect();
        let mut guard = Guard::<ProgressFn<'_>>::new(options.progress);
        let raw = sys::stasis_embed_options {
            pooling: raw_pooling(options.pooling),
            prompt: pointer_to(&prompt),
            chunk: options.chunk,
            cancel: raw_of(options.cancel),
            timeout_ms: raw_ms(options.timeout),
            progress: guard.is_some().then_some(progress),
            progress_user: guard.user(),
            ..sized()
        };
        // SAFETY: an array with its stride and count, a buffer with its capacity.
        let numbers = fill(|vectors, capacity, count, error| unsafe {
            sys::stasis_model_embed(
                self.raw(),
                raw_inputs.as_ptr(),
                size_of::<sys::stasis_embed_input>(),
                raw_inputs.len(),
                &raw,
                vectors,
                capacity,
                count,
                error,
            )
        });
        guard.resume();
        let numbers: Vec<f32> = numbers?;
        let width = numbers.len() / inputs.len().max(1);
        Ok(numbers.chunks(width.max(1)).map(<[f32]>::to_vec).collect())
    }
}
