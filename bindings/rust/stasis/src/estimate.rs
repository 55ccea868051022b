//! Memory: of models before they are opened, and of sessions before they are computed.
use crate::error::{check, Result};
use crate::raw::{c_path, c_text, pointer_to, sized, text_in};
use crate::{Model, SessionOptions};
use stasis_sys as sys;
use std::path::Path;

/// Memory of a session that shares no page, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionMemory {
    /// Memory is taken for whole pages of so many positions.
    pub page_positions: u32,
    /// Of its pages between calls.
    pub kv_bytes: u64,
    /// Never more on the way there.
    pub kv_most_bytes: u64,
    /// Keys and values of one position in all layers.
    pub position_bytes: u64,
    /// Of it in layers without a window, which keep growing.
    pub global_position_bytes: u64,
    /// Recurrent states: the last, and checkpoints.
    pub states: u64,
    /// Of the recurrent states.
    pub state_bytes: u64,
    /// Tokens and tables of pages.
    pub log_bytes: u64,
    /// Sums of attention.
    pub tracking_bytes: u64,
    /// Whatever its length.
    pub fixed_bytes: u64,
}

impl SessionMemory {
    fn of(raw: &sys::stasis_session_memory) -> SessionMemory {
        SessionMemory {
            page_positions: raw.page_positions,
            kv_bytes: raw.kv_bytes,
            kv_most_bytes: raw.kv_most_bytes,
            position_bytes: raw.position_bytes,
            global_position_bytes: raw.global_position_bytes,
            states: raw.states,
            state_bytes: raw.state_bytes,
            log_bytes: raw.log_bytes,
            tracking_bytes: raw.tracking_bytes,
            fixed_bytes: raw.fixed_bytes,
        }
    }

    /// All that the session takes between calls.
    pub fn bytes(&self) -> u64 {
        self.kv_bytes + self.state_bytes + self.log_bytes + self.tracking_bytes + self.fixed_bytes
    }
}

/// How a model would be opened, as far as that matters to its memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct EstimateOptions<'a> {
    /// That compute, the caller's included; 0: one per core.
    pub threads: u32,
    /// None: the best that the machine runs.
    pub kernels: Option<&'a str>,
    /// No file stays mapped.
    pub copy_weights: bool,
    /// Limit for the recurrent states of all sessions together; 0: 512 MiB.
    pub state_budget_bytes: u64,
}

/// A model that is not open, by what its files say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelEstimate {
    /// Of the model.
    pub architecture: String,
    /// How many it has.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Tokens are below.
    pub vocabulary: u32,
    /// Positions a session may have at most.
    pub context: u64,
    /// Numbers in the model's tensors, without the MTP head's.
    pub parameters: u64,
    /// As stored.
    pub weight_types: String,
    /// Of all weights in the files.
    pub weight_bytes: u64,
    /// Of the head that predicts further tokens, beside the others.
    pub mtp_bytes: u64,
    /// Of all files of weights.
    pub file_bytes: u64,
    /// Weights used in mapped files.
    pub mapped_bytes: u64,
    /// Copies of weights, which opening takes and keeps.
    pub allocated_bytes: u64,
    /// Norms and biases.
    pub heap_bytes: u64,
    /// Of a call that computes 512 positions.
    pub workspace_bytes: u64,
    /// Of a session of the positions asked for.
    pub session: SessionMemory,
}

/// Says what opening a model would take of memory, and then a session of so many positions, from
/// the headers of the model's files, in milliseconds.
pub fn estimate(
    path: impl AsRef<Path>,
    options: EstimateOptions<'_>,
    session: SessionOptions,
    positions: u64,
) -> Result<ModelEstimate> {
    let path = c_path(path.as_ref())?;
    let kernels = options.kernels.map(|text| c_text(text, "kernels")).transpose()?;
    let given = sys::stasis_model_options {
        threads: options.threads,
        kernels: pointer_to(&kernels),
        copy_weights: options.copy_weights.into(),
        state_budget_bytes: options.state_budget_bytes,
        ..sized()
    };
    let (mut told, mut memory): (sys::stasis_estimate, _) = (sized(), sized());
    // SAFETY: everything that is pointed to outlives the call; structs with their sizes.
    check(|error| unsafe {
        sys::stasis_model_estimate(
            path.as_ptr(),
            &given,
            &session.raw(),
            positions,
            &mut told,
            &mut memory,
            error,
        )
    })?;
    Ok(ModelEstimate {
        architecture: text_in(&told.architecture),
        layers: told.layers,
        hidden: told.hidden,
        vocabulary: told.vocabulary,
        context: told.context,
        parameters: told.parameters,
        weight_types: text_in(&told.weight_types),
        weight_bytes: told.weight_bytes,
        mtp_bytes: told.mtp_bytes,
        file_bytes: told.file_bytes,
        mapped_bytes: told.mapped_bytes,
        allocated_bytes: told.allocated_bytes,
        heap_bytes: told.heap_bytes,
        workspace_bytes: told.workspace_bytes,
        session: SessionMemory::of(&memory),
    })
}

impl Model {
    /// Says what a session of these options takes when it has so many positions. Nothing is
    /// computed.
    pub fn session_memory(&self, options: SessionOptions, positions: u64) -> Result<SessionMemory> {
        let mut memory = sized();
        // SAFETY: a living model, and structs with their sizes.
        check(|error| unsafe {
            sys::stasis_model_session_memory(
                self.raw(),
                &options.raw(),
                positions,
                &mut memory,
                error,
            )
        })?;
        Ok(SessionMemory::of(&memory))
    }
}
