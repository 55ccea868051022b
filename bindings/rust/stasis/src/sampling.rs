//! How the next token is drawn.
use crate::raw::sized;
use crate::Token;
use stasis_sys as sys;

/// Settings of sampling, as `stasis_sampling` describes them: 0 means off unless said otherwise, so
/// the default is greedy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// The most likely so many.
    pub top_k: u32,
    /// 0: greedy.
    pub temperature: f32,
    /// 1: off.
    pub top_p: f32,
    /// The least share of the best token's probability.
    pub min_p: f32,
    /// 1: off.
    pub repetition_penalty: f32,
    /// For each time the token occurred.
    pub frequency_penalty: f32,
    /// Once, if it occurred.
    pub presence_penalty: f32,
    /// Tokens that penalties look back on; 0: 64; `u32::MAX`: all.
    pub penalty_window: u32,
    /// Added to the logits of these tokens, each once; `f32::NEG_INFINITY` forbids.
    pub bias: Vec<(Token, f32)>,
    /// Draws depend on it and the position, and nothing else.
    pub seed: u64,
    /// Locally typical sampling.
    pub typical_p: f32,
    /// Top-n-sigma.
    pub top_n_sigma: f32,
    /// XTC: how often.
    pub xtc_probability: f32,
    /// XTC: 0: 0.1.
    pub xtc_threshold: f32,
    /// DRY: 0: off.
    pub dry_multiplier: f32,
    /// DRY: 0: 1.75.
    pub dry_base: f32,
    /// DRY: 0: 2.
    pub dry_allowed_length: u32,
    /// DRY: 0: all.
    pub dry_range: u32,
    /// Tokens that typical_p, min_p, top_p and XTC keep, if there are so many; 0: 1.
    pub min_keep: u32,
    /// DRY: no repetition goes over one of these.
    pub dry_breakers: Vec<Token>,
}

impl Sampling {
    /// Converts the settings that a model recommends, whose arrays are the model's.
    ///
    /// # Safety
    /// The model lives.
    pub(crate) unsafe fn of(raw: &sys::stasis_sampling) -> Sampling {
        let count = raw.bias_count as usize;
        // SAFETY: that many of each, of a model that lives.
        let bias =
            (0..count).map(|i| unsafe { (*raw.bias_tokens.add(i), *raw.bias.add(i)) }).collect();
        Sampling {
            bias,
            top_k: raw.top_k,
            temperature: raw.temperature,
            top_p: raw.top_p,
            min_p: raw.min_p,
            repetition_penalty: raw.repetition_penalty,
            penalty_window: raw.penalty_window,
            seed: raw.seed,
            typical_p: raw.typical_p,
            xtc_probability: raw.xtc_probability,
            xtc_threshold: raw.xtc_threshold,
            ..Sampling::default()
        }
    }

    /// Calls with the C struct, which points into arrays of this function.
    pub(crate) fn with_raw<R>(&self, call: impl FnOnce(*const sys::stasis_sampling) -> R) -> R {
        let (tokens, bias): (Vec<Token>, Vec<f32>) = self.bias.iter().copied().unzip();
        call(&sys::stasis_sampling {
            top_k: self.top_k,
            temperature: self.temperature,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            penalty_window: self.penalty_window,
            bias_count: bias.len() as u32,
            bias_tokens: tokens.as_ptr(),
            bias: bias.as_ptr(),
            seed: self.seed,
            typical_p: self.typical_p,
            top_n_sigma: self.top_n_sigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            dry_range: self.dry_range,
            min_keep: self.min_keep,
            dry_breaker_count: self.dry_breakers.len() as u32,
            dry_breakers: self.dry_breakers.as_ptr(),
            ..sized()
        })
    }
}
